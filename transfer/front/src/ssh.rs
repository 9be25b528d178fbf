//! Servers on other machines, started through the user's own `ssh`.
//!
//! The near end runs `ssh HOST 'sh -c …'`. A short script (`script.rs`) finds or installs `sabul` there
//! and executes `sabul serve --stdio`, which listens and prints one line with its ticket on standard
//! output. ssh is therefore the secure channel for the secret, and no command line or environment holds
//! it. Other output, such as banners, is skipped. The far end exits at the end of its standard input.

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
