//! Registered servers of an introducer, their calls, and the limits of both.
//!
//! A caller proves nothing to the introducer: the name of a server suffices, and former holders of tickets know the name,
//! too. So each source (an IPv4 address or an IPv6 /64 network) has a limit below each limit of a server and of a user.
//! Callers from other sources find a place while one source holds all that it may.
//! Invariants:  a user exists while the user has a registration or a call, or has used up bytes that count still.
//! Not here:    streams and sockets; time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};
use tokio::time::Instant;

use crate::metered::{Bucket, Limit};
use crate::rate::Rate;
use crate::relay::Relay;

/// Registrations of one key or ticket, and of all.
const PER_USER_MAX: usize = 16;
const REGISTRATIONS_MAX: usize = 4096;
/// Calls of a registration at the same time; fewer than a relay permits.
const CALLS_MAX: usize = 48;
/// Ours: of these from one source. A copy with `--tcp 16` makes 17 calls; three sources are needed to take all places.
const CALLS_OF_SOURCE_MAX: usize = 20;
/// Ours: calls to all registrations of a key or ticket, 32 MiB of memory, or 128 MiB with `--relay`; half of them from
/// one source.
const USER_CALLS_MAX: usize = 64;
const USER_CALLS_OF_SOURCE_MAX: usize = USER_CALLS_MAX / 2;
/// Ours: new calls of a registration, and of these from one source. One source takes a quarter of the rate.
const CALL_RATE: Rate = Rate { interval: Duration::from_millis(250), burst: 240 };
const SOURCE_CALL_RATE: Rate = Rate { interval: Duration::from_secs(1), burst: 60 };
/// Ours: callers that wait for a registration at the same time, and of these from one source. They have proven nothing, so
/// they get no memory of the budget; each keeps a TLS connection.
const WAITING_MAX: usize = 64;
const WAITING_OF_SOURCE_MAX: usize = 8;
/// Limit of all streams without data of a key or ticket. Ours: 64 control connections take 64 kB/s, four calls have their
/// burst at the same time, and data that use the streams as a relay get 8 Mbit/s.
const USER_CONTROL: Limit = Limit { burst: 32 << 20, rate: 1 << 20 };

/// A stream to a server, until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    registration: u64,
    source: IpAddr,
}

/// Key or ticket by which servers were authenticated.
#[derive(Debug)]
struct User {
    registrations: usize,
    calls: Vec<Open>,
    /// Bytes of the calls without data.
    control: Arc<Bucket>,
}

impl User {
    fn new() -> Self {
        Self { registrations: 0, calls: Vec::new(), control: Arc::new(Bucket::new(USER_CONTROL)) }
    }

    fn is_needed(&self, now: Instant) -> bool {
        self.registrations > 0 || !self.calls.is_empty() || !self.control.is_full(now)
    }

    /// Whether a further call to this registration finds a place.
    fn check(&self, call: Open) -> Result<(), Failure> {
        let of_server = || self.calls.iter().filter(|it| it.registration == call.registration);
        let of_source = |it: &&Open| it.source == call.source;
        if of_server().filter(of_source).count() >= CALLS_OF_SOURCE_MAX
            || self.calls.iter().filter(of_source).count() >= USER_CALLS_OF_SOURCE_MAX
        {
            return Err(refused(SOURCE_IS_FULL));
        }
        if of_server().count() >= CALLS_MAX {
            return Err(refused("the server has too many callers; try again in a minute"));
        }
        if self.calls.len() >= USER_CALLS_MAX {
            let text = format!(
                "the servers with the key or ticket of this server have {USER_CALLS_MAX} callers, which is the limit; \
                 try again in a minute, or register the server with a key or ticket of its own"
            );
            return Err(refused(&text));
        }
        Ok(())
    }
}

const SOURCE_IS_FULL: &str =
    "the server has too many callers from this address; try again in a minute";

/// A registered server.
#[derive(Debug)]
struct Registration {
    number: u64,
    user: String,
    relay: Relay,
    /// Times at which the token buckets of calls will be full; those of sources only while not full.
    full_at: Option<Instant>,
    source_full_at: HashMap<IpAddr, Instant>,
}

impl Registration {
    /// Whether the rates permit another call.
    fn check(&self, source: IpAddr, now: Instant) -> Result<(), Failure> {
        let of_source = self.source_full_at.get(&source).copied();
        if !SOURCE_CALL_RATE.wait(of_source, now).is_zero() {
            return Err(refused(SOURCE_IS_FULL));
        }
        if !CALL_RATE.wait(self.full_at, now).is_zero() {
            return Err(refused("the server has too many calls; try again in a minute"));
        }
        Ok(())
    }

    /// Counts a call.
    fn count(&mut self, source: IpAddr, now: Instant) {
        self.source_full_at.retain(|_, full_at| *full_at > now);
        let of_source = self.source_full_at.get(&source).copied();
        self.source_full_at.insert(source, SOURCE_CALL_RATE.taken(of_source, now));
        self.full_at = Some(CALL_RATE.taken(self.full_at, now));
    }
}

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) relay: Relay,
    pub(super) user: String,
    /// Limit of the bytes of all calls without data of the user.
    pub(super) control: Arc<Bucket>,
    call: Open,
}

/// Registered servers and their calls.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    by_name: HashMap<[u8; 16], Registration>,
    users: HashMap<String, User>,
    last: u64,
    /// Open calls of all users.
    calls: usize,
    /// Callers that wait for a registration.
    waiting: HashMap<IpAddr, usize>,
}

pub(super) fn refused(text: &str) -> Failure {
    Failure::new(FailureCode::Refused, text)
}

/// A refusal that does not last: the code is not final for a server, which tries again.
fn refused_now(text: &str) -> Failure {
    Failure::new(FailureCode::Timeout, text)
}

impl Registrations {
    /// Whether a server of this user may register the name.
    pub(super) fn check(&self, name: &[u8; 16], user: &str) -> Result<(), Failure> {
        if let Some(present) = self.by_name.get(name) {
            return match present.user == user {
                true => Ok(()),
                false => Err(refused_now(
                    "the name of this server is in use with another key or ticket; end the server that uses the name, \
                     or start this server with a new identity",
                )),
            };
        }
        let of_user = self.users.get(user).map_or(0, |user| user.registrations);
        if of_user >= PER_USER_MAX {
            let text = format!(
                "this key or ticket has {PER_USER_MAX} registered servers, which is the limit; use another one"
            );
            return Err(refused(&text));
        }
        if self.by_name.len() >= REGISTRATIONS_MAX {
            return Err(refused_now("the introducer has no room for another server"));
        }
        Ok(())
    }

    /// Registers a server and returns its number. An earlier registration of the name by the same user ends.
    pub(super) fn insert(
        &mut self,
        name: [u8; 16],
        user: String,
        relay: Relay,
        now: Instant,
    ) -> Result<u64, Failure> {
        self.check(&name, &user)?;
        self.users.retain(|_, user| user.is_needed(now));
        self.users.entry(user.clone()).or_insert_with(User::new).registrations += 1;
        self.last += 1;
        let number = self.last;
        let registration =
            Registration { number, user, relay, full_at: None, source_full_at: HashMap::new() };
        if let Some(earlier) = self.by_name.insert(name, registration) {
            earlier.relay.end("the server registered again");
            self.uncount(&earlier.user);
        }
        Ok(number)
    }

    /// Removes a registration, unless a later one has replaced it.
    pub(super) fn remove(&mut self, name: &[u8; 16], number: u64) {
        if self.by_name.get(name).is_some_and(|it| it.number == number)
            && let Some(registration) = self.by_name.remove(name)
        {
            self.uncount(&registration.user);
        }
    }

    /// Counts a registration of a user no longer. The user stays for the bytes that count still.
    fn uncount(&mut self, user: &str) {
        if let Some(user) = self.users.get_mut(user) {
            user.registrations -= 1;
        }
    }

    /// Ends all registrations.
    pub(super) fn end(&self, why: &str) {
        for registration in self.by_name.values() {
            registration.relay.end(why);
        }
    }

    /// Begins a call to a registered server; `None` if the name is not registered. `calls_max` is the most calls of all
    /// users.
    pub(super) fn begin(
        &mut self,
        name: &[u8; 16],
        source: IpAddr,
        calls_max: usize,
        now: Instant,
    ) -> Result<Option<Begun>, Failure> {
        let Some(registration) = self.by_name.get_mut(name) else { return Ok(None) };
        let Some(user) = self.users.get_mut(&registration.user) else { return Ok(None) };
        let call = Open { registration: registration.number, source };
        user.check(call)?;
        registration.check(source, now)?;
        if self.calls >= calls_max {
            return Err(refused("the introducer has no memory for another call; try again later"));
        }
        registration.count(source, now);
        user.calls.push(call);
        self.calls += 1;
        Ok(Some(Begun {
            relay: registration.relay.clone(),
            user: registration.user.clone(),
            control: Arc::clone(&user.control),
            call,
        }))
    }

    /// Ends a call.
    pub(super) fn finish(&mut self, begun: &Begun) {
        let Some(user) = self.users.get_mut(&begun.user) else { return };
        if let Some(place) = user.calls.iter().position(|it| *it == begun.call) {
            user.calls.swap_remove(place);
            self.calls -= 1;
        }
    }

    /// Counts a caller that waits for a registration. Returns whether there is room.
    pub(super) fn begin_wait(&mut self, source: IpAddr) -> bool {
        let all: usize = self.waiting.values().sum();
        let of_source = self.waiting.get(&source).copied().unwrap_or(0);
        let has_room = all < WAITING_MAX && of_source < WAITING_OF_SOURCE_MAX;
        if has_room {
            self.waiting.insert(source, of_source + 1);
        }
        has_room
    }

    /// Counts a waiting caller no longer.
    pub(super) fn end_wait(&mut self, source: IpAddr) {
        if let Some(count) = self.waiting.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: [u8; 16] = [7; 16];

    fn address(number: u8) -> IpAddr {
        [127, 0, 0, number].into()
    }

    fn relay() -> Relay {
        Relay::start(tokio::io::empty(), tokio::io::sink(), None).0
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_bytes_survives_another_registration() {
        let mut registrations = Registrations::default();
        let mut control_of = |user: &str| {
            let number = registrations.insert(NAME, user.to_owned(), relay(), Instant::now());
            let begun = registrations.begin(&NAME, address(1), 9, Instant::now());
            let begun = begun.unwrap().unwrap();
            registrations.finish(&begun);
            registrations.remove(&NAME, number.unwrap());
            begun.control
        };
        let first = control_of("a");
        first.take(USER_CONTROL.burst, Instant::now());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(Arc::ptr_eq(&first, &control_of("a")));
        assert!(!Arc::ptr_eq(&first, &control_of("b")));
        tokio::time::advance(Duration::from_secs(2)).await;
        control_of("b");
        assert_eq!(Arc::strong_count(&first), 1, "the user is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn each_count_falls_again() {
        let mut registrations = Registrations::default();
        let now = Instant::now();
        let number = registrations.insert(NAME, "a".to_owned(), relay(), now).unwrap();
        let again = registrations.insert(NAME, "a".to_owned(), relay(), now).unwrap();
        // The end of the first connection does not remove the second registration.
        registrations.remove(&NAME, number);
        let mut calls = Vec::new();
        for source in 1..=CALLS_MAX {
            let source = address(u8::try_from(source).unwrap());
            calls.push(registrations.begin(&NAME, source, 1000, now).unwrap().unwrap());
        }
        registrations.begin(&NAME, address(0), 1000, now).unwrap_err();
        calls.iter().for_each(|call| registrations.finish(call));
        registrations.begin(&NAME, address(0), 0, now).unwrap_err();
        let last = registrations.begin(&NAME, address(0), 1, now).unwrap().unwrap();
        registrations.begin(&NAME, address(0), 1, now).unwrap_err();
        registrations.remove(&NAME, again);
        assert!(registrations.begin(&NAME, address(0), 2, now).unwrap().is_none());
        registrations.finish(&last);
        assert_eq!((registrations.calls, registrations.users["a"].registrations), (0, 0));
        registrations.insert(NAME, "b".to_owned(), relay(), now).unwrap();
        assert_eq!(registrations.users.len(), 1, "a user without registrations is forgotten");
    }
}
