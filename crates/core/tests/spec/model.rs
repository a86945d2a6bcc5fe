//! State of the reference grantor: plain lists and linear scans, with everything recomputed each time.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::{Answer, HandoffMode};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, TokenScope};

/// Name of a resource or holder. All names of a run are constants.
pub type Name = &'static str;

/// A holder or waiter: an actor of a session, or a name without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    pub session: Option<u32>,
    pub holder: Name,
}

/// The lifetime of something that can be renewed.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    pub ttl: u64,
    pub renewed: u64,
    /// Last recorded renewal: its tenure and the stall counter at that time.
    pub tenure: u32,
    pub stalls: usize,
    /// Stall credit that was used before `renewed`.
    pub used: u64,
}

#[derive(Clone, Debug)]
pub struct Session {
    pub reuse: u32,
    pub holder: Name,
    pub lifetime: Lifetime,
    pub secret: [u8; 32],
    pub waits_only: bool,
    pub ended: bool,
    pub stored: BTreeMap<u64, (u64, StoredReply)>,
    pub lowest: u64,
}

/// The stored reply to a request.
#[derive(Clone, Debug)]
pub enum StoredReply {
    /// The answer and its time.
    Answer(Result<Answer, Refusal>, u64),
    Granted(Vec<usize>),
    Waiting,
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub resource: Name,
    pub actor: Actor,
    pub number: u64,
    pub access: Access,
    pub slot: u32,
    pub follows_session: bool,
    pub lifetime: Lifetime,
    pub granted: u64,
    pub priority: u8,
    pub depth: u32,
    pub max_hold: Option<u64>,
    pub progress: Option<Progress>,
    pub veto: Option<u64>,
    pub pinned: Option<u64>,
    pub drain: Option<Drain>,
    /// The draining predecessor in an overlap handoff.
    pub predecessor: Option<usize>,
    /// The lease is a draining predecessor, which does not count against the capacity.
    pub is_predecessor: bool,
    pub end: Option<EndReason>,
}

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub lifetime: Lifetime,
    /// Recorded progress, and progress in memory.
    pub recorded: u64,
    pub seen: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Drain {
    pub until: u64,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    HandOff(HandoffMode, Name),
    Priority,
    Revoked(EndReason),
}

impl Cause {
    pub fn reason(self) -> EndReason {
        match self {
            Self::HandOff(..) => EndReason::HandedOff,
            Self::Priority => EndReason::Priority,
            Self::Revoked(reason) => reason,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Wait {
    /// Position in the order of all waits.
    pub order: u64,
    /// Number of the wait in the journal.
    pub slot: Option<u32>,
    pub actor: Actor,
    pub resources: Vec<(Name, Access)>,
    pub atomic: bool,
    pub ttl: u64,
    pub priority: u8,
    pub until: u64,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub tag: Option<u64>,
    /// Only queue order blocks it: it may overtake.
    pub may_pass: bool,
}

/// Settings of a resource.
#[derive(Clone, Debug, Default)]
pub struct ResourceSettings {
    pub capacity: Option<u32>,
    pub lasting: bool,
    pub confirmed: u64,
    pub for_operator: bool,
    pub floor: u64,
}

/// The output of one turn.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub answers: BTreeMap<u64, Vec<Answer>>,
    pub ended: BTreeSet<(u32, u64, u8)>,
    pub draining: BTreeSet<(u32, u64)>,
    pub new_waits: Vec<u64>,
    pub granted: Vec<u64>,
    pub zombies: Vec<(Name, u64)>,
    /// A presented token was below the counter and never issued.
    pub lost_below_counter: bool,
}

/// Accounting of reserved units (C2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Units {
    pub reserved: u64,
    pub confirmed: u64,
    pub released: u64,
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub max_ttl: u64,
    pub incarnation: u32,
    pub now: u64,
    pub wall: u64,
    pub counter: u64,
    pub tenure: u32,
    pub stalls: Vec<(u64, u64)>,
    pub quarantine: Option<(u64, bool)>,
    pub waived_until: u64,
    /// For each opening since the first: the counter before it, and the first number issued after it.
    pub openings: Vec<(u64, Option<u64>)>,
    pub leases: Vec<Lease>,
    pub sessions: Vec<Session>,
    pub waits: Vec<Wait>,
    pub wait_count: u64,
    pub settings: BTreeMap<Name, ResourceSettings>,
    pub deadlocks: u64,
    /// Fence reports.
    pub targets: BTreeMap<super::reports::FenceSlot, super::reports::FenceRow>,
    pub units: Units,
    /// Driver clock and grantor time at the start of this tenure, and the driver clock at the last turn.
    pub anchor: (u64, u64),
    pub last_turn: u64,
    pub late: bool,
    pub turn: Turn,
}

impl ResourceSettings {
    pub fn has_settings(&self) -> bool {
        self.lasting || self.confirmed > 0 || self.for_operator || self.floor > 0
    }
}

/// Units that an access takes; 0 if it does not use units.
pub fn units(access: Access) -> u64 {
    match access {
        Access::Exclusive | Access::Shared => 0,
        Access::Slot => 1,
        Access::Units(units) => u64::from(units),
    }
}

pub fn number(raw: u64) -> Number {
    Number::new(raw).expect("numbers stay in range here")
}

pub fn lease_id(i: usize) -> LeaseId {
    LeaseId { slot: i as u32, reuse: 0 }
}

impl Spec {
    pub fn session_id(&self, slot: u32) -> SessionId {
        SessionId { slot, reuse: self.sessions[slot as usize].reuse }
    }
}

pub fn scope(lease: &Lease) -> TokenScope {
    match lease.access {
        Access::Exclusive | Access::Slot => TokenScope::Slot(lease.slot),
        Access::Shared => TokenScope::Shared,
        Access::Units(_) => TokenScope::Units,
    }
}
