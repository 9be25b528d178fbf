//! What tests over sockets share.

use std::future::Future;
use std::time::Duration;

/// Runs a test on a runtime of its own, no longer than this.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
pub(crate) fn within<T>(patience: Duration, test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let result = runtime.block_on(async { tokio::time::timeout(patience, test).await });
    // A test that fails leaves threads behind that nobody should wait for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result.expect("the test took too long")
}
