//! Passes: tickets of a listener for another machine that copies on behalf of a user.
//!
//! A pass permits one kind of request with exactly named places. It has one use, which must begin within [`BEGIN_WITHIN`].
//! It has no more rights than the user who requested it, and the session that it opens ends with the session of that
//! user.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use sabul_keys::{Grant, Right, Rights};
use sabul_wire::control::{self, FailureCode};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::access::User;
use crate::error::Error;
use crate::lock::lock;
use crate::ticket::Ticket;

/// Ours: longest time between the request for a pass and its use.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);
/// Ours: most unused passes of a listener, of one user, and of one session.
const PASSES_MAX: usize = 256;
const PASSES_OF_USER: usize = 32;
const PASSES_OF_SESSION: usize = 4;

/// The only request of the holder of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permit {
    /// Write files at this destination.
    Put(Vec<u8>),
    /// Read these sources, without the files behind links that lead out of them.
    Get(Vec<Vec<u8>>),
}

impl Permit {
    /// The right that the user needs, and that the pass has.
    pub(crate) const fn right(&self) -> Right {
        match self {
            Self::Put(_) => Right::Write,
            Self::Get(_) => Right::Read,
        }
    }

    /// Whether this is the permitted request.
    fn permits(&self, request: &control::Request) -> bool {
        match (self, request) {
            (Self::Put(to), control::Request::Put { destination, .. }) => destination == to,
            (Self::Get(from), control::Request::Get { sources, links_out, .. }) => {
                sources == from && !links_out
            }
            _ => false,
        }
    }
}

/// Session of the user who requested a pass.
pub(crate) trait Issuer: fmt::Debug + Send + Sync {
    /// Whether the session is over.
    fn is_over(&self) -> bool;

    /// Waits until the session is over.
    fn over(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Limits of a session that a pass has opened.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    permit: Permit,
    /// Session of the user who requested the pass.
    issuer: Arc<dyn Issuer>,
}

impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        self.permit == other.permit && Arc::ptr_eq(&self.issuer, &other.issuer)
    }
}

impl Eq for Pass {}

impl Pass {
    /// Whether this is the permitted request.
    pub(crate) fn permits(&self, request: &control::Request) -> bool {
        self.permit.permits(request)
    }

    /// Waits until the session of the user who requested the pass is over.
    pub(crate) async fn issuer_over(&self) {
        self.issuer.over().await;
    }
}

/// A pass without a use so far.
struct Unused {
    secret: Zeroizing<[u8; 32]>,
    until: Instant,
    user: User,
    pass: Arc<Pass>,
}

/// Unused passes of a listener.
#[derive(Default)]
pub(crate) struct Passes {
    /// Addresses and fingerprint of the listener; unset for a connector.
    listener: OnceLock<Ticket>,
    unused: Mutex<Vec<Unused>>,
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passes").field("unused", &lock(&self.unused).len()).finish_non_exhaustive()
    }
}

impl Passes {
    /// Sets the ticket of the listener, whose addresses each pass has.
    pub(crate) fn set_listener(&self, ticket: &Ticket) {
        // A listener calls this once.
        let _ = self.listener.set(ticket.clone());
    }

    /// Makes a pass for `user` of the session of `issuer`; `None` stands for the ticket of this run.
    ///
    /// # Errors
    /// If this end does not listen, or has too many unused passes.
    pub(crate) fn make(
        &self,
        permit: Permit,
        user: Option<&User>,
        issuer: &Arc<dyn Issuer>,
    ) -> Result<Ticket, Error> {
        let refuse =
            |why: &str| Error::Failed(control::Failure::new(FailureCode::Refused, why.to_owned()));
        let Some(listener) = self.listener.get() else {
            return Err(refuse("this end does not listen, so it makes no passes"));
        };
        let ticket = Ticket::generate(listener.addresses().to_vec(), listener.fingerprint())?;
        let of_user = user.map(|user| (*user.grant).clone()).unwrap_or_default();
        let rights = Rights::only(permit.right());
        let name = format!("pass of {}", user.map_or("ticket", |user| &user.name));
        let pass = Arc::new(Pass { permit, issuer: Arc::clone(issuer) });
        let grant = Arc::new(Grant { rights, ..of_user });
        let user = User { name, grant, pass: Some(Arc::clone(&pass)) };
        let until = Instant::now() + BEGIN_WITHIN;
        let mut unused = lock(&self.unused);
        unused.retain(Unused::is_valid);
        let of_session = unused.iter().filter(|it| Arc::ptr_eq(&it.pass.issuer, issuer)).count();
        let of_user = unused.iter().filter(|it| it.user.name == user.name).count();
        if of_session >= PASSES_OF_SESSION
            || of_user >= PASSES_OF_USER
            || unused.len() >= PASSES_MAX
        {
            return Err(refuse(
                "too many copies wait for their other server; try again in a minute",
            ));
        }
        unused.push(Unused { secret: Zeroizing::new(*ticket.secret()), until, user, pass });
        Ok(ticket)
    }

    /// Takes the pass whose secret `is_it` accepts, and returns its user. All secrets are tried, so the time does not
    /// depend on the pass.
    pub(crate) fn take(&self, is_it: impl Fn(&[u8; 32]) -> bool) -> Option<User> {
        let mut unused = lock(&self.unused);
        unused.retain(Unused::is_valid);
        let mut found = None;
        for (at, pass) in unused.iter().enumerate() {
            if is_it(&pass.secret) {
                found = Some(at);
            }
        }
        found.map(|at| unused.swap_remove(at).user)
    }
}

impl Unused {
    fn is_valid(&self) -> bool {
        Instant::now() < self.until && !self.pass.issuer.is_over()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A session that is over when the flag is set.
    #[derive(Debug, Default)]
    struct Flag(AtomicBool);

    impl Issuer for Flag {
        fn is_over(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn over(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::pending())
        }
    }

    fn session() -> Arc<dyn Issuer> {
        Arc::new(Flag::default())
    }

    fn passes() -> Passes {
        let passes = Passes::default();
        passes.set_listener(&Ticket::generate(vec!["192.0.2.1:1".to_owned()], [7; 32]).unwrap());
        passes
    }

    fn take(passes: &Passes, ticket: &Ticket) -> Option<User> {
        passes.take(|secret| secret == ticket.secret())
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_leaves_passes_for_others() {
        let passes = passes();
        let user = |name: &str| User::of_ticket(name, Arc::default());
        let make = |name: &str, issuer: &Arc<dyn Issuer>| {
            passes.make(Permit::Put(b"in".to_vec()), Some(&user(name)), issuer).is_ok()
        };
        let sessions: Vec<_> = (0..100).map(|_| session()).collect();
        let made = sessions.iter().filter(|session| make("one", session)).count();
        assert_eq!(made, PASSES_OF_USER);
        assert!(make("another", &session()));
        tokio::time::advance(BEGIN_WITHIN).await;
        assert!(make("one", &session()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_has_one_use_within_a_minute_and_during_the_session_of_its_user() {
        let passes = passes();
        let flag = Arc::new(Flag::default());
        let issuer: Arc<dyn Issuer> = Arc::clone(&flag) as Arc<dyn Issuer>;
        let make = || passes.make(Permit::Put(b"in".to_vec()), None, &issuer).unwrap();
        let ticket = make();
        assert_eq!(ticket.addresses(), ["192.0.2.1:1"]);
        let user = take(&passes, &ticket).unwrap();
        assert_eq!(user.grant.rights.to_string(), "write");
        assert!(take(&passes, &ticket).is_none(), "a second use");
        let late = make();
        tokio::time::advance(BEGIN_WITHIN).await;
        assert!(take(&passes, &late).is_none(), "too late");
        let orphan = make();
        flag.0.store(true, Ordering::Relaxed);
        assert!(take(&passes, &orphan).is_none(), "the user has gone");
    }

    #[tokio::test]
    async fn a_pass_keeps_the_limits_of_its_user_and_their_number_is_bounded() {
        let (passes, issuer) = (passes(), session());
        let mut grant = Grant::default();
        for (name, value) in [("root", "a"), ("rate", "10M"), ("from", "192.0.2.0/24")] {
            grant.set(name, value).unwrap();
        }
        let user = User { name: "anna".to_owned(), grant: Arc::new(grant.clone()), pass: None };
        let ticket = passes.make(Permit::Get(vec![b"x".to_vec()]), Some(&user), &issuer).unwrap();
        let passed = take(&passes, &ticket).unwrap();
        let expected = Grant { rights: Rights::only(Right::Read), ..grant };
        assert_eq!((&passed.name[..], &*passed.grant), ("pass of anna", &expected));
        let make = |issuer: &Arc<dyn Issuer>| passes.make(Permit::Put(Vec::new()), None, issuer);
        (0..PASSES_OF_SESSION).for_each(|_| drop(make(&issuer).unwrap()));
        assert!(make(&issuer).is_err());
        make(&session()).unwrap();
        assert!(Passes::default().make(Permit::Put(Vec::new()), None, &issuer).is_err());
    }

    #[test]
    fn only_the_named_places_are_permitted() {
        let put = |to: &[u8]| control::Request::Put {
            destination: to.to_vec(),
            into_directory: false,
            preserve: false,
            sync: true,
            read_back: false,
            origins: Vec::new(),
            expected: control::Expected::Any,
        };
        let permit = Permit::Put(b"in/x".to_vec());
        assert!(permit.permits(&put(b"in/x")));
        for other in [&b"in"[..], b"in/x/", b"in/xy", b"", b"in/../x"] {
            assert!(!permit.permits(&put(other)), "{}", String::from_utf8_lossy(other));
        }
        let stream = control::Request::Stream { name: "sabul.order.1".to_owned() };
        assert!(!permit.permits(&stream));
        assert!(!Permit::Get(vec![b"in/x".to_vec()]).permits(&put(b"in/x")));
    }
}
