//! A session for the wait of one unary call that has no session.
//!
//! It is renewed while the call lasts. When the call ends or its caller disconnects, the session is closed and the wait ends with it.
//! A granted lease does not belong to the session: it has its own ttl and token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::command::{Answer, Proof, Request, SessionGrant};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::{SecretDigest, SessionSecret};
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::{problem, session_bits, v1};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Api;
use super::problems::no_reply;
use crate::identity::{Identity, current_or_local, on_behalf_of};
use crate::random;
use crate::request::{QueuedRequest, ReplyTo, RequestPayload};

/// Longest time that a wait outlives its caller, in milliseconds.
const TTL_MS: u64 = 10_000;

/// An open session; closed when it is dropped.
pub struct WaitSession {
    /// Its id.
    pub id: SessionId,
    /// Digest of its secret, which proves the requests in it.
    pub secret: SecretDigest,
    api: Api,
    /// The caller of the wait, which owns the session.
    identity: Arc<Identity>,
    /// The trace that the wait belongs to.
    trace: Option<TraceContext>,
    renewal: JoinHandle<()>,
}

impl WaitSession {
    /// Opens a session and renews it in the background.
    pub async fn open(api: &Api, trace: Option<TraceContext>) -> Result<Self, v1::Problem> {
        let (started, identity) = (Instant::now(), current_or_local());
        let secret = SessionSecret::new(random::bytes()).digest();
        let grant = match open(api, TTL_MS, secret, trace).await? {
            // The longest ttl of the cluster is shorter.
            Err(Refusal::OutOfRange { field: "ttl", max, .. }) if max < TTL_MS => open(api, max, secret, trace).await?,
            opened => opened,
        };
        let SessionGrant { session: id, ttl_ms, .. } = grant.map_err(|refusal| problem(&refusal))?;
        let interval = Duration::from_millis(ttl_ms / 3);
        // A slow journal may have used up the first interval.
        if started.elapsed() > interval {
            renew(api, id, secret).await;
        }
        let renewal = tokio::spawn({
            let api = api.clone();
            // If the caller loses its rights, the renewals are refused and the wait ends with the session.
            on_behalf_of(identity.clone(), async move {
                loop {
                    tokio::time::sleep(interval).await;
                    renew(&api, id, secret).await;
                }
            })
        });
        Ok(Self { id, secret, api: api.clone(), identity, trace, renewal })
    }
}

async fn open(
    api: &Api,
    ttl_ms: u64,
    secret: SecretDigest,
    trace: Option<TraceContext>,
) -> Result<Result<SessionGrant, Refusal>, v1::Problem> {
    let open = v1::OpenSession { holder: "unary wait".into(), ttl_ms, waits_only: true };
    let reply = api.submit(Request::tagged(0).traced(trace), RequestPayload::Open(open, secret), api.caller()).await?;
    match reply.answer {
        Answer::Session(grant) => Ok(Ok(grant)),
        Answer::Refused(refusal) => Ok(Err(refusal)),
        _ => Err(no_reply()),
    }
}

/// A request in a session, proven by its secret.
fn in_session(secret: SecretDigest) -> Request<'static> {
    Request { proof: Proof { session: Some(secret), ..Proof::NONE }, ..Request::tagged(0) }
}

async fn renew(api: &Api, id: SessionId, secret: SecretDigest) {
    let renew = v1::RenewSession { session: Some(session_bits(id)), ..Default::default() };
    let body = RequestPayload::Operation(Box::new(v1::request::Operation::RenewSession(renew)));
    // If the queue is full now, the next renewal may succeed.
    let _ = api.submit(in_session(secret), body, api.caller()).await;
}

impl Drop for WaitSession {
    fn drop(&mut self) {
        self.renewal.abort();
        let close = v1::CloseSession { session: Some(session_bits(self.id)) };
        let body = RequestPayload::Operation(Box::new(v1::request::Operation::CloseSession(close)));
        let (to, _) = oneshot::channel();
        let request = QueuedRequest::new(
            in_session(self.secret).traced(self.trace),
            body,
            self.api.caller(),
            ReplyTo::Caller(to),
        )
        .with_identity(self.identity.clone());
        // If the queue is full, the session ends by its ttl.
        let _ = self.api.queue.submit(request);
    }
}
