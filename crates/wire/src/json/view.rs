//! Bodies of queries: leases, resources, waiters, deadlocks, usage and status. They carry token numbers, never token texts.

use leasehold_core::lease::{EndReason, LeaseState, Validity};
use serde::{Deserialize, Serialize};

use super::{ended_state, enum_word, optional_enum_word};
use crate::{lease_id, session_id, v1};

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseBody {
    /// Name of the resource.
    pub resource: String,
    /// Id of the lease.
    pub lease: String,
    /// Name of the holder.
    pub holder: String,
    /// Id of the session that carries the lease.
    pub session: Option<String>,
    /// Number of the fencing token.
    pub token_number: String,
    /// `exclusive`, `shared`, `slot` or `units`.
    pub access: String,
    /// Number of units; only with `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Slot number; null for shared leases and for unnumbered units.
    pub slot: Option<u32>,
    /// Lifetime after each renewal; null if the lease lives as long as its session.
    pub ttl_ms: Option<u64>,
    /// Remaining lifetime unless renewed.
    pub remaining_ms: u64,
    /// Grantor time of the grant.
    pub granted_ms: u64,
    /// What the validity of the lease rests on: `session`, `quorum` or `issuer`.
    pub validity: String,
    /// `held`.
    pub state: String,
    /// Effective priority: the lease's own, or the highest among its waiters.
    pub priority: u32,
    /// The lease is being drained, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// Remaining drain time; only while draining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The lease is the predecessor in an overlap handoff and does not count against the capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub predecessor: bool,
    /// Last reported progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Text for people and service discovery; bytes that are not UTF-8 appear as replacement characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

impl From<v1::LeaseView> for LeaseBody {
    fn from(from: v1::LeaseView) -> Self {
        let draining = optional_enum_word::<v1::EndReason, _>(from.draining, EndReason::word);
        Self {
            lease: lease_id(from.lease).to_string(),
            session: from.session.map(|bits| session_id(bits).to_string()),
            token_number: from.token_number.to_string(),
            access: access(from.access).into(),
            units: (from.access == v1::Access::Units as i32).then_some(from.units),
            slot: (from.scope == v1::TokenScope::Slot as i32).then_some(from.slot),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            granted_ms: from.granted_ms,
            validity: enum_word::<v1::Validity, _>(from.validity, Validity::word),
            state: enum_word::<v1::LeaseState, _>(from.state, LeaseState::word),
            priority: from.priority,
            drain_ms: draining.is_some().then_some(from.drain_ms),
            draining,
            predecessor: from.predecessor,
            progress: from.progress.map(|at| at.to_string()),
            metadata: String::from_utf8_lossy(&from.metadata).into_owned(),
            resource: from.resource,
            holder: from.holder,
        }
    }
}

/// A held lease in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedLeaseBody {
    /// The lease.
    pub lease: LeaseBody,
    /// Time since the grant.
    pub age_ms: u64,
    /// Time since the last renewal of the lease, or of its session if it lives as long as that. A change of leader renews both.
    pub silent_ms: u64,
    /// Time since the last progress; null if the lease requires none.
    pub idle_ms: Option<u64>,
    /// Nothing renewed the lease for half its ttl, or it made no progress for half the time in which it has to. At the whole time it
    /// ends.
    pub stuck: bool,
    /// Number of waiters of the resource.
    pub waiters: u64,
}

impl From<v1::ListedLease> for ListedLeaseBody {
    fn from(from: v1::ListedLease) -> Self {
        Self {
            lease: from.lease.unwrap_or_default().into(),
            age_ms: from.age_ms,
            silent_ms: from.silent_ms,
            idle_ms: from.idle_ms,
            stuck: from.stuck,
            waiters: from.waiters,
        }
    }
}

/// One page of a listing. It may have fewer leases than the limit, or none, although others follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedLeasesBody {
    /// The leases.
    pub leases: Vec<ListedLeaseBody>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// Journal position of this answer.
    #[serde(default)]
    pub position: u64,
}

impl From<v1::ListedLeases> for ListedLeasesBody {
    fn from(from: v1::ListedLeases) -> Self {
        Self {
            leases: from.leases.into_iter().map(Into::into).collect(),
            next_cursor: (!from.next_cursor.is_empty()).then_some(from.next_cursor),
            position: from.position,
        }
    }
}

fn access(raw: i32) -> &'static str {
    match v1::Access::try_from(raw) {
        Ok(v1::Access::Exclusive) => "exclusive",
        Ok(v1::Access::Shared) => "shared",
        Ok(v1::Access::Slot) => "slot",
        Ok(v1::Access::Units) => "units",
        Err(_) => "",
    }
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceBody {
    /// Name.
    pub resource: String,
    /// Capacity in units.
    pub capacity: u32,
    /// Units in use by leases.
    pub used: u32,
    /// Units that were turned into commitments.
    pub confirmed: u64,
    /// The capacity is below the use: nothing is granted until leases end.
    pub draining: bool,
    /// A revocation reserved the resource for an operator.
    pub held_for_operator: bool,
    /// Number of all leases.
    pub held: u64,
    /// The first leases, by token number.
    pub leases: Vec<LeaseBody>,
    /// Number of waiters.
    pub waiters: u64,
    /// Position below which a collector may have deleted data.
    pub floor: String,
}

impl From<v1::ResourceView> for ResourceBody {
    fn from(from: v1::ResourceView) -> Self {
        Self {
            resource: from.resource,
            capacity: from.capacity,
            used: from.used,
            confirmed: from.confirmed,
            draining: from.draining,
            held_for_operator: from.held_for_operator,
            held: from.held,
            leases: from.leases.into_iter().map(Into::into).collect(),
            waiters: from.waiters,
            floor: from.floor.to_string(),
        }
    }
}

/// One page of resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourcesBody {
    /// The resources.
    pub resources: Vec<ResourceBody>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<u32>,
    /// Journal position of this answer.
    #[serde(default)]
    pub position: u64,
}

impl From<v1::ResourceList> for ResourcesBody {
    fn from(from: v1::ResourceList) -> Self {
        Self {
            resources: from.resources.into_iter().map(Into::into).collect(),
            next_cursor: from.next_cursor,
            position: from.position,
        }
    }
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaiterBody {
    /// Name of the holder.
    pub holder: String,
    /// Id of the session.
    pub session: String,
    /// `exclusive`, `shared`, `slot` or `units`.
    pub access: String,
    /// Number of units; only with `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Own priority.
    pub priority: u32,
    /// The priority in the queue, which may be inherited.
    pub effective_priority: u32,
    /// Remaining wait time.
    pub remaining_ms: u64,
    /// Whether the server has heard from the waiter in this tenure. Others are not granted yet.
    pub seen_in_tenure: bool,
}

impl From<v1::WaiterView> for WaiterBody {
    fn from(from: v1::WaiterView) -> Self {
        Self {
            holder: from.holder,
            session: session_id(from.session).to_string(),
            access: access(from.access).into(),
            units: (from.access == v1::Access::Units as i32).then_some(from.units),
            priority: from.priority,
            effective_priority: from.effective_priority,
            remaining_ms: from.remaining_ms,
            seen_in_tenure: from.seen_in_tenure,
        }
    }
}

/// One member of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CycleMemberBody {
    /// Name.
    pub holder: String,
    /// A resource that this member waits for and the next member holds.
    pub waits_for: String,
}

impl From<v1::CycleMember> for CycleMemberBody {
    fn from(from: v1::CycleMember) -> Self {
        Self { holder: from.holder, waits_for: from.waits_for }
    }
}

/// A detected deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadlockBody {
    /// Grantor time of the detection.
    pub at_ms: u64,
    /// The first members, in the order of the cycle.
    pub cycle: Vec<CycleMemberBody>,
    /// Number of all members.
    pub length: u64,
    /// The holder whose wait or lease was sacrificed; null if the deadlock was only reported.
    pub victim: Option<String>,
}

impl From<v1::DeadlockView> for DeadlockBody {
    fn from(from: v1::DeadlockView) -> Self {
        let cycle = from.cycle.unwrap_or_default();
        Self {
            at_ms: from.at_ms,
            length: cycle.length,
            cycle: cycle.members.into_iter().map(Into::into).collect(),
            victim: (!from.victim.is_empty()).then_some(from.victim),
        }
    }
}

/// An ended lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndedLeaseBody {
    /// Name of the resource.
    pub resource: String,
    /// Name of the holder.
    pub holder: String,
    /// Number of the fencing token.
    pub token_number: String,
    /// Grantor time of the grant.
    pub granted_ms: u64,
    /// Grantor time of the end.
    pub ended_ms: u64,
    /// `released`, `expired` or `revoked`.
    pub state: String,
    /// Reason of the end.
    pub reason: String,
}

impl From<v1::EndedLease> for EndedLeaseBody {
    fn from(from: v1::EndedLease) -> Self {
        Self {
            resource: from.resource,
            holder: from.holder,
            token_number: from.token_number.to_string(),
            granted_ms: from.granted_ms,
            ended_ms: from.ended_ms,
            state: enum_word::<v1::EndReason, _>(from.reason, ended_state),
            reason: enum_word::<v1::EndReason, _>(from.reason, EndReason::word),
        }
    }
}

/// Ended leases with one end reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRowBody {
    /// `released`, `expired` or `revoked`.
    pub state: String,
    /// Reason of the end.
    pub reason: String,
    /// Number of ended leases.
    pub count: u64,
    /// Total time they were held.
    pub held_ms: u64,
}

impl From<v1::UsageRow> for UsageRowBody {
    fn from(from: v1::UsageRow) -> Self {
        Self {
            state: enum_word::<v1::EndReason, _>(from.reason, ended_state),
            reason: enum_word::<v1::EndReason, _>(from.reason, EndReason::word),
            count: from.count,
            held_ms: from.held_ms,
        }
    }
}

/// Usage of one holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageBody {
    /// Name of the holder; empty for all other holders together.
    pub holder: String,
    /// One row per end reason.
    pub rows: Vec<UsageRowBody>,
}

impl From<v1::Usage> for UsageBody {
    fn from(from: v1::Usage) -> Self {
        Self { holder: from.holder, rows: from.rows.into_iter().map(Into::into).collect() }
    }
}

/// Status and counters of the grantor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusBody {
    /// The cluster, as printed in tokens.
    pub cluster: String,
    /// The incarnation of the cluster. It changes with every restore from a backup.
    pub incarnation: String,
    /// Generation of the journal.
    pub generation: u64,
    /// Number of tenures so far.
    pub tenure: u32,
    /// What the validity of leases rests on: `session`, `quorum` or `issuer`.
    pub validity: String,
    /// Grantor time.
    pub time_ms: u64,
    /// The highest token number issued so far.
    pub counter: String,
    /// Maximum ttl.
    pub max_ttl_ms: u64,
    /// Number of held leases.
    pub held: u64,
    /// Number of live sessions.
    pub sessions: u64,
    /// Number of waiters.
    pub waiters: u64,
    /// Ended leases by end reason.
    pub ended: Vec<UsageRowBody>,
    /// Number of detected deadlocks.
    pub deadlocks: u64,
    /// Remaining time of a quarantine, in which nothing is granted.
    pub quarantine_ms: Option<u64>,
    /// Whether a rollback caused the quarantine.
    pub rolled_back: bool,
    /// Total time in which the grantor was stalled.
    pub stalled_ms: u64,
    /// Journal position of this answer.
    #[serde(default)]
    pub position: u64,
}

impl From<v1::Status> for StatusBody {
    fn from(from: v1::Status) -> Self {
        Self {
            cluster: from.cluster,
            incarnation: from.incarnation,
            generation: from.generation,
            tenure: from.tenure,
            validity: enum_word::<v1::Validity, _>(from.validity, Validity::word),
            time_ms: from.time_ms,
            counter: from.counter.to_string(),
            max_ttl_ms: from.max_ttl_ms,
            held: from.held,
            sessions: from.sessions,
            waiters: from.waiters,
            ended: from.totals.unwrap_or_default().rows.into_iter().map(Into::into).collect(),
            deadlocks: from.deadlocks,
            quarantine_ms: from.quarantine_ms,
            rolled_back: from.rolled_back,
            stalled_ms: from.stalled_ms,
            position: from.position,
        }
    }
}
