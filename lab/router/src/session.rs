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
use crate::kernel::{Kernel, KernelLook};
use crate::look::Look;
use crate::router::Router;
use crate::settings::Settings;
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
    pub look: Look,
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
    told: Arc<Mutex<(Look, KernelLook)>>,
    before: Look,
}

impl Session {
    /// Creates the devices and starts forwarding.
    ///
    /// # Errors
    /// If a setting is outside its range, a device or address is not available, or the system
    /// fails.
    pub fn start(plan: &SessionPlan) -> Result<Self, RouterError> {
        let told = Arc::<Mutex<(Look, KernelLook)>>::default();
        let theirs = Arc::clone(&told);
        // Before the devices: a mistyped address must not create and remove devices that routes
        // point to.
        let endpoint = plan.metrics.map(|address| {
            Endpoint::start(address, move || {
                let (look, kernel) = theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                metrics(&look, &kernel)
            })
        });
        let endpoint = endpoint.transpose()?;
        let router = Router::start(&plan.settings, &plan.near, &plan.far)?;
        let kernel = Kernel::open(&plan.near, plan.uplink.as_deref())?;
        let (watch, before) = (Watch::default(), Look::default());
        Ok(Self { router, kernel, watch, endpoint, told, before })
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
        let (look, kernel) = (self.router.look(), self.kernel.look());
        let notices = self.watch.see(&look, &kernel);
        let line = Line {
            sent_bps: look.sent_since(&self.before).0,
            missed_frames: kernel.missed_frames,
            uplink_queue_bytes: kernel.uplink.map(|queue| queue.waiting_bytes),
            look: look.clone(),
        };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = (look.clone(), kernel);
        self.before = look;
        (line, notices)
    }

    /// Stops the router and returns a summary.
    ///
    /// # Errors
    /// If the router had ended by itself.
    pub fn finish(self) -> Result<Summary, RouterError> {
        let kernel = self.kernel.look();
        Ok(Summary { look: self.router.stop()?, missed_frames: kernel.missed_frames })
    }
}

/// Summary of a router's work, in a few lines of text.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    look: Look,
    missed_frames: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let look = &self.look;
        let bps = if look.at_s > 0.0 { look.sent_bytes() as f64 * 8.0 / look.at_s } else { 0.0 };
        writeln!(
            f,
            "{:.0} s, {} of {}",
            look.at_s,
            show_rate(bps),
            show_rate(look.rate_bps as f64)
        )?;
        for (name, class) in [("explicit", &look.explicit), ("plain", &look.plain)] {
            writeln!(
                f,
                "{name}: {} ({}) sent, {} dropped, at most {} waited",
                count(class.sent_packets, "packet"),
                show_bytes(class.sent_bytes),
                class.dropped_packets,
                show_bytes(class.queue_max_bytes),
            )?;
        }
        let cost = look.cpu_seconds * 1e6 / look.sent_packets().max(1) as f64;
        write!(
            f,
            "headers: {} written, {} later, {} of other algorithms\n\
             back: {} ({})\n\
             processor: {:.1} s, {cost:.2} us a packet; at most {:.2} ms late; {} missed",
            look.headers_written,
            look.headers_later,
            look.headers_foreign,
            count(look.back_frames, "frame"),
            show_bytes(look.back_bytes),
            look.cpu_seconds,
            look.late_max_ms,
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
        let mut look = Look { at_s: 10.0, rate_bps: 100_000_000, ..Look::default() };
        look.explicit.sent_packets = 1_000;
        look.explicit.sent_bytes = 1_250_000;
        look.cpu_seconds = 0.003;
        let text = Summary { look, missed_frames: 2 }.to_string();
        assert!(text.starts_with("10 s, 1.0 Mbit/s of 100"), "{text}");
        assert!(
            text.contains("explicit: 1000 packets") || text.contains("explicit: 1,000"),
            "{text}"
        );
        assert!(text.contains("3.00 us a packet") && text.ends_with("2 missed"), "{text}");
    }
}
