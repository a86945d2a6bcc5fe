//! Requests under an idempotency key that the client made itself, for example a UUID.
//!
//! The core opens a session for the key, or finds the one of an earlier attempt by the digest of identity and key. The request is then
//! the first of that session, so that its reply is stored, survives a failover and is repeated as under any request id (L11).

use std::future::Future;
use std::time::Duration;

use leasehold_core::command::{Answer, Request, RequestId};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::SecretDigest;
use leasehold_wire::headers::IDEMPOTENCY_KEY;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::{problem, v1};

use super::problems::no_reply;
use super::{Api, session_of_wait};
use crate::request::RequestPayload;

/// The session of one key.
#[derive(Clone, Copy, Debug)]
pub struct KeySession {
    /// Its id.
    pub id: SessionId,
    key: SecretDigest,
    ttl_ms: u64,
}

impl KeySession {
    /// Opens the session of a key, or finds it.
    pub async fn open(api: &Api, key: SecretDigest, operation: &Operation) -> Result<Self, v1::Problem> {
        if session_of_wait(operation).is_some() {
            let reason = "a wait in a session needs the key <session>:<sequence> of that session, for example 17.0:42";
            return Err(problem(&Refusal::Invalid { field: IDEMPOTENCY_KEY, reason }));
        }
        let reply = api.submit(Request::tagged(0), RequestPayload::OpenKey(key), api.caller()).await?;
        api.observe(&reply);
        match reply.answer {
            Answer::Session(grant) => Ok(Self { id: grant.session, key, ttl_ms: grant.ttl_ms }),
            Answer::Refused(refusal) => Err(problem(&refusal)),
            _ => Err(no_reply()),
        }
    }

    /// The id of the one request under the key.
    pub fn request_id(&self) -> RequestId {
        RequestId { session: self.id, sequence: 1, lowest: 1, digest: 0 }
    }

    /// Waits for a reply, and renews the session meanwhile: a wait for a lease may take longer than its ttl.
    pub async fn renew_during<T>(&self, api: &Api, reply: impl Future<Output = T>) -> T {
        let interval = Duration::from_millis((self.ttl_ms / 3).max(1));
        tokio::pin!(reply);
        loop {
            tokio::select! {
                reply = &mut reply => return reply,
                () = tokio::time::sleep(interval) => {
                    // If the queue is full now, the next renewal may succeed.
                    let _ = api.submit(Request::tagged(0), RequestPayload::OpenKey(self.key), api.caller()).await;
                }
            }
        }
    }
}
