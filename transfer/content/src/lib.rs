//! Sans-IO file layer: maps a stream of blocks to files, directories and links.
//!
//! A transfer is a stream of blocks, each with data and a table that describes the data. The
//! [`Packer`] fills blocks. The [`Assembler`] validates blocks and returns the operations that its
//! driver carries out: create, write, finish. Nothing here opens a file, owns a thread or reads a
//! clock.

mod assembler;
mod check;
mod kept;
mod layout;
mod packer;
mod path;
mod tree;

pub use assembler::{Assembler, AssemblerWait, Checkpoints, Op, Rejection, Step};
pub use check::is_copied_attribute;
pub use kept::kept_ranges;
pub use layout::Layout;
pub use packer::Packer;
pub use path::{MAX_COMPONENT, MAX_PATH, PathError, PathFlaw, RelativePath};
pub use sabul_wire::{Printable, steers};
pub use tree::{CHUNK, Tree};
