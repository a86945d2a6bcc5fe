//! Waits of unary calls. A wait belongs to a session of its own that carries nothing else, and the call has an idempotency key of that
//! session: when the leader fails, the call continues at its successor and gets the same grant (L11).

use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use leasehold_core::ids::SessionId;
use leasehold_wire::headers::IdempotencyKey;
use leasehold_wire::{Code, v1};
use tokio::sync::Notify;

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error, OpenedSession};

/// How long a wait outlives its caller.
const TTL_MS: u64 = 5_000;
/// Pause before the request is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Time after the wait during which a lost reply is still resolved: a failover takes seconds.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to close the session afterwards. Otherwise it expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    /// Sends a request that waits for up to `wait`, and repeats it under one key until a server has answered.
    pub(crate) async fn call_with_wait_session<T, W: Future<Output = Result<T, Error>>>(
        &self,
        holder: &str,
        wait: Duration,
        send: impl Fn(Self) -> W,
    ) -> Result<T, Error> {
        let opened = self.open_wait_session(holder).await?;
        let client = opened.secret().map_or_else(|| self.clone(), |secret| self.with_session_secret(secret));
        let session = OpenWaitSession { client, id: opened.id(), closed: false };
        let keyed = session.client.with_idempotency_key(IdempotencyKey { session: session.id, sequence: 1 });
        let give_up = Instant::now() + wait + RESOLVE_TIMEOUT;
        let leader_moved = Notify::new();
        let attempts = async {
            loop {
                let answered = tokio::select! {
                    answered = send(keyed.clone()) => answered,
                    // The server with the wait is silent, and another one answers.
                    () = leader_moved.notified() => continue,
                };
                match answered {
                    Err(error) if is_resolvable(&error) && Instant::now() < give_up => {
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    answered => return answered,
                }
            }
        };
        let answered = tokio::select! {
            answered = attempts => answered,
            never = self.renew_wait_session(&session, opened.ttl_and_remaining_ms().0, &leader_moved) => match never {},
        };
        session.close().await;
        answered
    }

    /// Opens a session that carries only waits. Its ttl is within the limits of the cluster.
    async fn open_wait_session(&self, holder: &str) -> Result<OpenedSession, Error> {
        let open = |ttl_ms| async move {
            let request = v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: true };
            let send = |mut client: GrpcClient, request| async move { client.open_session(request).await };
            self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(OpenedSession::new)
        };
        match open(TTL_MS).await {
            Err(error) => match longest_ttl(&error) {
                Some(max) => open(max).await,
                None => Err(error),
            },
            opened => opened,
        }
    }

    async fn renew_wait_session(&self, session: &OpenWaitSession, ttl_ms: u64, leader_moved: &Notify) -> Infallible {
        let mut leader = self.servers.last_server();
        loop {
            tokio::time::sleep(Duration::from_millis(ttl_ms / 3)).await;
            // A failed renewal is repeated; the request itself finds out if the session has ended.
            if session.client.renew_session(session.id, None).await.is_ok() {
                let answered_by = self.servers.last_server();
                if answered_by != leader {
                    leader = answered_by;
                    leader_moved.notify_one();
                }
            }
        }
    }
}

/// Whether the same request may get a decision later.
fn is_resolvable(error: &Error) -> bool {
    error.outcome_unknown() || error.is_retryable()
}

/// The longest ttl of the cluster, if the error says that a ttl is longer.
fn longest_ttl(error: &Error) -> Option<u64> {
    let body = error.body();
    let too_long = error.code() == Some(Code::InvalidArgument) && body.field.as_deref() == Some("ttl");
    body.max.filter(|max| too_long && *max < TTL_MS)
}

/// An open session; closed in the background if the call is dropped.
struct OpenWaitSession {
    client: Client,
    id: SessionId,
    closed: bool,
}

impl OpenWaitSession {
    async fn close(mut self) {
        self.closed = true;
        // If this fails, the session expires. A granted lease does not depend on it.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.client.close_session(self.id)).await;
    }
}

impl Drop for OpenWaitSession {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let (client, id) = (self.client.clone(), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { tokio::time::timeout(CLOSE_TIMEOUT, client.close_session(id)).await });
        }
    }
}
