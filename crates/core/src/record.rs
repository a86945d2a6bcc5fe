//! Journal records. The state of a grantor is the fold of its records.

mod codec;
mod expired_batch;

pub(crate) use codec::{decode_access, encode_access};
pub use expired_batch::ExpiredBatch;

use crate::access::Attribution;
use crate::codec::{DecodeError, Reader, Write};
use crate::command::HandoffMode;
use crate::coverage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason};
use crate::payload::{cache, delivery, state};
use crate::refusal::{Cycle, Refusal};
use crate::time::{GrantorTime, WallClock};
use crate::token::{Cluster, Incarnation, Number};
use crate::trace_context::TraceContext;

/// One journal record. Applying it is the only way the state changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant says what happened; the fields are named by the vocabulary")]
pub enum Record<'a> {
    /// A cluster is created.
    Created { cluster: Cluster, incarnation: Incarnation, max_ttl: u64 },
    /// A tenure starts; leases that were alive in the previous one get a full ttl.
    Opened { generation: u64, counter: u64 },
    /// Grantor time passed and nothing else happened.
    Idle,
    /// The grantor took no turn for this long; live leases get the time credited.
    Stalled { ms: u64 },
    /// The cluster continues from a backup; no lease in it can be renewed.
    Restored { incarnation: Incarnation, counter: u64, quarantine: GrantorTime },
    /// A presented token proved a rollback. The counter is raised above it, and nothing is granted until `quarantine`.
    RolledBack { presented: Number, counter: u64, quarantine: GrantorTime },
    /// An operator ended a quarantine early.
    QuarantineWaived { comment: &'a str },
    /// A session was opened.
    SessionOpened {
        session: SessionId,
        /// The identity that opened it; `None` for `local`.
        owner: Option<&'a str>,
        holder: &'a str,
        ttl: u32,
        secret: [u8; 32],
        waits_only: bool,
    },
    /// A session was renewed for the first time in this tenure.
    SessionAlive { session: u32 },
    /// A session ended, with all its leases and waits.
    SessionEnded { session: SessionId, reason: EndReason },
    /// A lease was granted.
    Granted(GrantRecord<'a>),
    /// A lease was re-entered, or left once.
    Depth { lease: u32, depth: u32 },
    /// A lease was renewed for the first time in this tenure.
    Alive { lease: u32 },
    /// A lease was renewed with a new ttl.
    Retimed { lease: u32, ttl: u32 },
    /// A lease ended.
    Ended { lease: u32, number: Number, reason: EndReason, hold: bool, comment: &'a str },
    /// Leases whose ttl ended.
    Expired(ExpiredBatch),
    /// A lease got a new token.
    Rotated { lease: u32, number: Number },
    /// The first progress in this tenure, or progress after the deadline of an earlier progress record.
    Progressed { lease: u32, at: u64 },
    /// A wait started.
    Waiting(WaitRecord<'a>),
    /// A wait ended without a grant.
    WaitEnded { waiter: u32, refusal: Refusal },
    /// A lease ends at this time: it is handed off, preempted, or revoked with grace.
    Draining { lease: u32, cause: DrainCause<'a>, until: GrantorTime },
    /// A pending preemption or handoff was canceled.
    DrainDropped { lease: u32 },
    /// The capacity of a resource was set.
    Capacity { resource: &'a str, units: u32, lasting: bool },
    /// A reservation became a commitment and ended as a lease.
    HoldConfirmed { lease: u32, number: Number },
    /// A reservation changed its number of units.
    HoldResized { lease: u32, units: u32 },
    /// A veto keeps a reservation until this time at most.
    Vetoed { lease: u32, until: GrantorTime },
    /// A reader pinned a position.
    Pinned { lease: u32, at: u64 },
    /// A collector may have deleted everything below this position.
    Floor { resource: &'a str, at: u64 },
    /// An operator freed a blocked resource.
    Freed { resource: &'a str, comment: &'a str },
    /// A charter was set.
    CharterSet {
        prefix: &'a str,
        charter: &'a [u8],
        comment: &'a str,
        /// The identity that set the first charter of the prefix; `None` for `local`, and for a charter that replaces another.
        owner: Option<&'a str>,
    },
    /// A charter was removed.
    CharterRemoved { prefix: &'a str, comment: &'a str },
    /// A request was answered; a retry gets the same answer.
    Answered { session: u32, sequence: u64, lowest: u64, digest: u64, outcome: StoredOutcome },
    /// A deadlock was found and resolved by this policy.
    Deadlocked { cycle: Cycle, victim: &'a str, policy: u8 },
    /// A change of the state stored under a resource.
    State(state::StateRecord),
    /// A change of a message queue.
    Delivery(delivery::DeliveryRecord),
    /// A change of a cached key.
    Cache(cache::CacheRecord),
    /// A change of a target's coverage.
    Coverage(coverage::CoverageRecord),
    /// An operator changed the longest ttl of the cluster.
    MaxTtlSet { max_ttl: u64, comment: &'a str },
    /// A dangerous command waits for the approval of a second identity.
    Proposed { proposal: u64, proposer: &'a str, credential: &'a str, command: &'a [u8], until: GrantorTime },
    /// A second identity approved a proposal; the records before it are its effect.
    ProposalApproved { proposal: u64, approver: &'a str, credential: &'a str },
    /// A proposal was withdrawn.
    ProposalCanceled { proposal: u64, by: &'a str },
    /// A dangerous command is executed without a second identity; the records after it are its effect. It changes no state.
    ActedAlone { action: &'a str, resource: &'a str, reason: &'a str },
    /// This identity caused the records that follow in the batch. It changes no state.
    AttributedTo(Attribution<'a>),
    /// No identity is recorded for the records that follow: time, the server itself or a `local` caller caused them.
    AttributionEnded,
    /// The request that was granted this lease belongs to a distributed trace. Nothing is decided by it.
    LeaseTraced { lease: u32, trace: TraceContext },
    /// The request that started this wait belongs to a distributed trace; so do the leases that it will be granted.
    WaitTraced { waiter: u32, trace: TraceContext },
}

/// The record of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct GrantRecord<'a> {
    pub lease: LeaseId,
    pub number: Number,
    pub resource: &'a str,
    pub session: Option<u32>,
    /// The identity that was granted a lease without a session; `None` for `local`. A lease in a session is of the session's owner.
    pub owner: Option<&'a str>,
    pub holder: &'a str,
    pub access: Access,
    /// The slot of an exclusive or slot lease.
    pub slot: u32,
    /// Zero: the lease lives as long as its session.
    pub ttl: u32,
    pub priority: u8,
    /// The wait that this grant completes, alone or together with other grants.
    pub waiter: Option<u32>,
    /// The predecessor in an overlap handoff.
    pub overlaps: Option<u32>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

/// The record of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct WaitRecord<'a> {
    pub waiter: u32,
    pub session: u32,
    pub holder: &'a str,
    pub resources: Vec<(&'a str, Access)>,
    pub atomic: bool,
    pub ttl: u32,
    pub priority: u8,
    pub until: GrantorTime,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

/// Why a lease is draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCause<'a> {
    /// It is handed off.
    Handoff {
        /// Gap or overlap.
        mode: HandoffMode,
        /// The successor's name; empty for the first waiter.
        to: &'a str,
    },
    /// A waiter with a higher priority preempts it.
    Priority,
    /// It is revoked with grace.
    Revoked {
        /// The end reason.
        reason: EndReason,
        /// Operator's comment.
        comment: &'a str,
    },
}

/// The stored outcome of a request, from which a retry is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredOutcome {
    /// Done.
    Done,
    /// Still waiting; the waiter holds the details.
    Waiting,
    /// These leases were granted.
    Granted(Vec<LeaseId>),
    /// Numbers from which the answer of a payload is rebuilt.
    Values(Vec<u64>),
    /// It was refused.
    Refused(Refusal),
}

/// Format version of a batch.
const VERSION: u8 = 1;

/// Header of a batch; the records follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Digest of the previous batch: the audit chain (A1).
    pub chain: [u8; 32],
    /// Grantor time of the turn.
    pub time: GrantorTime,
    /// Wall clock of the turn.
    pub wall: WallClock,
}

impl BatchHeader {
    /// Appends the encoded header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(VERSION);
        out.raw(&self.chain);
        out.num(self.time.0);
        out.num(self.wall.0);
    }

    /// Decodes a header and leaves the reader at the first record.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if from.u8()? != VERSION {
            return Err(from.wrong("a batch of another format version"));
        }
        Ok(Self { chain: from.array()?, time: GrantorTime(from.num()?), wall: WallClock(from.num()?) })
    }
}
