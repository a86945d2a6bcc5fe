//! The events of one session, for a client without a session stream.
//!
//! A listener resumes the session with its secret, as a stream does, and so replaces the listener or stream before it. It receives
//! events and nothing else. Losing it loses nothing: an event only means that the client should ask now.

use std::sync::Arc;

use futures::Stream;
use leasehold_core::access::{NO_SESSION_PROOF, SECRET_DIFFERS};
use leasehold_core::command::{Answer, Request, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::{SecretDigest, SessionSecret};
use leasehold_wire::{encode_event, problem, v1};

use super::Api;
use super::problems::{no_reply, not_submitted};
use crate::access::StreamAccess;
use crate::identity::current_or_local;
use crate::metrics::Metrics;
use crate::random;
use crate::request::{DurableReply, OutboxReceiver, Outgoing, QueuedRequest, ReplyTo, RequestPayload};

impl Api {
    /// Streams the events of a session from now on. The stream ends with a problem if another connection resumes the session, the
    /// listener reads too slowly or loses its rights, or the server shuts down.
    pub async fn session_events(
        &self,
        session: SessionId,
        secret: Option<SecretDigest>,
    ) -> Result<impl Stream<Item = Result<v1::Event, v1::Problem>> + Send + use<>, v1::Problem> {
        // No session has this one, so that a request without a secret is refused like one with a wrong secret.
        let presented = secret.unwrap_or_else(|| SessionSecret::new(random::bytes()).digest());
        let receiver = OutboxReceiver::default();
        let to = ReplyTo::Stream(receiver.outbox().clone(), 0);
        let resume = RequestPayload::Resume(session, presented);
        let queued = QueuedRequest::new(Request::tagged(0), resume, self.caller(), to);
        self.queue.submit(queued).map_err(|error| not_submitted(error, &self.queue))?;
        let mut items = receiver.outbox().recv().await.ok_or_else(no_reply)?.items.into_iter();
        match items.next() {
            Some(Outgoing::Answer(_, reply)) => {
                self.observe(&reply);
                match reply {
                    DurableReply { answer: Answer::Session(_), .. } => {}
                    DurableReply { answer: Answer::Refused(Refusal::Denied(SECRET_DIFFERS)), .. } => {
                        return Err(problem(&Refusal::Denied(NO_SESSION_PROOF)));
                    }
                    DurableReply { answer: Answer::Refused(refusal), .. } => return Err(problem(&refusal)),
                    _ => return Err(no_reply()),
                }
            }
            Some(Outgoing::Close(reason)) => return Err(*reason),
            _ => return Err(no_reply()),
        }
        let access = StreamAccess::of_session(&self.access, current_or_local());
        let listener = SessionEventStream { receiver, access, items, metrics: self.metrics.clone() };
        Ok(futures::stream::unfold(Some(listener), |listener| async move {
            let mut listener = listener?;
            match listener.next().await? {
                Ok(event) => Some((Ok(event), Some(listener))),
                Err(reason) => {
                    listener.metrics.rejections().problem(&reason);
                    Some((Err(reason), None))
                }
            }
        }))
    }
}

/// The connection that receives the events of a session.
struct SessionEventStream {
    receiver: OutboxReceiver,
    access: StreamAccess,
    /// Received and not sent yet.
    items: std::vec::IntoIter<Outgoing>,
    metrics: Arc<Metrics>,
}

impl SessionEventStream {
    /// The next event, or the reason for the end; `None` if the outbox was closed without one.
    async fn next(&mut self) -> Option<Result<v1::Event, v1::Problem>> {
        loop {
            match self.items.next() {
                Some(Outgoing::Event(event, position)) if is_for_sessions(&event) => {
                    return Some(Ok(encode_event(&event, position, "", "")));
                }
                Some(Outgoing::Close(reason)) => return Some(Err(*reason)),
                Some(_) => continue,
                None => {}
            }
            let batch = tokio::select! {
                // First, so that no event after a reload is judged by the rules before it.
                biased;
                reason = self.access.ended() => return Some(Err(reason)),
                batch = self.receiver.outbox().recv() => batch?,
            };
            self.items = batch.items.into_iter();
        }
    }
}

/// Whether an event concerns a session. Deadlocks and rollbacks concern operators.
fn is_for_sessions(event: &SessionEvent) -> bool {
    !matches!(event, SessionEvent::Deadlock(_) | SessionEvent::Zombie(_) | SessionEvent::RolledBack { .. })
}
