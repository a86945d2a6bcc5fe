//! A reply whose records are durable.

use leasehold_core::command::Answer;

use super::RequestPayload;
use crate::cancellation::UndeliveredGrant;

/// A reply with the context needed to encode it.
#[derive(Debug)]
pub struct DurableReply {
    /// The answer.
    pub answer: Answer,
    /// The request; the token of a grant is encoded with its resource.
    pub body: RequestPayload,
    /// The journal position that the answer depends on.
    pub position: u64,
    /// Releases the granted leases unless the caller receives the reply.
    pub undelivered: Option<UndeliveredGrant>,
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
