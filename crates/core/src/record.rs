//! What is put on record: the facts that a grantor's state is the fold of.

mod bytes;
mod expired;

pub(crate) use bytes::{decode_access, encode_access};
pub use expired::Expired;

use crate::codec::{Malformed, Reader, Write};
use crate::command::Style;
use crate::coverage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, Reason};
use crate::payload::{cache, delivery, state};
use crate::refusal::{Cycle, Refusal};
use crate::time::{Millis, Wall};
use crate::token::{Cluster, Incarnation, Number};

/// One fact. Applying it is the only way the state changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant says what happened; the fields are named by the vocabulary")]
pub enum Record<'a> {
    /// A cluster begins.
    Created { cluster: Cluster, incarnation: Incarnation, max_ttl: u64 },
    /// A tenure begins; leases alive in the one before get a full ttl.
    Opened { generation: u64, counter: u64 },
    /// Time was served and nothing else happened.
    Idle,
    /// The grantor stood still for so long; live holders are credited.
    Stalled { ms: u64 },
    /// The cluster lives on from a backup; nothing in it is renewable.
    Restored { incarnation: Incarnation, counter: u64, quarantine: Millis },
    /// A shown token proved a rollback: the counter is above it, and nothing is granted until then.
    RolledBack { shown: Number, counter: u64, quarantine: Millis },
    /// An operator ended a quarantine early.
    QuarantineWaived { why: &'a str },
    /// A session began.
    SessionOpened { session: SessionId, holder: &'a str, ttl: u32, secret: [u8; 32], waits_only: bool },
    /// A session was renewed for the first time in this tenure.
    SessionAlive { session: u32 },
    /// A session is over, with all it held and waited for.
    SessionEnded { session: SessionId, reason: Reason },
    /// A lease is held.
    Granted(Granted<'a>),
    /// A hold was entered again, or left once.
    Depth { lease: u32, depth: u32 },
    /// A lease was renewed for the first time in this tenure.
    Alive { lease: u32 },
    /// A lease's ttl changed; it was renewed with it.
    Retimed { lease: u32, ttl: u32 },
    /// A lease is over.
    Ended { lease: u32, number: Number, reason: Reason, hold: bool, why: &'a str },
    /// Leases are over by their ttl.
    Expired(Expired),
    /// A lease has a new token.
    Rotated { lease: u32, number: Number },
    /// The first progress in this tenure, or progress after an earlier record's deadline was kept.
    Progressed { lease: u32, at: u64 },
    /// A wait began.
    Waiting(Waiting<'a>),
    /// A wait is over without a grant.
    WaitEnded { waiter: u32, why: Refusal },
    /// A lease must be given up by then: handed off, pre-empted, or revoked with grace.
    Draining { lease: u32, cause: Cause<'a>, until: Millis },
    /// A pending pre-emption or handoff is off.
    DrainDropped { lease: u32 },
    /// A resource's capacity.
    Capacity { resource: &'a str, units: u32, lasting: bool },
    /// A hold became a commitment and is over as a lease.
    HoldConfirmed { lease: u32, number: Number },
    /// A hold has another size.
    HoldResized { lease: u32, units: u32 },
    /// An obligation keeps a hold until then at most.
    Vetoed { lease: u32, until: Millis },
    /// A reader pins a position.
    Pinned { lease: u32, at: u64 },
    /// A collector may have deleted everything below.
    Floor { resource: &'a str, at: u64 },
    /// A resource held for an operator is free again.
    Freed { resource: &'a str, why: &'a str },
    /// A charter stands.
    CharterSet { prefix: &'a str, charter: &'a [u8], why: &'a str },
    /// A charter is gone.
    CharterRemoved { prefix: &'a str, why: &'a str },
    /// A request was answered; a retry is told the same.
    Answered { session: u32, sequence: u64, lowest: u64, digest: u64, outcome: Outcome },
    /// A deadlock was found, and what was done.
    Deadlocked { cycle: Cycle, victim: &'a str, policy: u8 },
    /// Small state.
    State(state::Fact),
    /// A queue.
    Delivery(delivery::Fact),
    /// A cached key.
    Cache(cache::Fact),
    /// A target and its fence.
    Coverage(coverage::Fact),
}

/// A lease as it is put on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Granted<'a> {
    pub lease: LeaseId,
    pub number: Number,
    pub resource: &'a str,
    pub session: Option<u32>,
    pub holder: &'a str,
    pub access: Access,
    /// The slot of an exclusive or slot lease.
    pub slot: u32,
    /// Zero: it lives as long as its session.
    pub ttl: u32,
    pub priority: u8,
    /// The wait that this grant ends, or one of several grants that end it.
    pub waiter: Option<u32>,
    /// The lease that this one follows by an overlap handoff.
    pub overlaps: Option<u32>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

/// A wait as it is put on record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Waiting<'a> {
    pub waiter: u32,
    pub session: u32,
    pub holder: &'a str,
    pub asks: Vec<(&'a str, Access)>,
    pub several: bool,
    pub ttl: u32,
    pub priority: u8,
    pub until: Millis,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

/// Why a lease must be given up by a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause<'a> {
    /// It is handed off, to a named holder or to whoever is first.
    HandOff {
        /// Gap or overlap.
        style: Style,
        /// The successor's name; empty for the first waiter.
        to: &'a str,
    },
    /// A higher priority waits.
    Priority,
    /// Authority takes it, with notice.
    Revoked {
        /// By whom.
        reason: Reason,
        /// In words.
        why: &'a str,
    },
}

/// The remembered end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Still waiting; the wait itself knows.
    Waiting,
    /// These leases were granted.
    Granted(Vec<LeaseId>),
    /// Numbers from which a payload's answer is told again.
    Values(Vec<u64>),
    /// It was refused.
    Refused(Refusal),
}

/// The format of a batch.
const VERSION: u8 = 1;

/// What stands before a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The digest of the batch before this one: the audit chain (A1).
    pub chain: [u8; 32],
    /// Grantor time of the turn.
    pub time: Millis,
    /// The wall clock of the turn.
    pub wall: Wall,
}

impl Header {
    /// Writes the header; records follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(VERSION);
        out.raw(&self.chain);
        out.num(self.time.0);
        out.num(self.wall.0);
    }

    /// Reads a header; what is left are records.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != VERSION {
            return Err(from.wrong("a batch of another format version"));
        }
        Ok(Self { chain: from.array()?, time: Millis(from.num()?), wall: Wall(from.num()?) })
    }
}
