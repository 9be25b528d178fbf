//! Congestion controllers written in Python, for the simulator.
//!
//! [`register`] adds a name to the controllers of the simulator. Each flow then has an instance of the Python class,
//! behind [`Scripted`]. An event takes the GIL once: for the method of the event and for `limits`.
//!
//! A method that raises an exception leaves a window of 0 packets, which the guard of each controller rejects, so the
//! run ends. [`watched`] returns the exception to the thread of the run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use sabul_cc::{ConfigError, Context, Controller, ParamValues, SendLimits};
use sabul_lab_cc::registry::{self, Entry, Family};
use sabul_units::{Bytes, Gap, Instant, Packets, Span};

use crate::error::Fault;

/// Ours: the largest window, as of the parameters of built-in controllers.
const WINDOW_MAX: f64 = 1e9;
/// Longest gap that the guard of each controller accepts, in seconds.
const GAP_MAX: f64 = 60.0;
/// Limits that the guard rejects.
const UNUSABLE: SendLimits =
    SendLimits { gap: Gap::NONE, window: Some(Packets(0)), hold_until: None };

/// Ours: most milliseconds for which the end of the interpreter waits for methods of controllers.
const END_WAIT_MS: u32 = 2000;

/// Set before the interpreter ends.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Threads of simulations that run Python code or wait for the GIL.
static IN_PYTHON: AtomicUsize = AtomicUsize::new(0);

/// Callables that make the controllers of a name. Locked only by threads that hold the GIL.
static MAKERS: Mutex<BTreeMap<String, Py<PyAny>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The run of this thread.
    static RUN: RefCell<RunState> = RefCell::default();
}

#[derive(Default)]
struct RunState {
    /// Set once nobody waits for the results.
    stopped: Arc<AtomicBool>,
    /// The first failure of a controller.
    failure: Option<Failure>,
}

/// An exception in a method of a controller.
#[derive(Debug)]
pub(crate) struct Failure {
    controller: String,
    method: &'static str,
    at: Instant,
    message: String,
    error: Box<PyErr>,
}

impl Failure {
    /// Returns the error of the operation that `what` names.
    pub(crate) fn into_fault(self, what: &str) -> Fault {
        let Self { controller, method, at, message, error } = self;
        let at = at.elapsed().as_secs_f64();
        Fault::failed(format!(
            "{what}: controller '{controller}' is at fault: after {at:.3} s its {method} raised {message}"
        ))
        .after(error)
    }
}

/// Does some work of a simulation, in which controllers stop once `stopped` is set.
///
/// # Errors
/// The first failure of a controller in Python.
pub(crate) fn watched<T>(
    stopped: &Arc<AtomicBool>,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    let run = RunState { stopped: Arc::clone(stopped), failure: None };
    let outer = RUN.replace(run);
    let result = work();
    RUN.replace(outer).failure.map_or(Ok(result), Err)
}

/// Adds a controller to those of the simulator. `make` returns a new controller for each flow.
#[pyfunction]
pub(crate) fn register(name: &str, make: Bound<'_, PyAny>) -> PyResult<()> {
    if !make.is_callable() {
        let what = make.get_type().name()?;
        let message = format!(
            "controller '{name}' has the type {what}; pass a class, or a function that makes controllers"
        );
        return Err(PyTypeError::new_err(message));
    }
    let mut makers = MAKERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A window at all times, which TCP hosts need, and pacing where a gap is set.
    let entry = Entry::new(name.to_owned().leak(), Family::PacedWindow, build)
        .summary("Controller in Python")
        .source("Python");
    registry::add_simulated(entry).map_err(|error| Fault::usage(error.to_string()))?;
    makers.insert(name.to_owned(), make.unbind());
    Ok(())
}

fn build(values: &ParamValues, _packet: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Scripted::new(values.controller())))
}

/// Events of a controller, in the order of [`METHODS`].
#[derive(Clone, Copy)]
enum Event {
    Ack,
    Loss,
    Timeout,
    Interval,
}

const METHODS: [&str; 4] = ["on_ack", "on_loss", "on_timeout", "on_interval"];

/// A controller in Python.
#[derive(Debug)]
struct Scripted {
    name: String,
    /// The method `limits`; `None` after a failure.
    read: Option<Py<PyAny>>,
    /// A method for each event, if the class has the method.
    methods: [Option<Py<PyAny>>; METHODS.len()],
    /// Limits after the newest event.
    limits: SendLimits,
}

impl Scripted {
    fn new(name: &str) -> Self {
        let mut new = Self {
            name: name.to_owned(),
            read: None,
            methods: Default::default(),
            limits: UNUSABLE,
        };
        new.step(Instant::ZERO, |new, py| new.make(py));
        new
    }

    /// Makes the Python object, and returns the first limits.
    fn make(&mut self, py: Python<'_>) -> Result<SendLimits, (&'static str, PyErr)> {
        let make = {
            let makers = MAKERS.lock().unwrap_or_else(PoisonError::into_inner);
            makers.get(&self.name).map(|make| make.clone_ref(py))
        };
        let make = make.expect("`register` adds name and callable together");
        let of_method = |method| move |error| (method, error);
        let object = make.bind(py).call0().map_err(of_method("constructor"))?;
        self.read = Some(object.getattr("limits").map_err(of_method("limits"))?.unbind());
        for (slot, method) in self.methods.iter_mut().zip(METHODS) {
            let found = object.getattr_opt(method).map_err(of_method(method))?;
            *slot = found.map(Bound::unbind);
        }
        self.read(py)
    }

    /// Calls `limits`.
    fn read(&self, py: Python<'_>) -> Result<SendLimits, (&'static str, PyErr)> {
        let Some(read) = &self.read else { return Ok(UNUSABLE) };
        let limits = read.bind(py).call0().and_then(|value| {
            let limits = value.cast::<Limits>().map_err(|_| {
                let what = value.get_type();
                PyTypeError::new_err(format!("limits returned {what}, not sabul.sim.Limits"))
            })?;
            Ok(limits.get().to_send_limits())
        });
        limits.map_err(|error| ("limits", error))
    }

    /// Calls the method of an event, then `limits`. Without the method, the limits stay.
    fn pass<A>(&mut self, event: Event, now: Instant, arguments: A)
    where
        A: for<'py> PyCallArgs<'py>,
    {
        if self.methods[event as usize].is_none() {
            return;
        }
        self.step(now, |this, py| {
            if let Some(method) = &this.methods[event as usize] {
                let called = method.bind(py).call1(arguments);
                called.map_err(|error| (METHODS[event as usize], error))?;
            }
            this.read(py)
        });
    }

    /// Takes the GIL and does one step, whose limits apply from then on. Limits are unusable if the step fails, if the
    /// run is stopped, or while the interpreter ends.
    fn step(
        &mut self,
        now: Instant,
        step: impl FnOnce(&mut Self, Python<'_>) -> Result<SendLimits, (&'static str, PyErr)>,
    ) {
        self.limits = UNUSABLE;
        if RUN.with_borrow(|run| run.stopped.load(Ordering::Relaxed)) {
            return;
        }
        let done = in_python(|py| {
            step(self, py).map_err(|(method, error)| {
                let (controller, message) = (self.name.clone(), error.to_string());
                Failure { controller, method, at: now, message, error: Box::new(error) }
            })
        });
        match done {
            Some(Ok(limits)) => self.limits = limits,
            Some(Err(failure)) => RUN.with_borrow_mut(|run| {
                run.failure.get_or_insert(failure);
            }),
            None => {}
        }
    }
}

/// Runs `work` with the GIL; returns `None` if the interpreter ends.
fn in_python<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    IN_PYTHON.fetch_add(1, Ordering::SeqCst);
    let is_ending = IS_ENDING.load(Ordering::SeqCst);
    let result = if is_ending { None } else { Python::try_attach(work) };
    IN_PYTHON.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Stops all controllers before the interpreter ends. The end would otherwise unwind a thread that runs Python code,
/// and the process would abort.
#[pyfunction]
pub(crate) fn stop_controllers(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        for _ in 0..END_WAIT_MS {
            if IN_PYTHON.load(Ordering::SeqCst) == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
}

impl Controller for Scripted {
    fn limits(&self) -> SendLimits {
        self.limits
    }

    fn on_ack(&mut self, acked: &sabul_cc::Acked, cx: &mut Context<'_>) {
        self.pass(Event::Ack, cx.now, (Acked::new(acked, cx),));
    }

    fn on_loss(&mut self, loss: &sabul_cc::LossReport, cx: &mut Context<'_>) {
        self.pass(Event::Loss, cx.now, (LossReport::new(loss, cx),));
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.pass(Event::Timeout, cx.now, ());
    }

    fn on_interval(&mut self, report: &sabul_cc::IntervalReport, cx: &mut Context<'_>) {
        self.pass(Event::Interval, cx.now, (IntervalReport::new(report, cx),));
    }
}

/// Limits of a sender, which the method `limits` returns.
#[pyclass(frozen, eq, get_all, module = "sabul.sim")]
#[derive(Debug, PartialEq)]
pub(crate) struct Limits {
    window_packets: f64,
    gap_s: Option<f64>,
}

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (window_packets, gap_s=None))]
    fn new(window_packets: f64, gap_s: Option<f64>) -> PyResult<Self> {
        let refused = |key: &str, value: f64, allowed: &str| {
            Err(PyValueError::new_err(format!("{key}: {value} is not allowed; use {allowed}")))
        };
        if !(1.0..=WINDOW_MAX).contains(&window_packets) {
            return refused("window_packets", window_packets, "1 to 1e9 packets");
        }
        match gap_s {
            Some(gap) if !(0.0..=GAP_MAX).contains(&gap) => {
                refused("gap_s", gap, "0 to 60 s, or None")
            }
            _ => Ok(Self { window_packets, gap_s }),
        }
    }

    fn __repr__(&self) -> String {
        let gap = self.gap_s.map_or("None".to_owned(), |gap| gap.to_string());
        format!("Limits(window_packets={}, gap_s={gap})", self.window_packets)
    }
}

impl Limits {
    /// Returns the limits of the sender; a fraction of a packet does not count.
    fn to_send_limits(&self) -> SendLimits {
        let gap = self.gap_s.map_or(Gap::NONE, |gap| Gap(Span::from_secs_f64(gap)));
        SendLimits { gap, window: Some(Packets(self.window_packets as u64)), hold_until: None }
    }
}

fn seconds(now: Instant) -> f64 {
    now.elapsed().as_secs_f64()
}

/// State after an ACK that reports progress.
#[pyclass(frozen, get_all, module = "sabul.sim")]
#[derive(Debug)]
pub(crate) struct Acked {
    now_s: f64,
    rtt_s: Option<f64>,
    smoothed_rtt_s: Option<f64>,
    min_rtt_s: Option<f64>,
    packet_bytes: u64,
    packets: u64,
    total_packets: u64,
    in_flight_packets: u64,
    marked_packets: u64,
    cumulative_ack: u64,
    is_app_limited: bool,
    is_room_limited: bool,
}

impl Acked {
    fn new(acked: &sabul_cc::Acked, cx: &Context<'_>) -> Self {
        Self {
            now_s: seconds(cx.now),
            rtt_s: cx.rtt.map(|rtt| rtt.latest.as_secs_f64()),
            smoothed_rtt_s: cx.rtt.map(|rtt| rtt.smoothed.as_secs_f64()),
            min_rtt_s: cx.rtt.map(|rtt| rtt.min.as_secs_f64()),
            packet_bytes: cx.packet_bytes.0,
            packets: acked.newly.0,
            total_packets: acked.total.0,
            in_flight_packets: acked.in_flight.0,
            marked_packets: acked.marked.0,
            cumulative_ack: acked.cumulative_ack.0,
            is_app_limited: acked.is_app_limited,
            is_room_limited: acked.is_room_limited,
        }
    }
}

/// Loss report (NAK) from the receiver.
#[pyclass(frozen, get_all, module = "sabul.sim")]
#[derive(Debug)]
pub(crate) struct LossReport {
    now_s: f64,
    packets: u64,
    repeated_packets: u64,
    first_lost: u64,
    largest_sent: u64,
}

impl LossReport {
    fn new(loss: &sabul_cc::LossReport, cx: &Context<'_>) -> Self {
        Self {
            now_s: seconds(cx.now),
            packets: loss.first_time.0,
            repeated_packets: loss.repeats.0,
            first_lost: loss.first_lost.0,
            largest_sent: loss.largest_sent.0,
        }
    }
}

/// Counts of one SYN interval.
#[pyclass(frozen, get_all, module = "sabul.sim")]
#[derive(Debug)]
pub(crate) struct IntervalReport {
    now_s: f64,
    elapsed_s: f64,
    sent_packets: u64,
    resent_packets: u64,
    lost_packets: u64,
    is_below_rate: bool,
}

impl IntervalReport {
    fn new(report: &sabul_cc::IntervalReport, cx: &Context<'_>) -> Self {
        Self {
            now_s: seconds(cx.now),
            elapsed_s: report.elapsed.as_secs_f64(),
            sent_packets: report.sent.0,
            resent_packets: report.resent.0,
            lost_packets: report.lost.0,
            is_below_rate: report.is_below_rate,
        }
    }
}
