//! A request in the queue, with its caller and the destination of its reply.

use std::sync::Arc;
use std::time::Instant;

use leasehold_core::command::{Proof, Request};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::token::Token;
use leasehold_wire::CommandContext;
use tokio::sync::oneshot;

use super::{DurableReply, Outbox, RequestPayload};
use crate::cancellation::CallerState;
use crate::identity::{self, Identity};

/// A request up to this many bytes has weight one; a larger one weighs more.
const WEIGHT_BYTES: usize = 512;

/// Destination of a reply.
pub enum ReplyTo {
    /// A unary caller, which receives only the final reply.
    Caller(oneshot::Sender<DurableReply>),
    /// A session stream, which receives every reply under the request's number.
    Stream(Arc<Outbox>, u64),
}

/// A request on its way to a turn. It owns what its command borrows.
pub struct QueuedRequest {
    /// Its id and the highest token that the caller has seen. The driver sets the tag.
    pub request: Request<'static>,
    /// The payload.
    pub body: RequestPayload,
    /// Session and issuer of the caller.
    pub caller: CommandContext,
    /// Destination of the reply.
    pub to: ReplyTo,
    /// Shared with the caller if a disconnect must cancel the request.
    pub caller_state: Option<Arc<CallerState>>,
    /// Who sent it.
    pub identity: Arc<Identity>,
    /// Why it is executed without the approval of a second identity.
    pub alone: Option<Box<str>>,
    /// When it arrived.
    pub arrived: Instant,
    weight: u32,
}

impl QueuedRequest {
    /// A request that a disconnect of its caller does not cancel.
    pub fn new(request: Request<'static>, body: RequestPayload, caller: CommandContext, to: ReplyTo) -> Self {
        let weight = 1 + u32::try_from(body.bytes() / WEIGHT_BYTES).unwrap_or(u32::MAX);
        Self {
            request,
            body,
            caller,
            to,
            caller_state: None,
            identity: identity::current_or_local(),
            alone: None,
            arrived: Instant::now(),
            weight,
        }
    }

    /// Makes the request cancellable by its caller's disconnect.
    pub fn with_caller_state(self, state: Arc<CallerState>) -> Self {
        Self { caller_state: Some(state), ..self }
    }

    /// Sets why it is executed without the approval of a second identity.
    pub fn with_reason_alone(self, alone: Option<Box<str>>) -> Self {
        Self { alone, ..self }
    }

    /// Sets the identity of a request that is read outside of the task of its connection.
    pub fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Whether it extends a lease or a session and therefore bypasses other requests.
    pub fn is_renewal(&self) -> bool {
        self.body.is_renewal()
    }

    /// Its share of the queue's capacity for requests.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its share of the capacity for renewals, where one unary request takes as much as many renewals of a batch.
    pub fn renewal_weight(&self) -> u32 {
        self.weight.saturating_mul((WEIGHT_BYTES / size_of::<(LeaseId, u64)>()) as u32)
    }
}

/// A token that a caller presents, and whether it is proven to be one of this cluster (A9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenToken {
    /// The token.
    pub token: Token,
    /// Whether a key of this cluster sealed it for the resource that was given with it.
    pub proven: bool,
}

/// Many renewals of one connection, which get one reply.
pub struct RenewalBatch {
    /// The connection.
    pub to: Arc<Outbox>,
    /// Its session, which must hold the leases it renews (L5).
    pub session: SessionId,
    /// How the sender proves that the session is its own (A6).
    pub proof: Proof,
    /// The request's number on the connection.
    pub number: u64,
    /// The leases with their token numbers.
    pub leases: Vec<(LeaseId, u64)>,
    /// The highest token that the client has seen.
    pub seen: Option<SeenToken>,
    /// Who sent them.
    pub identity: Arc<Identity>,
    /// When they arrived.
    pub arrived: Instant,
}
