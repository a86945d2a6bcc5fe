//! Administration: charters, capacities, revocation, fence coverage and leadership of servers.
//!
//! The calls are methods of [`Client`]; this module has the types of their arguments and results.

pub use leasehold_core::charter::*;
pub use leasehold_core::command::Revoke;
pub use leasehold_core::coverage::{FenceMode, FenceReport, RefusedZombie};

use std::time::Duration;

use leasehold_wire::json::{ApproveBody, ProposalBody};
use leasehold_wire::{decode_charter, encode_charter, v1};

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// Charters of one page.
const PAGE: u32 = 256;

impl Client {
    /// Revokes leases, with notice to their holders if a grace is given.
    pub async fn revoke(&self, revoke: &Revoke<'_>) -> Result<(), Error> {
        let send = |mut client: GrpcClient, request| async move { client.revoke(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, v1::Revoke::from(revoke), send).await.map(drop)
    }

    /// Frees a resource that a revocation has left to an operator.
    pub async fn free(&self, resource: &str, comment: &str) -> Result<(), Error> {
        let request = v1::Free { resource: resource.into(), comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.free(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Sets the capacity of a resource.
    pub async fn set_capacity(&self, resource: &str, units: u32) -> Result<(), Error> {
        let request = v1::SetCapacity { resource: resource.into(), units };
        let send = |mut client: GrpcClient, request| async move { client.set_capacity(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Makes the leader step down, so that another server takes over. No lease ends.
    pub async fn step_down(&self) -> Result<(), Error> {
        let send = |mut client: GrpcClient, request| async move { client.step_down(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, v1::StepDown {}, send).await.map(drop)
    }

    /// Changes the longest ttl of the cluster. It is lowered only if nothing in use has a longer ttl. The comment is recorded.
    pub async fn set_max_ttl(&self, max_ttl_ms: u64, comment: &str) -> Result<(), Error> {
        let request = v1::SetMaxTtl { max_ttl_ms, comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.set_max_ttl(request).await };
        self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Ends a quarantine early. The comment is recorded.
    pub async fn waive_quarantine(&self, comment: &str) -> Result<(), Error> {
        let request = v1::WaiveQuarantine { comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.waive_quarantine(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// The dangerous commands that wait for the approval of a second identity, by number.
    pub async fn proposals(&self) -> Result<Vec<ProposalBody>, Error> {
        let send = |mut client: GrpcClient, request| async move { client.proposals(request).await };
        let list = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::ProposalsRequest {}, send).await?;
        Ok(list.proposals.into_iter().map(Into::into).collect())
    }

    /// Approves and executes a command that another identity proposed. The digest is the one of [`Client::proposals`], so that
    /// nothing else than what was read is approved.
    pub async fn approve(&self, proposal: u64, digest: &str) -> Result<(), Error> {
        let body = ApproveBody { digest: digest.to_owned() };
        let reason = "64 hexadecimal digits, as the list of proposals shows it";
        let digest = body.digest_bytes().ok_or_else(|| Error::invalid("digest", reason))?;
        let send = |mut client: GrpcClient, request| async move { client.approve(request).await };
        let request = v1::Approve { proposal, digest };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Withdraws a proposal.
    pub async fn cancel_proposal(&self, proposal: u64) -> Result<(), Error> {
        let send = |mut client: GrpcClient, request| async move { client.cancel_proposal(request).await };
        let request = v1::CancelProposal { proposal };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// All charters by prefix, or only the one that covers `resource`.
    pub async fn charters(&self, resource: Option<&str>) -> Result<Vec<(String, Charter)>, Error> {
        let mut all: Vec<(String, Charter)> = Vec::new();
        loop {
            let after = all.last().map(|(prefix, _)| prefix.clone());
            let resource_name = resource.unwrap_or_default().into();
            let request = v1::ChartersRequest { resource: resource_name, after: after.clone(), limit: PAGE };
            let send = |mut client: GrpcClient, request| async move { client.charters(request).await };
            let page = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?.charters;
            let before = all.len();
            for entry in page.into_iter().filter(|entry| after.as_ref().is_none_or(|after| entry.prefix > *after)) {
                let terms = entry.charter.ok_or_else(|| Error::invalid_reply("an entry without its charter"))?;
                all.push((entry.prefix, decode_charter(&terms).map_err(Error::invalid_reply)?));
            }
            if all.len() == before || resource.is_some() {
                return Ok(all);
            }
        }
    }

    /// Sets the charter of a prefix; the empty prefix covers everything.
    pub async fn set_charter(&self, prefix: &str, terms: &Charter, comment: &str) -> Result<(), Error> {
        let request =
            v1::SetCharter { prefix: prefix.into(), charter: Some(encode_charter(terms)), comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.set_charter(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Removes the charter of a prefix.
    pub async fn remove_charter(&self, prefix: &str, comment: &str) -> Result<(), Error> {
        let request = v1::RemoveCharter { prefix: prefix.into(), comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.remove_charter(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }
}
