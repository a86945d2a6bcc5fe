//! Views of leases, resources, waiters and sessions, and the status: what queries return.

use super::table::ended::Usage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason, LeaseState, Validity};
use crate::time::GrantorTime;
use crate::token::{Cluster, Incarnation, Number, TokenScope};

/// A held lease. It shows the token number, never the token text that fences accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The lease id.
    pub lease: LeaseId,
    /// The resource.
    pub resource: String,
    /// Name of the holder.
    pub holder: String,
    /// The session that carries it.
    pub session: Option<SessionId>,
    /// The token number.
    pub number: Number,
    /// How much of the resource it occupies.
    pub access: Access,
    /// What its token allows at a fence.
    pub scope: TokenScope,
    /// Time that one renewal adds; `None` if it lasts as long as its session.
    pub ttl_ms: Option<u64>,
    /// Time until it ends unless its deadline moves.
    pub remaining_ms: u64,
    /// Time of the grant, in grantor time.
    pub granted: GrantorTime,
    /// What its validity rests on.
    pub validity: Validity,
    /// Always held; ended leases are in the history.
    pub state: LeaseState,
    /// Its own priority, or the highest that waits for it (P2).
    pub priority: u8,
    /// The reason of a scheduled end, and the milliseconds until then.
    pub draining: Option<(EndReason, u64)>,
    /// Whether it is the predecessor of an overlap handoff, which does not count against the capacity.
    pub predecessor: bool,
    /// The last reported position of its work.
    pub progress: Option<u64>,
    /// Application data.
    pub metadata: Vec<u8>,
}

/// A resource with its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub resource: String,
    /// Number of units.
    pub capacity: u32,
    /// Units occupied by slots and reservations.
    pub used: u32,
    /// Units of commitments.
    pub confirmed: u64,
    /// Whether more units are used than the capacity, so that nothing is granted.
    pub draining: bool,
    /// Whether it is blocked for an operator after a revocation.
    pub held_for_operator: bool,
    /// Its leases in order of their token numbers, or the first of them.
    pub leases: Vec<LeaseView>,
    /// Number of its leases.
    pub held: usize,
    /// Number of waiters.
    pub waiters: usize,
    /// Position below which a collector may have deleted data.
    pub floor: u64,
}

/// A waiter of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Name of the waiting actor.
    pub holder: String,
    /// Its session.
    pub session: SessionId,
    /// How much of the resource it requests.
    pub access: Access,
    /// Its own priority.
    pub priority: u8,
    /// Its priority with inheritance.
    pub effective_priority: u8,
    /// Time until the wait ends.
    pub remaining_ms: u64,
    /// Whether its session was renewed in this tenure; until then it keeps its position but is not granted.
    pub alive: bool,
}

/// A resource with waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContendedResourceView {
    /// The resource with its first leases.
    pub view: ResourceView,
    /// Its first waiters, in the order of the queue.
    pub waiters: Vec<WaiterView>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The session id.
    pub session: SessionId,
    /// Name of the holder.
    pub holder: String,
    /// Time that one renewal adds.
    pub ttl_ms: u64,
    /// Time until it expires unless renewed.
    pub remaining_ms: u64,
    /// Whether it was not renewed for half its ttl.
    pub suspect: bool,
    /// Number of leases.
    pub leases: u32,
    /// Number of waits.
    pub waits: u32,
}

/// Status of the grantor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The cluster.
    pub cluster: Cluster,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The journal generation.
    pub generation: u64,
    /// Number of tenures so far.
    pub tenure: u32,
    /// What the validity of leases rests on.
    pub validity: Validity,
    /// Grantor time.
    pub time: GrantorTime,
    /// The highest token number issued.
    pub counter: u64,
    /// The longest ttl.
    pub max_ttl_ms: u64,
    /// Held leases.
    pub held: usize,
    /// Live sessions.
    pub sessions: usize,
    /// Waiters.
    pub waiters: usize,
    /// Ended leases by reason.
    pub totals: Usage,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Milliseconds until the quarantine ends, and whether a rollback caused it.
    pub quarantine: Option<(u64, bool)>,
    /// Milliseconds that the grantor stalled, in all tenures.
    pub stalled_ms: u64,
}
