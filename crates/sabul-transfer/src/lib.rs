//! The file layer without files: which bytes of a stream of blocks belong to which entry.
//!
//! A transfer is a stream of blocks, each with data and a table that says what it is. The [`Packer`] fills
//! them; the [`Assembler`] checks them and tells its driver what to create, write and finish. Nothing
//! here opens a file, owns a thread or reads a clock.

mod assembler;
mod check;
mod layout;
mod packer;
mod path;
mod tree;

pub use assembler::{Assembler, AssemblerWait, Marks, Op, Rejection, Step};
pub use check::is_copied_attribute;
pub use layout::Layout;
pub use packer::Packer;
pub use path::{MAX_COMPONENT, MAX_PATH, PathError, PathFlaw, RelativePath};
pub use sabul_wire::{Printable, steers};
pub use tree::{CHUNK, Tree};
