//! A sabul on another machine, started through the user's own `ssh`.
//!
//! The near end runs `ssh HOST 'sh -c …'`. The little script (`script.rs`) finds or installs a `sabul` there and
//! turns into `sabul serve --stdio`, which listens and says so in one line on its standard output: with a ticket,
//! so ssh is the secure channel that carries the secret, and no command line or environment ever holds it. What
//! else is said there, by banners and the like, is passed over. The far end ends when its standard input does.

mod answer;
mod bridge;
mod command;
mod dial;
mod error;
mod lines;
mod messages;
mod push;
mod script;
mod strip;
mod watch;

pub use answer::{Ports, bind, failed_line, input_end, ready_line};
pub use bridge::Bridge;
pub use command::{Program, SplitError};
pub use dial::{Dialled, Order, connect};
pub use error::SshError;
pub use push::Push;
pub use watch::{Unwatched, Watch};
