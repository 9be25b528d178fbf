//! Parallel execution of runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPoolBuilder;
use rayon::iter::{
    IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _,
};

use crate::read::Run;

/// Calls `work` for each run, on `threads` threads or one thread per processor.
///
/// Results are in the order of the runs, for any number of threads. A panic in `work` propagates
/// after the other threads have finished their current runs.
pub fn run_all<T: Send>(
    runs: &[Run],
    threads: Option<usize>,
    work: impl Fn(&Run) -> T + Sync,
) -> Vec<T> {
    run_all_with_progress(runs, threads, |_| {}, work)
}

/// Same as [`run_all`]; also calls `progress` with the number of finished runs after each run.
///
/// The worker threads call `progress` once for each count from 1 to the number of runs, possibly
/// out of order.
pub fn run_all_with_progress<R: Sync, T: Send>(
    runs: &[R],
    threads: Option<usize>,
    progress: impl Fn(usize) + Sync,
    work: impl Fn(&R) -> T + Sync,
) -> Vec<T> {
    let done = AtomicUsize::new(0);
    let one = |run: &R| {
        let answer = work(run);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        answer
    };
    let is_single = runs.len() < 2 || threads == Some(1);
    // Zero means one thread per processor to rayon.
    let pool = ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    match pool {
        // One run per task, because long runs are often neighbours.
        Ok(pool) if !is_single => {
            pool.install(|| runs.par_iter().with_max_len(1).map(one).collect())
        }
        // A single thread, or the thread pool could not be created.
        _ => runs.iter().map(one).collect(),
    }
}
