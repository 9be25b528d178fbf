//! Router interface of explicit congestion control: the trait of an algorithm's router half, its
//! registry entry, and the clock and statistics common to all algorithms.
//!
//! A program's own algorithm implements [`RouterController`] and describes itself by a
//! [`RouterEntry`]. A link of the simulator, of the lab or of `sabul router` owns a [`Router`].
//!
//! Model:       a packet that arrives at the queue counts as offered load, even if it is dropped. A
//!              packet that leaves for the wire receives the router's feedback. A control interval
//!              ends at the first such event at or after its end, so a router needs no timer.
//! Invariants:  an algorithm receives only headers of its own form; other packets are load without
//!              a header.

use std::fmt;

use sabul_units::{Bytes, CongestionFields, CongestionForm, CongestionHeader, Instant, Rate, Span};

use crate::params::{ConfigError, ParamSpec, ParamValues};

/// Ours: most missed intervals that are processed after a pause; laws have converged by then.
const CATCH_UP: u32 = 10_000;
/// Ours: shortest interval; with shorter intervals a router would do nothing but end them.
const INTERVAL_MIN: Span = Span::from_micros(100);

/// State of a router's output link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Time on the link's clock.
    pub now: Instant,
    /// End of the control interval.
    pub ends: Instant,
    /// Rate of the link's serialiser, framing included.
    pub capacity: Rate,
    /// Bytes in the queue.
    pub queue: Bytes,
}

impl LinkState {
    /// Returns the time to drain the queue.
    pub fn queue_delay(&self) -> Span {
        self.capacity.time_for(self.queue)
    }
}

/// Router half of an algorithm, for one output link.
///
/// Sizes are those on the link, framing included. Packets without a header of the algorithm's form
/// have no fields.
pub trait RouterController: fmt::Debug + Send {
    /// A packet arrives at the queue, and may be dropped there.
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, link: &LinkState);
    /// A packet with a header leaves for the wire: last opportunity to rewrite the header.
    fn on_departure(&mut self, size: Bytes, fields: &mut CongestionFields, link: &LinkState);
    /// A control interval of this length has ended.
    fn on_interval(&mut self, elapsed: Span, link: &LinkState);
    /// Returns the length of the next control interval.
    fn interval(&self) -> Span;
    /// Returns the rate or share that the router signals now, in bit/s, for observers; `None` if
    /// the law has no such value.
    fn signalled_rate(&self) -> Option<Rate> {
        None
    }
}

/// Constructor of a router half for a link of this rate; the last argument is the router's number,
/// never 0.
pub type BuildRouter =
    fn(&ParamValues, Rate, u32) -> Result<Box<dyn RouterController>, ConfigError>;

/// Registry entry of a router half.
#[derive(Clone, Copy, Debug)]
pub struct RouterEntry {
    /// Name that users type; built-in algorithms have the name of their host half.
    pub name: &'static str,
    /// Form of the headers that the router rewrites.
    pub form: CongestionForm,
    /// Parameters of the router half.
    pub params: &'static [ParamSpec],
    /// Builds a router half from checked parameters.
    pub build: BuildRouter,
}

impl RouterEntry {
    /// Builds the router of an output link.
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

/// Packet counts of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Packets that arrived with a header of the router's form.
    pub with_header: u64,
    /// Packets that arrived without such a header.
    pub without: u64,
    /// Headers that the router has written.
    pub written: u64,
}

/// Router half with its clock and statistics.
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
    /// Creates the router of an output link with this capacity, at time zero.
    pub fn new(law: Box<dyn RouterController>, form: CongestionForm, capacity: Rate) -> Self {
        let ends = Instant::ZERO + law.interval().max(INTERVAL_MIN);
        let stats = RouterStats::default();
        Self { law, form, capacity, began: Instant::ZERO, ends, stats }
    }

    /// Changes the capacity from the next packet on; at least one bit a second.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = Rate(capacity.0.max(1));
    }

    /// Returns the capacity that the router shares out.
    pub const fn capacity(&self) -> Rate {
        self.capacity
    }

    /// Returns the form of the headers that the router rewrites.
    pub const fn form(&self) -> CongestionForm {
        self.form
    }

    /// Processes a packet of this size that arrives at a queue of `queue` bytes.
    pub fn arrived(
        &mut self,
        now: Instant,
        size: Bytes,
        queue: Bytes,
        header: Option<&mut CongestionHeader>,
    ) {
        let link = self.advance(now, queue);
        let header = header.filter(|header| header.fields.form() == self.form);
        let Some(header) = header else {
            self.stats.without += 1;
            return self.law.on_arrival(size, None, &link);
        };
        self.stats.with_header += 1;
        header.queued += link.queue_delay();
        self.law.on_arrival(size, Some(&header.fields), &link);
    }

    /// Processes a packet of this size that leaves for the wire; `queue` bytes remain.
    pub fn departs(
        &mut self,
        now: Instant,
        size: Bytes,
        queue: Bytes,
        header: Option<&mut CongestionHeader>,
    ) {
        let link = self.advance(now, queue);
        let header = header.filter(|header| header.fields.form() == self.form);
        if let Some(header) = header {
            self.stats.written += 1;
            header.routers = header.routers.saturating_add(1);
            self.law.on_departure(size, &mut header.fields, &link);
        }
    }

    /// Returns the packet counts.
    pub const fn stats(&self) -> RouterStats {
        self.stats
    }

    /// Returns the rate that the router signals now, if its law has one.
    pub fn signalled_rate(&self) -> Option<Rate> {
        self.law.signalled_rate()
    }

    /// Ends the intervals that are over.
    #[inline]
    fn advance(&mut self, now: Instant, queue: Bytes) -> LinkState {
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

    /// Records interval lengths and arrivals.
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
    fn late_intervals_keep_their_times_and_foreign_headers_count_only_as_load() {
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
        let signalled = CongestionHeader { routers: 1, queued: Span::from_millis(2), fields };
        assert_eq!(own, signalled);
        assert_eq!(other, CongestionHeader::new(CongestionForm::Rcp.blank()));
        assert_eq!(router.stats(), RouterStats { with_header: 1, without: 2, written: 1 });
    }

    #[test]
    fn intervals_missed_in_a_long_idle_period_take_bounded_time() {
        let noted = Arc::default();
        let law = Box::new(Noted(Arc::clone(&noted)));
        let mut router = Router::new(law, CongestionForm::Own, Rate::from_mbps(12));
        router.arrived(at_ms(1_000_000_000), Bytes(1), Bytes(0), None);
        assert_eq!(noted.lock().unwrap().len(), CATCH_UP as usize + 1);
    }
}
