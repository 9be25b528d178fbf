//! The router half of an algorithm, and what is the same for all of them: the clock, and a router's own account.
//!
//! Model:       a packet that comes to the queue is offered load, whatever the queue does with it; one that
//!              leaves for the wire takes the router's word along. Control intervals end at the first of
//!              these two at or after their time, so a router needs no timer.
//! Invariants:  only headers of the algorithm's own form are shown to it; all else is load without a header.

use std::fmt;

use sabul_units::{Bytes, CongestionFields, CongestionForm, CongestionHeader, Instant, Rate, Span};

use crate::params::{ConfigError, ParamSpec, ParamValues};

/// Ours: intervals that are made up for after silence. What a law has not become by then it never will.
const CATCH_UP: u32 = 10_000;
/// Ours: no interval is shorter, or a router would do nothing but end them.
const INTERVAL_MIN: Span = Span::from_micros(100);

/// The output link of a router at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The clock that drives the link.
    pub now: Instant,
    /// When the control interval ends.
    pub ends: Instant,
    /// The rate of its serialiser, framing included.
    pub capacity: Rate,
    /// Bytes that wait for it.
    pub queue: Bytes,
}

impl LinkState {
    /// How long the queue takes to drain.
    pub fn queue_delay(&self) -> Span {
        self.capacity.time_for(self.queue)
    }
}

/// The router half of an algorithm: what one output link makes of the headers that cross it.
///
/// Sizes are what a packet takes of the link's rate. Where a packet has no header of the algorithm's form there
/// are no fields.
pub trait RouterController: fmt::Debug + Send {
    /// A packet comes to the queue, and may yet be dropped there.
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, link: &LinkState);
    /// A packet with a header leaves for the wire: the last chance to rewrite it.
    fn on_departure(&mut self, size: Bytes, fields: &mut CongestionFields, link: &LinkState);
    /// A control interval has ended, after this long.
    fn on_interval(&mut self, elapsed: Span, link: &LinkState);
    /// How long the next control interval is.
    fn interval(&self) -> Span;
    /// The rate or share that it tells now, in bit/s, for whoever watches; none where the law has no such thing.
    fn told(&self) -> Option<Rate> {
        None
    }
}

/// Makes a router half for a link of that rate, which goes by that number among routers: never 0.
pub type BuildRouter =
    fn(&ParamValues, Rate, u32) -> Result<Box<dyn RouterController>, ConfigError>;

/// One router half.
#[derive(Clone, Copy, Debug)]
pub struct RouterEntry {
    /// The name users type, which is that of the host half.
    pub name: &'static str,
    /// The form of the headers that it rewrites.
    pub form: CongestionForm,
    /// Its parameters.
    pub params: &'static [ParamSpec],
    /// Makes one from checked parameters.
    pub build: BuildRouter,
}

impl RouterEntry {
    /// The router of an output link.
    ///
    /// # Errors
    /// On an unknown parameter or a value out of its range.
    pub fn router(
        &self,
        params: &[(String, String)],
        capacity: Rate,
        id: u32,
    ) -> Result<Router, ConfigError> {
        let values = ParamValues::check(self.name, self.params, params)?;
        Ok(Router::new((self.build)(&values, capacity, id.max(1))?, self.form, capacity))
    }
}

/// What a router has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Packets that came with a header of its form.
    pub with_header: u64,
    /// Those that came without.
    pub without: u64,
    /// Headers that it has written.
    pub written: u64,
}

/// A router half with its clock.
#[derive(Debug)]
pub struct Router {
    law: Box<dyn RouterController>,
    form: CongestionForm,
    capacity: Rate,
    began: Instant,
    ends: Instant,
    stats: RouterStats,
}

impl Router {
    /// The router of an output link of that capacity, at the start of its clock.
    pub fn new(law: Box<dyn RouterController>, form: CongestionForm, capacity: Rate) -> Self {
        let ends = Instant::ZERO + law.interval().max(INTERVAL_MIN);
        let stats = RouterStats::default();
        Self { law, form, capacity, began: Instant::ZERO, ends, stats }
    }

    /// What the link carries for these flows has changed, from the next packet on; at least a bit a second.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = Rate(capacity.0.max(1));
    }

    /// What it shares out now.
    pub const fn capacity(&self) -> Rate {
        self.capacity
    }

    /// The form of the headers that it rewrites.
    pub const fn form(&self) -> CongestionForm {
        self.form
    }

    /// A packet of that size comes to a queue of so many bytes.
    pub fn arrived(
        &mut self,
        now: Instant,
        size: Bytes,
        queue: Bytes,
        header: Option<&mut CongestionHeader>,
    ) {
        let link = self.turn(now, queue);
        let header = header.filter(|header| header.fields.form() == self.form);
        let Some(header) = header else {
            self.stats.without += 1;
            return self.law.on_arrival(size, None, &link);
        };
        self.stats.with_header += 1;
        header.queued += link.queue_delay();
        self.law.on_arrival(size, Some(&header.fields), &link);
    }

    /// A packet of that size leaves for the wire, and so many bytes stay behind.
    pub fn departs(
        &mut self,
        now: Instant,
        size: Bytes,
        queue: Bytes,
        header: Option<&mut CongestionHeader>,
    ) {
        let link = self.turn(now, queue);
        let header = header.filter(|header| header.fields.form() == self.form);
        if let Some(header) = header {
            self.stats.written += 1;
            header.routers = header.routers.saturating_add(1);
            self.law.on_departure(size, &mut header.fields, &link);
        }
    }

    /// What it has seen.
    pub const fn stats(&self) -> RouterStats {
        self.stats
    }

    /// The rate that it tells now, where its law has one.
    pub fn told(&self) -> Option<Rate> {
        self.law.told()
    }

    /// Ends the intervals that are over.
    #[inline]
    fn turn(&mut self, now: Instant, queue: Bytes) -> LinkState {
        if now >= self.ends {
            self.end_intervals(now, queue);
        }
        self.link(now, queue)
    }

    #[inline]
    const fn link(&self, now: Instant, queue: Bytes) -> LinkState {
        LinkState { now, ends: self.ends, capacity: self.capacity, queue }
    }

    #[cold]
    fn end_intervals(&mut self, now: Instant, queue: Bytes) {
        for _ in 0..CATCH_UP {
            if now < self.ends {
                return;
            }
            let link = self.link(now, queue);
            self.law.on_interval(self.ends.since(self.began), &link);
            self.began = self.ends;
            self.ends = self.began + self.law.interval().max(INTERVAL_MIN);
        }
        self.began = now;
        self.ends = now + self.law.interval().max(INTERVAL_MIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Notes how long intervals were, and what came.
    #[derive(Debug, Default)]
    struct Noted(Arc<Mutex<Vec<String>>>);

    impl RouterController for Noted {
        fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, _: &LinkState) {
            self.0.lock().unwrap().push(format!("{} {}", size.0, fields.is_some()));
        }
        fn on_departure(&mut self, _: Bytes, fields: &mut CongestionFields, _: &LinkState) {
            *fields = CongestionFields::Own([9; 4]);
        }
        fn on_interval(&mut self, elapsed: Span, _: &LinkState) {
            self.0.lock().unwrap().push(format!("{} ms", elapsed.as_millis_f64()));
        }
        fn interval(&self) -> Span {
            Span::from_millis(10)
        }
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn intervals_end_late_but_at_their_own_time_and_strangers_are_load_alone() {
        let noted = Arc::default();
        let law = Box::new(Noted(Arc::clone(&noted)));
        let mut router = Router::new(law, CongestionForm::Own, Rate::from_mbps(12));
        let mut own = CongestionHeader::new(CongestionForm::Own.blank());
        let mut other = CongestionHeader::new(CongestionForm::Rcp.blank());
        // 3000 bytes at 12 Mb/s are 2 ms.
        router.arrived(at_ms(1), Bytes(100), Bytes(3000), Some(&mut own));
        router.arrived(at_ms(25), Bytes(200), Bytes(0), Some(&mut other));
        router.arrived(at_ms(25), Bytes(300), Bytes(0), None);
        router.departs(at_ms(25), Bytes(100), Bytes(0), Some(&mut own));
        router.departs(at_ms(25), Bytes(200), Bytes(0), Some(&mut other));
        router.departs(at_ms(25), Bytes(300), Bytes(0), None);
        let noted = noted.lock().unwrap();
        assert_eq!(*noted, ["100 true", "10 ms", "10 ms", "200 false", "300 false"]);
        let fields = CongestionFields::Own([9; 4]);
        let told = CongestionHeader { routers: 1, queued: Span::from_millis(2), fields };
        assert_eq!(own, told);
        assert_eq!(other, CongestionHeader::new(CongestionForm::Rcp.blank()));
        assert_eq!(router.stats(), RouterStats { with_header: 1, without: 2, written: 1 });
    }

    #[test]
    fn a_long_silence_is_made_up_for_in_bounded_time() {
        let noted = Arc::default();
        let law = Box::new(Noted(Arc::clone(&noted)));
        let mut router = Router::new(law, CongestionForm::Own, Rate::from_mbps(12));
        router.arrived(at_ms(1_000_000_000), Bytes(1), Bytes(0), None);
        assert_eq!(noted.lock().unwrap().len(), CATCH_UP as usize + 1);
    }
}
