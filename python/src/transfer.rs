//! A running transfer: its progress, its end, its report.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use sabul::internal::AggregateInterval;
use sabul::{Progress, Rate, Report, TransferHandle, TransferOptions};
use sabul_front::json::{IntervalJson, TransferJson};
use sabul_front::progress_line::MinimumRate;
use serde_json::{Value, json};

use crate::error::Fault;
use crate::runtime::{OfProcess, run};

/// Length of the intervals in a report of a measurement, in seconds.
const INTERVAL_S: f64 = 1.0;
/// Longest time between two checks of the minimum rate, and between two results of [`Transfer::changed`].
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A running transfer. A dropped object cancels the transfer.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Transfer {
    inner: OfProcess<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    running: Arc<tokio::sync::Mutex<Option<sabul::Transfer>>>,
    handle: TransferHandle,
    controller: String,
    minimum: Option<Arc<Mutex<MinimumRate>>>,
}

impl Transfer {
    pub(crate) fn new(
        transfer: sabul::Transfer,
        options: &TransferOptions,
        min_rate_bps: Option<u64>,
    ) -> Self {
        let minimum = min_rate_bps.map(|rate| Arc::new(Mutex::new(MinimumRate::new(Rate(rate)))));
        let (handle, controller) = (transfer.handle(), options.controller.clone());
        let running = Arc::new(tokio::sync::Mutex::new(Some(transfer)));
        Self { inner: OfProcess::new(Inner { running, handle, controller, minimum }) }
    }
}

#[pymethods]
impl Transfer {
    /// Returns the present progress as JSON.
    fn progress(&self) -> PyResult<String> {
        Ok(progress_json(&self.inner.get()?.handle.progress()).to_string())
    }

    /// Waits for a change, at least 0.1 s and at most 1 s, and returns the progress as JSON; `None` at the end.
    fn changed<'py>(&self, py: Python<'py>, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner.get()?.clone();
        run(py, waits, async move { inner.changed().await })
    }

    /// Waits for the end and returns the report as JSON.
    fn finish<'py>(&self, py: Python<'py>, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner.get()?.clone();
        run(py, waits, async move { inner.finish().await })
    }

    /// Cancels the transfer.
    fn cancel(&self) -> PyResult<()> {
        self.inner.get()?.handle.cancel();
        Ok(())
    }
}

impl Inner {
    async fn changed(&self) -> Result<Option<String>, Fault> {
        let mut running = self.running.lock().await;
        let Some(transfer) = running.as_mut().filter(|it| !it.progress().is_finished) else {
            return Ok(None);
        };
        // In an outage nothing changes, and the rate is checked all the same.
        let _ = tokio::time::timeout(CHECK_INTERVAL, transfer.changed()).await;
        let progress = transfer.progress();
        self.check_rate(&progress)?;
        Ok((!progress.is_finished).then(|| progress_json(&progress).to_string()))
    }

    async fn finish(&self) -> Result<String, Fault> {
        if self.minimum.is_some() {
            while self.changed().await?.is_some() {}
        }
        let transfer = self.running.lock().await.take();
        let transfer = transfer
            .ok_or_else(|| Fault::usage("the report of this transfer was returned already"))?;
        let report = transfer.finish().await?;
        Ok(report_json(&self.controller, &report).to_string())
    }

    /// Fails and cancels the transfer if it is slower than its minimum rate.
    fn check_rate(&self, progress: &Progress) -> Result<(), Fault> {
        let Some(minimum) = self.minimum.as_ref().filter(|_| progress.place.is_none()) else {
            return Ok(());
        };
        let mut minimum = minimum.lock().unwrap_or_else(PoisonError::into_inner);
        let at = progress.elapsed.saturating_sub(progress.waited);
        let new = progress.bytes.saturating_sub(progress.bytes_resumed);
        match minimum.update(at, new, progress.bytes_total) {
            Some(rate) => {
                self.handle.cancel();
                Err(Fault::too_slow(minimum.verdict(rate, &progress.channel)))
            }
            None => Ok(()),
        }
    }
}

/// Returns the fields of a progress line of the program, without those of the interval.
fn progress_json(progress: &Progress) -> Value {
    let ahead = progress.ahead;
    json!({
        "bytes": progress.bytes,
        "resumed_bytes": progress.bytes_resumed,
        "durable_bytes": progress.bytes_durable,
        "bytes_total": progress.bytes_total.or(ahead.map(|totals| totals.bytes)),
        "files": progress.files,
        "entries": progress.entries,
        "entries_total": progress.entries_total.or(ahead.map(|totals| totals.entries)),
        "failed": progress.entries_failed,
        "is_total_certain": progress.bytes_total.is_some() || ahead.is_some_and(|totals| totals.is_all),
        "seconds": progress.elapsed.as_secs_f64(),
        "place": progress.place,
        "rtt_ms": progress.channel.rtt_ms,
        "loss_rate": progress.channel.loss_rate(),
        "carrier": progress.channel.carrier,
    })
}

/// Returns the fields of the document of `cp --json`, and the intervals of a measurement.
fn report_json(controller: &str, report: &Report) -> Value {
    let intervals = AggregateInterval::of_all(std::slice::from_ref(report), INTERVAL_S);
    let intervals: Vec<_> = intervals.into_iter().map(IntervalJson::from).collect();
    json!({ "report": TransferJson::of_report(controller, report), "intervals": intervals })
}
