//! Router session: a router with kernel counters, notices for the user, and the Prometheus
//! endpoint.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use sabul_units::{count, show_bytes, show_rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::endpoint::{Endpoint, metrics};
use crate::error::RouterError;
use crate::kernel::{Kernel, KernelSnapshot};
use crate::router::Router;
use crate::settings::Settings;
use crate::snapshot::RouterSnapshot;
use crate::watch::{Notice, Watch};

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Link and algorithm.
    pub settings: Settings,
    /// Device where traffic to be paced enters.
    pub near: String,
    /// Device where paced traffic leaves.
    pub far: String,
    /// Device by which traffic leaves the machine; its own queue is watched.
    pub uplink: Option<String>,
    /// Address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
}

/// State of a session: one line of JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Counters of the router.
    #[serde(flatten)]
    pub snapshot: RouterSnapshot,
    /// Rate sent by both classes since the previous line, in bit/s.
    pub sent_bps: u64,
    /// Frames that the kernel dropped before the router could read them.
    pub missed_frames: u64,
    /// Bytes in the own queue of the link behind the router, if watched.
    pub uplink_queue_bytes: Option<u64>,
}

/// A running router session.
#[derive(Debug)]
pub struct Session {
    router: Router,
    kernel: Kernel,
    watch: Watch,
    endpoint: Option<Endpoint>,
    /// Counters for the endpoint.
    published: Arc<Mutex<(RouterSnapshot, KernelSnapshot)>>,
    before: RouterSnapshot,
}

impl Session {
    /// Creates the devices and starts forwarding.
    ///
    /// # Errors
    /// If a setting is outside its range, a device or address is not available, or the system
    /// fails.
    pub fn start(plan: &SessionPlan) -> Result<Self, RouterError> {
        let published = Arc::<Mutex<(RouterSnapshot, KernelSnapshot)>>::default();
        let theirs = Arc::clone(&published);
        // Before the devices: a mistyped address must not create and remove devices that routes
        // point to.
        let endpoint = plan.metrics.map(|address| {
            Endpoint::start(address, move || {
                let (snapshot, kernel) =
                    theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                metrics(&snapshot, &kernel)
            })
        });
        let endpoint = endpoint.transpose()?;
        let router = Router::start(&plan.settings, &plan.near, &plan.far)?;
        let kernel = Kernel::open(&plan.near, plan.uplink.as_deref())?;
        let (watch, before) = (Watch::default(), RouterSnapshot::default());
        Ok(Self { router, kernel, watch, endpoint, published, before })
    }

    /// Returns the address of the Prometheus endpoint.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Returns whether the router still forwards.
    pub fn is_running(&self) -> bool {
        self.router.is_running()
    }

    /// Returns the current state and new notices; to be called once a second.
    pub fn second(&mut self) -> (Line, Vec<Notice>) {
        let (snapshot, kernel) = (self.router.snapshot(), self.kernel.snapshot());
        let notices = self.watch.see(&snapshot, &kernel);
        let line = Line {
            sent_bps: snapshot.sent_since(&self.before).0,
            missed_frames: kernel.missed_frames,
            uplink_queue_bytes: kernel.uplink.map(|queue| queue.waiting_bytes),
            snapshot: snapshot.clone(),
        };
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = (snapshot.clone(), kernel);
        self.before = snapshot;
        (line, notices)
    }

    /// Stops the router and returns a summary.
    ///
    /// # Errors
    /// If the router had ended by itself.
    pub fn finish(self) -> Result<Summary, RouterError> {
        let kernel = self.kernel.snapshot();
        Ok(Summary { snapshot: self.router.stop()?, missed_frames: kernel.missed_frames })
    }
}

/// Summary of a router's work, in a few lines of text.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    snapshot: RouterSnapshot,
    missed_frames: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = &self.snapshot;
        let bps = if snapshot.at_s > 0.0 {
            snapshot.sent_bytes() as f64 * 8.0 / snapshot.at_s
        } else {
            0.0
        };
        writeln!(
            f,
            "{:.0} s, {} of {}",
            snapshot.at_s,
            show_rate(bps),
            show_rate(snapshot.rate_bps as f64)
        )?;
        for (name, class) in [("explicit", &snapshot.explicit), ("plain", &snapshot.plain)] {
            writeln!(
                f,
                "{name}: {} ({}) sent, {} dropped, at most {} waited",
                count(class.sent_packets, "packet"),
                show_bytes(class.sent_bytes),
                class.dropped_packets,
                show_bytes(class.queue_max_bytes),
            )?;
        }
        let cost = snapshot.cpu_seconds * 1e6 / snapshot.sent_packets().max(1) as f64;
        write!(
            f,
            "headers: {} written, {} later, {} of other algorithms\n\
             back: {} ({})\n\
             processor: {:.1} s, {cost:.2} us a packet; at most {:.2} ms late; {} missed",
            snapshot.headers_written,
            snapshot.headers_later,
            snapshot.headers_foreign,
            count(snapshot.back_frames, "frame"),
            show_bytes(snapshot.back_bytes),
            snapshot.cpu_seconds,
            snapshot.late_max_ms,
            self.missed_frames,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::testing::settings;

    fn plan(uplink: Option<&str>) -> SessionPlan {
        SessionPlan {
            settings: settings(),
            near: "sabul-near".to_owned(),
            far: "sabul-near".to_owned(),
            uplink: uplink.map(str::to_owned),
            metrics: None,
        }
    }

    #[test]
    fn a_device_given_twice_or_a_zero_rate_is_refused_before_setup() {
        let text = Session::start(&plan(None)).unwrap_err().to_string();
        assert!(text.contains("--device cannot be 'sabul-near' twice"), "{text}");
        let no_rate = SessionPlan {
            settings: Settings { rate: sabul_units::Rate(0), ..settings() },
            ..plan(None)
        };
        assert!(Session::start(&no_rate).unwrap_err().to_string().contains("--rate-mbps"));
    }

    #[test]
    fn a_summary_shows_both_classes_and_the_cost_per_packet() {
        let mut snapshot =
            RouterSnapshot { at_s: 10.0, rate_bps: 100_000_000, ..RouterSnapshot::default() };
        snapshot.explicit.sent_packets = 1_000;
        snapshot.explicit.sent_bytes = 1_250_000;
        snapshot.cpu_seconds = 0.003;
        let text = Summary { snapshot, missed_frames: 2 }.to_string();
        assert!(text.starts_with("10 s, 1.0 Mbit/s of 100"), "{text}");
        assert!(
            text.contains("explicit: 1000 packets") || text.contains("explicit: 1,000"),
            "{text}"
        );
        assert!(text.contains("3.00 us a packet") && text.ends_with("2 missed"), "{text}");
    }
}
