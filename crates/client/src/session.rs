//! Sessions without a stream: open, renew, close.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{HeldDigest, SessionGrant};
use leasehold_core::ids::SessionId;
use leasehold_wire::json::SessionBody;
use leasehold_wire::{TokenIssuer, session_bits, session_id, v1};

use crate::routing::{GrpcClient, RetrySafety};
use crate::{Client, Error};

/// A session that was opened or resumed.
#[derive(Clone, PartialEq)]
pub struct OpenedSession(v1::Welcome);

impl OpenedSession {
    pub(crate) const fn new(welcome: v1::Welcome) -> Self {
        Self(welcome)
    }

    /// Id of the session.
    pub const fn id(&self) -> SessionId {
        session_id(self.0.session)
    }

    /// The 32-byte secret to resume the session with; empty for a resumed session.
    pub fn secret(&self) -> &[u8] {
        &self.0.secret
    }

    /// Cluster and incarnation of the server, as in tokens.
    pub(crate) fn issuer(&self) -> Result<TokenIssuer, Error> {
        let cluster = self.0.cluster.parse().map_err(Error::invalid_reply)?;
        Ok(TokenIssuer { cluster, incarnation: self.0.incarnation.parse().map_err(Error::invalid_reply)? })
    }

    pub(crate) const fn ttl_and_remaining_ms(&self) -> (u64, u64) {
        (self.0.ttl_ms, self.0.remaining_ms)
    }

    /// The session as JSON, with the field names of the HTTP API.
    pub fn body(&self) -> SessionBody {
        self.0.clone().into()
    }
}

/// Omits the secret.
impl fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedSession").field(&self.id()).finish()
    }
}

impl Client {
    /// Opens a session. If the reply is lost, the session expires by its ttl.
    pub async fn open_session(&self, holder: &str, ttl_ms: u64) -> Result<OpenedSession, Error> {
        let request = v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: false };
        let send = |mut client: GrpcClient, request| async move { client.open_session(request).await };
        self.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(OpenedSession)
    }

    /// Renews a session. `held` is the digest of the leases that the caller believes to hold.
    pub async fn renew_session(&self, session: SessionId, held: Option<HeldDigest>) -> Result<SessionGrant, Error> {
        let held = held.map(|held| v1::HeldDigest { count: held.count, digest: held.digest });
        let request = v1::RenewSession { held, session: Some(session_bits(session)) };
        let send = |mut client: GrpcClient, request| async move { client.renew_session(request).await };
        self.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(Into::into)
    }

    /// Closes a session, which ends all its leases.
    pub async fn close_session(&self, session: SessionId) -> Result<(), Error> {
        let request = v1::CloseSession { session: Some(session_bits(session)) };
        let send = |mut client: GrpcClient, request| async move { client.close_session(request).await };
        self.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }
}
