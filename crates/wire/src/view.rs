//! Encoding of views: leases, resources, waiters, sessions, deadlocks, usage and status.

use leasehold_core::grantor::{
    Deadlock, EndedLease, LeaseFilter, LeaseSort, LeaseView, ListedLease, ProposalView, ResourceView, SessionView,
    Status, Usage, WaiterView,
};
use leasehold_core::lease::EndReason;
use leasehold_core::name::{HolderName, Prefix};
use leasehold_core::refusal::Refusal;

use crate::enums::{decode_enum, encode_access, encode_optional, encode_scope, optional_enum};
use crate::problem::encode_cycle;
use crate::{MAX_LEASES_PER_VIEW, encode_charter, lease_bits, session_bits, v1};

/// Encodes a held lease.
pub fn lease_view(from: &LeaseView) -> v1::LeaseView {
    let (access, units) = encode_access(from.access);
    let (scope, slot) = encode_scope(from.scope);
    v1::LeaseView {
        lease: lease_bits(from.lease),
        resource: from.resource.clone(),
        holder: from.holder.clone(),
        session: from.session.map(session_bits),
        token_number: from.number.get(),
        access,
        units,
        scope,
        slot,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        granted_ms: from.granted.0,
        validity: v1::Validity::from(from.validity).into(),
        state: v1::LeaseState::from(from.state).into(),
        priority: from.priority.into(),
        draining: encode_optional::<_, v1::EndReason>(from.draining.map(|(reason, _)| reason)),
        drain_ms: from.draining.map_or(0, |(_, ms)| ms),
        predecessor: from.predecessor,
        progress: from.progress,
        metadata: from.metadata.clone(),
    }
}

/// Encodes a held lease of a listing.
pub fn listed_lease(from: &ListedLease) -> v1::ListedLease {
    v1::ListedLease {
        lease: Some(lease_view(&from.lease)),
        age_ms: from.age_ms,
        silent_ms: from.silent_ms,
        idle_ms: from.idle_ms,
        stuck: from.stuck,
        waiters: from.waiters as u64,
    }
}

impl v1::ListLeasesRequest {
    /// Decodes the filter and the sort key of a listing.
    pub fn to_filter(&self) -> Result<(LeaseFilter, Option<LeaseSort>), Refusal> {
        let invalid = |field, reason| Err(Refusal::Invalid { field, reason });
        Prefix::parse(&self.prefix)?;
        self.holder.as_deref().map(HolderName::parse).transpose()?;
        if let (Some(min), Some(max)) = (self.older_than_ms, self.younger_than_ms)
            && min >= max
        {
            return invalid("younger_than", "must be longer than older_than, or no lease can match");
        }
        let draining = match decode_enum::<v1::ListedState>(self.state, "state")? {
            v1::ListedState::Unspecified => None,
            v1::ListedState::Active => Some(false),
            v1::ListedState::Draining => Some(true),
        };
        let sort = optional_enum::<v1::LeaseSort, _>(self.sort, "sort")?;
        if self.descending && sort.is_none() {
            return invalid("order", "only with sort; name what to sort by");
        }
        let filter = LeaseFilter {
            prefix: self.prefix.clone(),
            holder: self.holder.clone(),
            min_age_ms: self.older_than_ms,
            max_age_ms: self.younger_than_ms,
            stuck: self.stuck,
            draining,
        };
        Ok((filter, sort))
    }
}

/// Encodes a resource with its first leases, at most [`MAX_LEASES_PER_VIEW`].
pub fn resource_view(from: &ResourceView) -> v1::ResourceView {
    v1::ResourceView {
        resource: from.resource.clone(),
        capacity: from.capacity,
        used: from.used,
        confirmed: from.confirmed,
        draining: from.draining,
        held_for_operator: from.held_for_operator,
        leases: from.leases.iter().take(MAX_LEASES_PER_VIEW).map(lease_view).collect(),
        waiters: from.waiters as u64,
        floor: from.floor,
        held: from.held as u64,
    }
}

/// Encodes a waiter.
pub fn waiter_view(from: &WaiterView) -> v1::WaiterView {
    let (access, units) = encode_access(from.access);
    v1::WaiterView {
        holder: from.holder.clone(),
        session: session_bits(from.session),
        access,
        units,
        priority: from.priority.into(),
        effective_priority: from.effective_priority.into(),
        remaining_ms: from.remaining_ms,
        seen_in_tenure: from.alive,
    }
}

/// Encodes a session.
pub fn session_view(from: &SessionView) -> v1::SessionView {
    v1::SessionView {
        session: session_bits(from.session),
        holder: from.holder.clone(),
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        suspect: from.suspect,
        leases: from.leases,
        waits: from.waits,
    }
}

/// Encodes a detected deadlock.
pub fn deadlock_view(from: &Deadlock) -> v1::DeadlockView {
    v1::DeadlockView { at_ms: from.at.0, cycle: Some(encode_cycle(&from.cycle)), victim: from.victim.clone() }
}

/// Encodes an ended lease.
pub fn ended_lease(from: &EndedLease) -> v1::EndedLease {
    v1::EndedLease {
        resource: from.resource.clone(),
        holder: from.holder.clone(),
        token_number: from.number,
        granted_ms: from.granted.0,
        ended_ms: from.ended.0,
        reason: v1::EndReason::from(from.reason).into(),
    }
}

/// Encodes a proposal.
pub fn proposal_view(from: ProposalView) -> v1::Proposal {
    v1::Proposal {
        proposal: from.proposal,
        action: from.action.into(),
        resource: from.resource,
        lease: from.lease.map(lease_bits),
        comment: from.comment,
        max_ttl_ms: from.max_ttl_ms,
        grace_ms: from.grace_ms,
        proposer: from.proposer,
        digest: from.digest.to_vec(),
        remaining_ms: from.remaining_ms,
        leases: from.leases,
        to: from.to,
        charter: from.charter.map(|charter| encode_charter(&charter)),
        handoff_mode: from.handoff_mode.map_or_else(String::new, |mode| mode.word().into()),
        drain_ms: from.drain_ms,
    }
}

/// Encodes the usage of a holder. Reasons with a count of 0 are omitted.
pub fn usage(holder: &str, from: &Usage) -> v1::Usage {
    let row = |reason: EndReason| {
        let at = usize::from(reason.code());
        v1::UsageRow { reason: v1::EndReason::from(reason).into(), count: from.ended[at], held_ms: from.held_ms[at] }
    };
    let rows = EndReason::ALL.into_iter().map(row).filter(|row| row.count != 0).collect();
    v1::Usage { holder: holder.into(), rows }
}

/// Encodes the usage of every counted holder, and of all others together under an empty name.
pub fn usage_list(holders: &[(String, Usage)], rest: &Usage) -> v1::UsageList {
    let mut list: Vec<_> = holders.iter().map(|(holder, used)| usage(holder, used)).collect();
    if *rest != Usage::default() {
        list.push(usage("", rest));
    }
    v1::UsageList { holders: list }
}

/// Encodes the status of the grantor at this journal position.
pub fn status_view(from: &Status, position: u64) -> v1::Status {
    v1::Status {
        cluster: from.cluster.to_string(),
        incarnation: from.incarnation.to_string(),
        generation: from.generation,
        tenure: from.tenure,
        validity: v1::Validity::from(from.validity).into(),
        time_ms: from.time.0,
        counter: from.counter,
        max_ttl_ms: from.max_ttl_ms,
        held: from.held as u64,
        sessions: from.sessions as u64,
        waiters: from.waiters as u64,
        totals: Some(usage("", &from.totals)),
        deadlocks: from.deadlocks,
        quarantine_ms: from.quarantine.map(|(ms, _)| ms),
        rolled_back: from.quarantine.is_some_and(|(_, rolled_back)| rolled_back),
        stalled_ms: from.stalled_ms,
        position,
    }
}
