//! The file layer without files: which bytes of a stream of blocks belong to which entry.
//!
//! A transfer is a manifest of entries in order; the contents of its files, one after the other,
//! form one byte stream, cut into blocks. Blocks and messages about entries travel apart and meet
//! in the [`Assembler`], which tells its driver what to create, write and finish. Nothing here
//! opens a file, owns a thread or reads a clock.

mod assembler;
mod check;
mod layout;
mod packer;
mod path;

pub use assembler::{
    Assembler, AssemblerWait, MAX_PENDING_BYTES, MAX_UNFINISHED, Op, Rejection, Step,
};
pub use check::is_copied_attribute;
pub use layout::Layout;
pub use packer::Packer;
pub use path::{MAX_COMPONENT, MAX_PATH, PathError, PathFlaw, RelativePath};
pub use sabul_wire::Printable;
