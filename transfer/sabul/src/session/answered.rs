//! The listener's answer to the ticket, for a connector that waits for it.

use super::Session;
use crate::control::Ending;
use crate::error::Error;

impl Session {
    /// Waits until the listener has accepted the ticket, or until the session is over.
    ///
    /// # Errors
    /// If the connection was lost before the listener had answered. A rejection with a reason is an answer.
    pub(crate) async fn answered(&self) -> Result<(), Error> {
        let router = &self.inner.cx.router;
        let mut suite = router.suite();
        tokio::select! {
            biased;
            _ = suite.wait_for(Option::is_some) => Ok(()),
            () = router.over() => match router.ending() {
                Some(ending @ (Ending::Gone(_) | Ending::Closed)) => Err(ending.to_error()),
                _ => Ok(()),
            },
        }
    }
}
