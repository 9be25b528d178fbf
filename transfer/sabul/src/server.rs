//! Requests of a peer, for applications that answer the requests themselves or observe
//! [`Session::serve_with_observer`](crate::Session::serve_with_observer).

pub use crate::passes::Permit;
pub use crate::session::{
    AttestRequest, ChangeRequest, GetRequest, ListingRequest, MeasureRequest, Order, Purpose,
    PutRequest, Request, ServeSummary, Served, ServedFiles, Serving, Started, StreamAnswer,
    StreamRequest, StreamService, Streams,
};
