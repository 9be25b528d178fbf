//! A request of the peer that waits for its answer.

use std::fmt;

use sabul_wire::control::{self, Failure, FailureCode, Message, Open};

use super::requested::is_of_ranges;
use super::rights;
use crate::access::User;
use crate::config::{CarrierPlan, Direction, check_controller, check_params};
use crate::control::Mailbox;
use crate::error::Error;
use crate::policy::check_granted;
use crate::steer::Steering;
use crate::transfer::{self, Context, Plan, Transfer, Work};

/// An unanswered request; dropping the value refuses the request.
pub(super) struct Pending {
    pub(super) cx: Context,
    pub(super) parts: Option<(Open, Mailbox)>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.parts.as_ref().map(|(open, _)| open)).finish()
    }
}

impl Pending {
    pub(super) fn open(&self) -> Option<&Open> {
        self.parts.as_ref().map(|(open, _)| open)
    }

    /// The peer, if authenticated by a key or a named ticket.
    pub(super) fn user(&self) -> Option<&User> {
        self.cx.user.as_deref()
    }

    /// Accepts the request if `work` returns `Ok`.
    pub(super) fn accept(
        mut self,
        direction: Direction,
        work: impl FnOnce(u32) -> Result<Work, Failure>,
    ) -> Result<Transfer, Error> {
        let Some((mut open, mailbox)) = self.parts.take() else { return Err(Error::Cancelled) };
        let work = check_params(&open.channel)
            .and_then(|()| match direction {
                Direction::Send => check_controller(&open.channel)
                    .map_err(|error| {
                        let text = format!("the end that sends needs the controller: {error}");
                        Error::Failed(Failure::new(FailureCode::BadSetting, text))
                    })
                    .and_then(|()| {
                        let policy = &self.cx.endpoint.sending;
                        policy.apply(&mut open.channel)?;
                        let granted = self.user().and_then(|user| user.grant.policy);
                        check_granted(&open.channel, granted).map_err(Error::from)
                    }),
                Direction::Receive => Ok(()),
            })
            .and_then(|()| {
                if Direction::for_acceptor(open.direction) == direction {
                    work(mailbox.number).map_err(Error::from)
                } else {
                    let text = "the request has the wrong direction of data";
                    Err(Failure::violation(text).into())
                }
            });
        match work {
            Ok(work) => {
                // For a pull, the requesting side writes the files, so durability is unknown here.
                let is_durable = matches!(open.request, control::Request::Put { sync: true, .. });
                let allowed = self.cx.endpoint.sending.rate_limit.map(|rate| rate.0);
                let allowed = allowed.filter(|_| direction == Direction::Send);
                let grant = self.cx.user.as_ref().map(|user| &user.grant);
                let steering = Steering::from_peer(open.channel.rate_limit_bps, allowed).granted(
                    grant.and_then(|grant| grant.rate).map(|rate| rate.0),
                    grant.and_then(|grant| grant.policy),
                );
                let plan = Plan {
                    is_opener: false,
                    is_of_ranges: is_of_ranges(&open.request),
                    answer_within: None,
                    params: open.channel,
                    carrier: CarrierPlan::default(),
                    steering,
                    work,
                    memory: None,
                    is_durable,
                };
                Ok(transfer::start(self.cx.clone(), mailbox, plan))
            }
            Err(error) => {
                self.send_failure(&mailbox, Failure::from(&error));
                Err(error)
            }
        }
    }

    /// Returns the reason why the peer's user may not make this request.
    pub(super) fn denied(&self) -> Option<String> {
        rights::denied(self.user(), &self.open()?.request)
    }

    pub(super) fn refuse(mut self, failure: Failure) {
        if let Some((_, mailbox)) = self.parts.take() {
            self.send_failure(&mailbox, failure);
        }
    }

    fn send_failure(&self, mailbox: &Mailbox, failure: Failure) {
        let transfer = Some(mailbox.number);
        self.cx.control.send(Message::Cancel { transfer, failure });
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((_, mailbox)) = self.parts.take() {
            self.send_failure(&mailbox, refused("such requests are not answered here"));
        }
    }
}

pub(super) fn refused(reason: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Refused, reason)
}
