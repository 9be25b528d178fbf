//! Object stores as sources and destinations of a transfer: folders, memory, and stores of the application.
//!
//! [`SourceSet::store`](crate::files::SourceSet::store) sends the objects of an [`ObjectSource`], and
//! [`LocalDestination::Store`](crate::files::LocalDestination::Store) receives into an [`ObjectDestination`]. At the accepting
//! end, [`PutRequest::accept_into`](crate::server::PutRequest::accept_into) does the same.

pub use sabul_files::store::{
    Memory, NewObject, Object, ObjectDestination, ObjectSource, Objects, Upload, Version,
};
