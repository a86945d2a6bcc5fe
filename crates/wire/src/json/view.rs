//! What is there, in JSON: numbers of tokens as texts, never the text that fences take.

use leasehold_core::lease::{Reason, Rung, State};
use serde::{Deserialize, Serialize};

use super::{maybe_word, word};
use crate::{lease_id, session_id, v1};

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseBody {
    /// The resource.
    pub resource: String,
    /// The lease's id.
    pub lease: String,
    /// Who holds it.
    pub holder: String,
    /// The session that carries it.
    pub session: Option<String>,
    /// Its token's number.
    pub token_number: String,
    /// `exclusive`, `shared`, `slot` or `units`.
    pub access: String,
    /// How many units, with `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// The slot; none for readers and for units without a slot.
    pub slot: Option<u32>,
    /// How long a renewal lasts; absent: as long as the session's.
    pub ttl_ms: Option<u64>,
    /// How long it lives.
    pub remaining_ms: u64,
    /// When it was granted, in grantor time.
    pub granted_ms: u64,
    /// What it stands on.
    pub rung: String,
    /// `held`.
    pub state: String,
    /// Its own priority, or the highest that waits for it.
    pub priority: u32,
    /// It must be given up: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// And within how many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// It is the predecessor of an overlap handoff.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// How far its work was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Words for people and discovery; bytes that are no text are shown as replacement characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

impl From<v1::LeaseView> for LeaseBody {
    fn from(from: v1::LeaseView) -> Self {
        let draining = maybe_word::<v1::Reason, _>(from.draining, Reason::word);
        Self {
            lease: lease_id(from.lease).to_string(),
            session: from.session.map(|bits| session_id(bits).to_string()),
            token_number: from.token_number.to_string(),
            access: access(from.access).into(),
            units: (from.access == v1::Access::Units as i32).then_some(from.units),
            slot: (from.reach == v1::Reach::Slot as i32).then_some(from.slot),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            granted_ms: from.granted_ms,
            rung: word::<v1::Rung, _>(from.rung, Rung::word),
            state: word::<v1::State, _>(from.state, State::word),
            priority: from.priority,
            drain_ms: draining.is_some().then_some(from.drain_ms),
            draining,
            apart: from.apart,
            progress: from.progress.map(|at| at.to_string()),
            metadata: String::from_utf8_lossy(&from.metadata).into_owned(),
            resource: from.resource,
            holder: from.holder,
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

/// A resource and what stands at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceBody {
    /// Its name.
    pub resource: String,
    /// Units there are.
    pub capacity: u32,
    /// Units taken.
    pub used: u32,
    /// Units that became commitments.
    pub confirmed: u64,
    /// It is below its use and lets nobody in.
    pub draining: bool,
    /// A revocation left it to an operator.
    pub held_for_operator: bool,
    /// How many leases there are.
    pub held: u64,
    /// The first of them, in order of their numbers.
    pub leases: Vec<LeaseBody>,
    /// How many wait.
    pub waiters: u64,
    /// What a collector may have deleted below.
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

/// Resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourcesBody {
    /// The resources.
    pub resources: Vec<ResourceBody>,
    /// Where to go on, if there is more.
    pub next: Option<u32>,
    /// The journal position it shows.
    #[serde(default)]
    pub position: u64,
}

impl From<v1::ResourceList> for ResourcesBody {
    fn from(from: v1::ResourceList) -> Self {
        Self {
            resources: from.resources.into_iter().map(Into::into).collect(),
            next: from.next,
            position: from.position,
        }
    }
}

/// Who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaiterBody {
    /// Who.
    pub holder: String,
    /// Of which session.
    pub session: String,
    /// `exclusive`, `shared`, `slot` or `units`.
    pub access: String,
    /// How many units, with `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Its own priority.
    pub priority: u32,
    /// The priority it stands at.
    pub effective: u32,
    /// How long it still waits.
    pub remaining_ms: u64,
    /// Whether it was heard in this tenure.
    pub heard: bool,
}

impl From<v1::WaiterView> for WaiterBody {
    fn from(from: v1::WaiterView) -> Self {
        Self {
            holder: from.holder,
            session: session_id(from.session).to_string(),
            access: access(from.access).into(),
            units: (from.access == v1::Access::Units as i32).then_some(from.units),
            priority: from.priority,
            effective: from.effective,
            remaining_ms: from.remaining_ms,
            heard: from.heard,
        }
    }
}

/// One actor of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CycleMemberBody {
    /// Its name.
    pub holder: String,
    /// A resource it waits for, held by the next member.
    pub waits_for: String,
}

impl From<v1::CycleMember> for CycleMemberBody {
    fn from(from: v1::CycleMember) -> Self {
        Self { holder: from.holder, waits_for: from.waits_for }
    }
}

/// A found deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadlockBody {
    /// When, in grantor time.
    pub at_ms: u64,
    /// The first members, in the order of the cycle.
    pub cycle: Vec<CycleMemberBody>,
    /// How many there are in all.
    pub length: u64,
    /// Who paid; none if it was only reported.
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
pub struct EndedBody {
    /// The resource.
    pub resource: String,
    /// Who held it.
    pub holder: String,
    /// Its token's number.
    pub token_number: String,
    /// When it was granted, in grantor time.
    pub granted_ms: u64,
    /// When it ended, in grantor time.
    pub ended_ms: u64,
    /// `expired` or `revoked`.
    pub state: String,
    /// Why.
    pub reason: String,
}

impl From<v1::Ended> for EndedBody {
    fn from(from: v1::Ended) -> Self {
        Self {
            resource: from.resource,
            holder: from.holder,
            token_number: from.token_number.to_string(),
            granted_ms: from.granted_ms,
            ended_ms: from.ended_ms,
            state: word::<v1::Reason, _>(from.reason, |reason: Reason| reason.state().word()),
            reason: word::<v1::Reason, _>(from.reason, Reason::word),
        }
    }
}

/// How many ended for one reason, and how long they were held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRowBody {
    /// `expired` or `revoked`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub ended: u64,
    /// For how long together.
    pub held_ms: u64,
}

impl From<v1::UsageRow> for UsageRowBody {
    fn from(from: v1::UsageRow) -> Self {
        Self {
            state: word::<v1::Reason, _>(from.reason, |reason: Reason| reason.state().word()),
            reason: word::<v1::Reason, _>(from.reason, Reason::word),
            ended: from.ended,
            held_ms: from.held_ms,
        }
    }
}

/// What a holder used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageBody {
    /// The holder; empty for all others together.
    pub holder: String,
    /// By end reason.
    pub rows: Vec<UsageRowBody>,
}

impl From<v1::Usage> for UsageBody {
    fn from(from: v1::Usage) -> Self {
        Self { holder: from.holder, rows: from.rows.into_iter().map(Into::into).collect() }
    }
}

/// The grantor in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusBody {
    /// Which cluster.
    pub cluster: String,
    /// Which life of it.
    pub incarnation: String,
    /// The journal's generation.
    pub generation: u64,
    /// How many tenures there were.
    pub tenure: u32,
    /// What leases stand on.
    pub rung: String,
    /// Grantor time.
    pub time_ms: u64,
    /// The highest number given out.
    pub counter: String,
    /// The longest ttl.
    pub max_ttl_ms: u64,
    /// Held leases.
    pub held: u64,
    /// Live sessions.
    pub sessions: u64,
    /// Waiters.
    pub waiters: u64,
    /// Ended leases by reason.
    pub ended: Vec<UsageRowBody>,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Nothing is granted for so long.
    pub quarantine_ms: Option<u64>,
    /// Whether a rollback is why.
    pub rolled_back: bool,
    /// Milliseconds the grantor stood still, ever.
    pub stalled_ms: u64,
    /// The journal position it shows.
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
            rung: word::<v1::Rung, _>(from.rung, Rung::word),
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
