//! Requests under an idempotency key that the client made itself, for example a UUID.
//!
//! The core opens a session for the key, or finds the one of an earlier attempt by the digest of identity and key. The request is then
//! the first of that session, so that its reply is stored, survives a failover and is repeated as under any request id (L11).

use std::future::Future;
use std::time::Duration;

use leasehold_core::command::{Answer, Request, RequestId};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::{Limit, Refusal};
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
    async fn open(
        api: &Api,
        key: SecretDigest,
        operation: &Operation,
        request: Request<'static>,
    ) -> Result<Self, v1::Problem> {
        if session_of_wait(operation).is_some() {
            let reason = "a wait in a session needs the key <session>:<sequence> of that session, for example 17.0:42";
            return Err(problem(&Refusal::Invalid { field: IDEMPOTENCY_KEY, reason }));
        }
        let payload = RequestPayload::OpenKey(key, Some(Box::new(operation.clone())));
        let reply = api.submit(request, payload, api.caller()).await?;
        api.observe(&reply);
        match reply.answer {
            Answer::Session(grant) => Ok(Self { id: grant.session, key, ttl_ms: grant.ttl_ms }),
            Answer::Refused(refusal) => Err(problem(&refusal)),
            _ => Err(no_reply()),
        }
    }

    /// Opens the session of a key for an operation with this request, or finds it. `None` if no further key can be stored, and the
    /// operation may be executed without one.
    pub async fn open_if_possible(
        api: &Api,
        key: SecretDigest,
        operation: &Operation,
        request: Request<'static>,
    ) -> Result<Option<Self>, v1::Problem> {
        match Self::open(api, key, operation, request).await {
            Ok(session) => Ok(Some(session)),
            Err(problem) if is_limit_of_keys(&problem) && is_harmless_to_repeat(operation) => Ok(None),
            Err(problem) => Err(problem),
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
                    let _ = api.submit(Request::tagged(0), RequestPayload::OpenKey(self.key, None), api.caller()).await;
                }
            }
        }
    }
}

/// Whether a problem says that no further key can be stored.
fn is_limit_of_keys(problem: &v1::Problem) -> bool {
    [Limit::IdentityKeys, Limit::Sessions].iter().any(|limit| problem.limit == limit.word())
}

/// Operations that no limit of an identity refuses (A12). Executing one of them twice does what executing it once does.
fn is_harmless_to_repeat(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Renew(_)
            | Operation::RenewSession(_)
            | Operation::Release(_)
            | Operation::Cancel(_)
            | Operation::FinishDrain(_)
            | Operation::Progress(_)
    )
}
