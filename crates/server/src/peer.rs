//! The address of the peer whose request is processed, for log lines.

use std::future::Future;
use std::net::SocketAddr;

tokio::task_local! {
    static PEER: SocketAddr;
}

/// Runs a future on behalf of a peer.
pub fn on_behalf_of<F: Future>(peer: SocketAddr, future: F) -> impl Future<Output = F::Output> {
    PEER.scope(peer, future)
}

/// The peer of the current request; `None` outside of a connection.
pub fn current() -> Option<SocketAddr> {
    PEER.try_with(|peer| *peer).ok()
}
