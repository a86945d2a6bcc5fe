//! Sessions of the caller's own: open, renew and close one in unary calls, or open one on a stream.

use std::time::Duration;

use leasehold_core::command::{HeldDigest, SessionGrant};
use leasehold_core::ids::SessionId;
use leasehold_wire::{session_bits, v1};

use crate::failover::{Candidates, RetrySafety};
use crate::server_pool::GrpcClient;
use crate::session_stream::{SessionReceiver, SessionResume, SessionSender};
use crate::{Client, Error, OpenedSession};

impl Client {
    /// Opens a session. If the reply is lost, the session expires by its ttl.
    pub async fn open_session(&self, holder: &str, ttl_ms: u64) -> Result<OpenedSession, Error> {
        let request = v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: false };
        let send = |mut client: GrpcClient, request| async move { client.open_session(request).await };
        self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(OpenedSession::new)
    }

    /// Renews a session. `held` is the digest of the leases that the caller believes to hold.
    pub async fn renew_session(&self, session: SessionId, held: Option<HeldDigest>) -> Result<SessionGrant, Error> {
        let held = held.map(|held| v1::HeldDigest { count: held.count, digest: held.digest });
        let request = v1::RenewSession { held, session: Some(session_bits(session)) };
        let send = |mut client: GrpcClient, request| async move { client.renew_session(request).await };
        self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(Into::into)
    }

    /// Closes a session, which ends all its leases.
    pub async fn close_session(&self, session: SessionId) -> Result<(), Error> {
        let request = v1::CloseSession { session: Some(session_bits(session)) };
        let send = |mut client: GrpcClient, request| async move { client.close_session(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Opens a session on a stream of its own, or resumes one.
    pub async fn stream(
        &self,
        holder: &str,
        ttl_ms: u64,
        resume: Option<&SessionResume>,
    ) -> Result<(OpenedSession, SessionSender, SessionReceiver), Error> {
        self.servers.open_stream(Candidates::All, holder, ttl_ms, resume).await
    }
}
