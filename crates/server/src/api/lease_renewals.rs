//! Many renewals in one unary call, for clients without a session stream.

use std::time::Instant;

use leasehold_core::access::Action;
use leasehold_core::command::Proof;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_wire::v1;

use super::problems::{no_reply, not_submitted};
use super::{Api, RequestMetadata};
use crate::identity::current_or_local;
use crate::request::{OutboxReceiver, Outgoing, RenewalBatch};

impl Api {
    /// Renews leases of one session. A renewal can be repeated, so a lost reply needs no key.
    pub async fn renew_leases(
        &self,
        metadata: &RequestMetadata,
        session: SessionId,
        leases: Vec<(LeaseId, u64)>,
    ) -> Result<(v1::RenewBatchResult, u64), v1::Problem> {
        let identity = current_or_local();
        self.authorize_any(&identity, Action::Renew).map_err(|problem| *problem)?;
        let receiver = OutboxReceiver::default();
        let (to, arrived) = (receiver.outbox().clone(), Instant::now());
        let proof = Proof { session: metadata.session_secret, ..Proof::NONE };
        let seen = metadata.token_seen;
        let batch = RenewalBatch { to, session, proof, number: 0, leases, seen, identity, arrived };
        self.queue.renew(batch).await.map_err(|error| not_submitted(error, &self.queue))?;
        let reply = receiver.outbox().recv().await.ok_or_else(no_reply)?;
        match reply.items.into_iter().next() {
            Some(Outgoing::Renewed(result, arrived)) => {
                self.metrics.requests().batch_renewed(result.remaining_ms.len(), arrived.elapsed());
                Ok((result, reply.position))
            }
            Some(Outgoing::Close(reason)) => Err(*reason),
            _ => Err(no_reply()),
        }
    }
}
