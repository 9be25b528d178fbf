//! Decision of a connector whose attempt failed: whether the listener was busy, and when the next attempt starts.
//!
//! A listener under load sends a busy message, or closes the connection before it has accepted the ticket. The
//! connector then dials again with growing random pauses. A program that only closes connections may be no listener. It
//! gets few attempts, while a listener that has proved to be one gets many.
//!
//! Source:      ours.
//! Not here:    sockets; dialling is in `connector.rs`.

use std::io;
use std::time::Duration;

use sabul_units::count;
use tokio::time::Instant;

use crate::error::Error;
use crate::tls::TlsError;

/// First pause before the next attempt; doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause. Ours: a thousand waiting connectors dial less than 700 times a second.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Most attempts at a program that only closes connections, which takes less than two seconds. Ours: a listener that is
/// busy sends a message, which gets lost only if a packet does.
const CLOSED_ATTEMPTS_MAX: u32 = 6;
/// How long a listener that has proved to be one is dialled while it is busy. Ours: it is alive, and it serves a
/// thousand waiting connectors within a few minutes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Time without any answer after which a busy listener is unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Longest TLS handshake, in timeouts of the TCP connection. Ours: with a thousand connectors on two processors, a
/// handshake takes longer than 10 s.
pub(super) const BUSY_TIMEOUTS: u32 = 3;
/// Time of a TCP connection with its TLS handshake after which the listener may close the connection. Ours: half of the
/// time that a listener under load gives a connector.
const SLOW: Duration = Duration::from_secs(1);
/// Time of the first message to the user, and interval of further ones.
const MESSAGE_AFTER: Duration = Duration::from_secs(1);
const MESSAGE_INTERVAL: Duration = Duration::from_secs(60);

/// Way in which an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The listener sent its busy message.
    Busy,
    /// The connection was closed during the TLS handshake.
    Closed,
    /// The listener authenticated itself, and the connection was lost before it accepted the ticket.
    Unanswered,
    /// No answer came in time.
    Silent,
    /// A failure that another attempt would not change.
    Final,
}

impl Rejection {
    /// Classifies an error of the TLS handshake.
    pub(super) const fn of_tls(error: &TlsError) -> Self {
        match error {
            TlsError::Busy => Self::Busy,
            TlsError::Closed => Self::Closed,
            _ => Self::Final,
        }
    }

    /// Classifies another error of an attempt.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { source, .. } => match source.kind() {
                io::ErrorKind::TimedOut => Self::Silent,
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Closed,
                _ => Self::Final,
            },
            _ => Self::Final,
        }
    }
}

/// Failed attempts of one connector at one address.
#[derive(Debug)]
pub(super) struct Rejections {
    began: Instant,
    pause: Duration,
    /// Attempts that failed because the listener was busy, or may have been.
    rejected: u32,
    hang_ups: u32,
    /// Time of the listener's last answer.
    answered: Instant,
    /// Whether the other end has proved to be a listener: by its busy message or by its certificate.
    is_listener: bool,
    /// Whether the other end has sent its busy message. A lost connection may also be the fault of the path.
    is_busy: bool,
    next_word: Instant,
    /// First error; explains more than a later one.
    first: Option<Error>,
}

impl Rejections {
    pub(super) fn new() -> Self {
        let began = Instant::now();
        Self {
            began,
            pause: PAUSE,
            rejected: 0,
            hang_ups: 0,
            answered: began,
            is_listener: false,
            is_busy: false,
            next_word: began + MESSAGE_AFTER,
            first: None,
        }
    }

    /// Returns whether the listener may be busy, so that it may close a connection whose handshake took this long on
    /// this side. The connector then waits for the listener's answer.
    pub(super) fn is_answer_due(&self, handshake: Duration) -> bool {
        self.rejected > 0 || handshake >= SLOW
    }

    /// Records a failed attempt. Returns the pause before the next attempt.
    ///
    /// # Errors
    /// If no further attempt is sensible; with the reason.
    pub(super) fn next(
        &mut self,
        rejection: Rejection,
        error: Error,
        address: &str,
    ) -> Result<Duration, Error> {
        self.is_listener |= matches!(rejection, Rejection::Busy | Rejection::Unanswered);
        self.is_busy |= rejection == Rejection::Busy;
        self.hang_ups += u32::from(rejection == Rejection::Closed);
        if rejection != Rejection::Silent {
            self.answered = Instant::now();
        }
        let goes_on = match rejection {
            Rejection::Final => false,
            Rejection::Silent => self.is_listener && self.answered.elapsed() < SILENCE_MAX,
            Rejection::Closed => self.is_listener || self.hang_ups < CLOSED_ATTEMPTS_MAX,
            Rejection::Busy | Rejection::Unanswered => true,
        };
        if !goes_on {
            let is_over = self.is_listener || self.first.is_none();
            return Err(if is_over { error } else { self.first.take().unwrap_or(error) });
        }
        self.rejected += 1;
        let waited = self.began.elapsed();
        if waited + self.pause >= BUSY_TIMEOUT {
            return Err(Error::Busy {
                address: address.to_owned(),
                rejected: self.rejected,
                waited,
            });
        }
        self.first.get_or_insert(error);
        let pause = jittered(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(pause)
    }

    /// Returns a message for the user if one is due.
    pub(super) fn word(&mut self, address: &str) -> Option<String> {
        let now = Instant::now();
        if !self.is_listener || now < self.next_word {
            return None;
        }
        self.next_word = now + MESSAGE_INTERVAL;
        let left = BUSY_TIMEOUT.saturating_sub(now - self.began).as_secs().div_ceil(60);
        let connections = count(u64::from(self.rejected), "connection");
        let what = match self.is_busy {
            true => format!("the server {address} is busy and has rejected {connections}"),
            false => format!(
                "{connections} to {address} ended before the answer of the server, which may be busy or out of reach"
            ),
        };
        Some(format!("{what}; trying again for up to {left} min"))
    }
}

/// A random time from half of `pause` to `pause`, so that waiting connectors do not retry at the same time.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness there is no jitter.
    let _ = aws_lc_rs::rand::fill(&mut byte);
    pause / 2 + pause / 2 * u32::from(byte[0]) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "192.0.2.1:4850";

    fn failed(rejection: Rejection) -> Error {
        match rejection {
            Rejection::Busy => Error::from_tls(TlsError::Busy, ADDRESS),
            Rejection::Closed => Error::from_tls(TlsError::Closed, ADDRESS),
            Rejection::Unanswered => Error::PeerGone("it was closed".into()),
            Rejection::Silent | Rejection::Final => {
                let source = io::ErrorKind::TimedOut.into();
                Error::Unreachable { address: ADDRESS.to_owned(), source }
            }
        }
    }

    /// Fails in the same way until no further attempt is made. Returns the number of attempts, the time and the error.
    async fn until_the_end(
        rejections: &mut Rejections,
        rejection: Rejection,
    ) -> (u32, Duration, Error) {
        let began = Instant::now();
        for attempt in 1.. {
            match rejections.next(rejection, failed(rejection), ADDRESS) {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(error) => return (attempt, began.elapsed(), error),
            }
        }
        unreachable!()
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_only_closes_connections_gets_few_attempts() {
        let (attempts, took, error) =
            until_the_end(&mut Rejections::new(), Rejection::Closed).await;
        assert_eq!(attempts, CLOSED_ATTEMPTS_MAX);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(matches!(error, Error::NotSabul { .. }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_listener_is_dialled_for_a_quarter_of_an_hour_whatever_closes_in_between() {
        for proof in [Rejection::Busy, Rejection::Unanswered] {
            let mut rejections = Rejections::new();
            rejections.next(proof, failed(proof), ADDRESS).unwrap();
            let (attempts, took, error) = until_the_end(&mut rejections, Rejection::Closed).await;
            assert!(attempts > 450, "{attempts} with pauses of at most two seconds");
            assert!(took <= BUSY_TIMEOUT && took > BUSY_TIMEOUT - 2 * PAUSE_MAX, "{took:?}");
            assert_eq!(error.kind(), crate::ErrorKind::Unreachable);
            assert!(error.to_string().contains("busy"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_final_unless_the_listener_was_busy_before() {
        let (attempts, ..) = until_the_end(&mut Rejections::new(), Rejection::Silent).await;
        assert_eq!(attempts, 1);
        let mut rejections = Rejections::new();
        rejections.next(Rejection::Busy, failed(Rejection::Busy), ADDRESS).unwrap();
        let (attempts, took, _) = until_the_end(&mut rejections, Rejection::Silent).await;
        assert!(attempts > 1);
        assert!(took >= SILENCE_MAX && took < SILENCE_MAX + PAUSE_MAX, "{took:?}");
        let (attempts, ..) = until_the_end(&mut rejections, Rejection::Final).await;
        assert_eq!(attempts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_server_that_says_so_is_called_busy() {
        for (rejection, expected) in [
            (Rejection::Busy, "192.0.2.1:4850 is busy and has rejected 1 connection;"),
            (Rejection::Unanswered, "1 connection to 192.0.2.1:4850 ended before the answer"),
        ] {
            let mut rejections = Rejections::new();
            rejections.next(rejection, failed(rejection), ADDRESS).unwrap();
            tokio::time::sleep(MESSAGE_AFTER).await;
            let word = rejections.word(ADDRESS).unwrap();
            assert!(word.contains(expected), "{word}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_user_learns_of_a_busy_server_after_a_second_and_then_each_minute() {
        let mut rejections = Rejections::new();
        let mut words = 0;
        while rejections.began.elapsed() < Duration::from_secs(150) {
            let pause = rejections.next(Rejection::Busy, failed(Rejection::Busy), ADDRESS).unwrap();
            words += u32::from(rejections.word(ADDRESS).is_some());
            assert!(words == 0 || rejections.began.elapsed() >= MESSAGE_AFTER);
            tokio::time::sleep(pause).await;
        }
        assert_eq!(words, 3);
    }
}
