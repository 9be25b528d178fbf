//! Object stores as sources and destinations of a transfer: folders, memory, and stores of the application.
//!
//! [`SourceSet::store`](crate::files::SourceSet::store) sends the objects of a [`Source`], and
//! [`LocalDestination::Store`](crate::files::LocalDestination::Store) receives into a [`Destination`]. At the accepting
//! end, [`PutRequest::accept_into`](crate::server::PutRequest::accept_into) does the same.

pub use sabul_files::store::{
    Destination, Memory, NewObject, Object, Objects, Source, Upload, Version,
};
