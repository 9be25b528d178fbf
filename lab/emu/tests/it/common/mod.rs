//! Helpers shared by tests over sockets.

use std::future::Future;
use std::time::Duration;

/// Runs a test on its own runtime, for at most `timeout`.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
pub(crate) fn within<T>(timeout: Duration, test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let result = runtime.block_on(async { tokio::time::timeout(timeout, test).await });
    // A failed test may leave threads behind; the shutdown does not wait for them.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result.expect("the test took too long")
}
