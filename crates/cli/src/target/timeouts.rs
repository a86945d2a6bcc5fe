//! Time limits for everything that waits for a target: a target may accept a connection and never reply.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::output::{CommandError, error_with_code};

/// Longest time of one action on a target.
pub const ACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Ends work on a target after this time.
pub async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let message = format!(
            "the target did not reply within {limit:?}; check that it runs, and read its marks if something was to change"
        );
        Err(error_with_code("UNAVAILABLE", &message))
    })
}

/// Runs blocking work on its own thread, so that it can be given up. The thread ends with the process.
pub async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // The receiver is gone if the work was given up.
        let _ = sender.send(work());
    });
    receiver.await.unwrap_or_else(|_| Err(CommandError::Other("the thread for the target ended early".to_owned())))
}
