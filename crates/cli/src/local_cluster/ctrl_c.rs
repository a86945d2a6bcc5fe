//! Wait for Ctrl-C or SIGTERM, so that a command can end its local servers.

use tokio::signal::unix::{SignalKind, signal};

use crate::output::CommandError;

/// Returns a future that completes on SIGINT or SIGTERM. Signals count from this call on; `command` is for the error message.
pub fn interrupt_signal(command: &str) -> Result<impl Future<Output = ()> + use<>, CommandError> {
    let listen =
        |kind| signal(kind).map_err(|error| CommandError::Other(format!("{command}: cannot handle signals: {error}")));
    let (mut interrupt, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = term.recv() => {}
        }
    })
}
