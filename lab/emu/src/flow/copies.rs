//! Start and stop of a flow's copies.

use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};
use sabul_run::traffic::Traffic;
use sabul_units::Instant;
use tokio::time::sleep_until;

use super::task::Task;
use crate::clock::Clock;

/// One copy of a flow, at its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Number from 0, in the order of starts.
    pub(super) number: u64,
    /// Bytes to send; `None` for an endless copy.
    pub(super) bytes: Option<u64>,
}

/// Runs the copies of a plan until the earliest of these: the plan's stop, the end of the run, the
/// end of all copies, an order to quit. `run` runs one copy to the copy's own end. `at_end` is called
/// before the copies still running are dropped.
///
/// # Errors
/// The failure of the first copy that fails.
pub(super) async fn run<F: Future<Output = Result<(), String>>>(
    task: &mut Task,
    clock: Clock,
    end: Instant,
    run: impl Fn(Copy) -> F,
    at_end: impl FnOnce(),
) -> Result<(), String> {
    let stop = task.plan.stop.map_or(end, |stop| stop.min(end));
    let mut traffic = Traffic::new(&task.plan, end, &task.random);
    let mut running = FuturesUnordered::new();
    let mut number = 0;
    let when = |at| clock.moment(at).into();
    let result = loop {
        let next = traffic.next_at().filter(|at| *at < stop);
        if next.is_none() && running.is_empty() {
            break Ok(());
        }
        tokio::select! {
            biased;
            () = task.quit() => break Ok(()),
            () = sleep_until(when(stop)) => break Ok(()),
            () = sleep_until(when(next.unwrap_or(stop))), if next.is_some() => {
                let bytes = traffic.take();
                running.push(run(Copy { number, bytes }));
                number += 1;
            }
            Some(result) = running.next(), if !running.is_empty() => {
                if result.is_err() {
                    break result;
                }
                traffic.note_end(clock.now());
            }
        }
    };
    at_end();
    result
}
