//! Reply to a session call, which returns what it grants if the caller drops it unused; and the listener for session events.

use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::command::{Answer, SessionEvent};
use leasehold_core::time::Instant;
use leasehold_wire::TokenIssuer;
use leasehold_wire::v1::request::Operation as Message;

use super::WorkerHandle;
use super::lease_shared::SessionDeadline;
use crate::FencingToken;

/// Receives the events of the session on the worker's thread. It must not block.
pub(crate) trait SessionListener: fmt::Debug + Send + Sync {
    fn on_event(&self, event: &SessionEvent);
}

/// A reply to a session call.
#[derive(Debug)]
pub(crate) struct SessionReply {
    pub(crate) answer: Answer,
    /// When the request was sent: durations in the reply count from here.
    pub(crate) sent: Instant,
    /// Cluster and incarnation that replied.
    pub(crate) issuer: TokenIssuer,
    /// Deadline of the session: what the reply grants ends with it.
    pub(crate) session_deadline: Arc<SessionDeadline>,
    /// Sealed texts of the tokens in the reply.
    pub(crate) sealed: Vec<FencingToken>,
    /// Returns what the reply grants if the caller does not use it.
    pub(crate) compensation: CompensateOnDrop,
}

/// Sends compensating requests when dropped, without waiting for their replies.
#[derive(Default)]
pub(crate) struct CompensateOnDrop(Option<(Weak<WorkerHandle>, Vec<Message>)>);

impl CompensateOnDrop {
    pub(super) fn new(worker: Weak<WorkerHandle>, messages: Vec<Message>) -> Self {
        Self(Some((worker, messages)))
    }

    /// The grant is used, or ends in another way; dropping this does nothing.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CompensateOnDrop {
    fn drop(&mut self) {
        if let Some((worker, messages)) = self.0.take()
            && let Some(worker) = worker.upgrade()
        {
            messages.into_iter().for_each(|message| worker.send_detached(message));
        }
    }
}

impl fmt::Debug for CompensateOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompensateOnDrop").field(&self.0.is_some()).finish()
    }
}
