//! Whoever starts servers of its own ends them when it is asked to end.

use tokio::signal::unix::{SignalKind, signal};

use crate::told::Failure;

/// Ends when somebody asks this process to. It listens from the call on; `who` stands in the words of an error.
pub fn interrupted(who: &str) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::Other(format!("{who}: cannot listen to signals: {error}")));
    let (mut interrupt, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = term.recv() => {}
        }
    })
}
