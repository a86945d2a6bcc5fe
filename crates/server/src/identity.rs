//! The identity of a request: who sends it, how that is known, and from where.
//!
//! Every connection gets its identity when it is accepted, and every request on it carries that identity to the turn (A4), unless it
//! presents a bearer token: then the identity is that of the token. Which actions it may perform is looked up again whenever the access rules change (A10).

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use leasehold_core::access::{LOCAL_PRINCIPAL, RequestOrigin};

pub use leasehold_core::access::Via;

/// Who sends the requests of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that grants are given to: `spiffe://DOMAIN/PATH`, `dns:NAME`, `uid:1000`, `bearer:NAME`,
    /// `jwt:ISSUER#SUBJECT`, `local` or `anonymous`.
    pub principal: Box<str>,
    /// How the principal is known.
    pub via: Via,
    /// The first 16 hexadecimal digits of the SHA-256 of its certificate or JWT, or the id of its own bearer token; empty without one.
    pub credential: Box<str>,
    /// The address that it connects from; none on a unix socket.
    pub peer: Option<SocketAddr>,
    /// The end of its credential. Its streams end with it (A10).
    pub not_after: Option<SystemTime>,
}

impl Identity {
    /// The principal of a plain connection from this machine, on a server without access rules.
    pub const LOCAL: &'static str = LOCAL_PRINCIPAL;
    /// The principal of a plain connection otherwise.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// The identity of a plain connection from this machine, and of the server itself.
    pub fn local(peer: Option<SocketAddr>) -> Self {
        Self { principal: Self::LOCAL.into(), via: Via::Local, credential: "".into(), peer, not_after: None }
    }

    /// The identity of a plain connection that proves nothing.
    pub fn anonymous(peer: Option<SocketAddr>) -> Self {
        Self { principal: Self::ANONYMOUS.into(), via: Via::Anonymous, credential: "".into(), peer, not_after: None }
    }

    /// How it is known and from where, as it is recorded with what it changes (A13).
    pub fn origin(&self) -> RequestOrigin<'_> {
        RequestOrigin { via: self.via, credential: &self.credential, from: self.peer, ..RequestOrigin::LOCAL }
    }

    /// The address in log lines.
    pub fn peer_text(&self) -> String {
        self.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string())
    }
}

tokio::task_local! {
    static IDENTITY: Arc<Identity>;
}

/// Runs a future on behalf of an identity.
pub fn on_behalf_of<F: Future>(identity: Arc<Identity>, future: F) -> impl Future<Output = F::Output> {
    IDENTITY.scope(identity, future)
}

/// The identity of the current request; `None` outside of a connection.
pub fn current() -> Option<Arc<Identity>> {
    IDENTITY.try_with(Arc::clone).ok()
}

/// The identity of the current request. Outside of a connection it is the process itself, which has no grant on a server with access
/// rules.
pub fn current_or_local() -> Arc<Identity> {
    current().unwrap_or_else(|| Arc::new(Identity::local(None)))
}
