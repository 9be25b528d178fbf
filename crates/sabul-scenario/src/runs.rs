//! Working off runs on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPoolBuilder;
use rayon::iter::{
    IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _,
};

use crate::read::Run;

/// Does `work` for each run, on `threads` threads or one for each processor.
///
/// The answers come in the order of the runs, however many threads there are. A panic in `work`
/// comes through once the other threads have finished what they were at.
pub fn run_all<T: Send>(
    runs: &[Run],
    threads: Option<usize>,
    work: impl Fn(&Run) -> T + Sync,
) -> Vec<T> {
    run_all_with_progress(runs, threads, |_| {}, work)
}

/// [`run_all`], and `progress` is told how many runs are done, each time one is.
///
/// It is called from the working threads, with each count from one to the number of runs once,
/// though not always in order.
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
    // Zero asks rayon for one thread a processor.
    let pool = ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    match pool {
        // One at a time: long runs often stand next to each other.
        Ok(pool) if !is_single => {
            pool.install(|| runs.par_iter().with_max_len(1).map(one).collect())
        }
        // One is enough, or the system has no threads to spare.
        _ => runs.iter().map(one).collect(),
    }
}
