//! A reply whose records are durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::command::Answer;
use leasehold_core::token::Token;

use super::RequestPayload;
use crate::cancellation::UndeliveredGrant;
use crate::identity::Identity;

/// Start of a request, and of its wait for a lease.
#[derive(Clone, Copy, Debug)]
pub struct RequestTiming {
    /// When the request arrived.
    pub arrived: Instant,
    /// When it began to wait for a lease, if it did.
    pub waiting_since: Option<Instant>,
}

impl RequestTiming {
    /// The request arrived at this time.
    pub const fn since(arrived: Instant) -> Self {
        Self { arrived, waiting_since: None }
    }

    /// Time that the request took without its wait, and the time that it waited.
    pub fn elapsed(&self) -> (Duration, Option<Duration>) {
        match self.waiting_since {
            None => (self.arrived.elapsed(), None),
            Some(since) => (since.saturating_duration_since(self.arrived), Some(since.elapsed())),
        }
    }
}

/// A reply with the context needed to encode it.
#[derive(Debug)]
pub struct DurableReply {
    /// The answer.
    pub answer: Answer,
    /// The request; the token of a grant is encoded with its resource.
    pub body: RequestPayload,
    /// Who sent the request.
    pub identity: Arc<Identity>,
    /// The journal position that the answer depends on.
    pub position: u64,
    /// When the request arrived, and since when it waited for a lease.
    pub timing: RequestTiming,
    /// Tokens that the answer does not contain; none for most requests.
    pub tokens: Option<Box<ReplyTokens>>,
    /// Releases the granted leases unless the caller receives the reply.
    pub undelivered: Option<UndeliveredGrant>,
}

/// Tokens of a reply that the core's answer does not contain.
#[derive(Debug, Default)]
pub struct ReplyTokens {
    /// The new token of the lease, if the request raised it.
    pub raised: Option<RaisedToken>,
    /// The granted or renewed leases whose charters declare targets, if the server has stamp keys.
    pub stamp_targets: Vec<StampTargets>,
}

/// A token that a renewal raised. Its text needs the name of the resource, which the request may not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedToken {
    /// The token.
    pub token: Token,
    /// The resource of the lease.
    pub resource: Box<str>,
}

/// A lease of a reply, and the targets that its charter declares. The edge stamps the token for those whose key it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampTargets {
    /// The token.
    pub token: Token,
    /// The resource of the lease.
    pub resource: Box<str>,
    /// The names of the targets.
    pub targets: Vec<Box<str>>,
}

impl DurableReply {
    /// Marks the reply as received, so that its grants are not released.
    pub fn delivered(mut self) -> Self {
        if let Some(undelivered) = self.undelivered.take() {
            undelivered.delivered();
        }
        self
    }
}
