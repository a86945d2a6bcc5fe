//! The grantor as one would explain it at a whiteboard: plain lists, linear scans, everything computed anew each time.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::{Answer, Style};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Reach};

/// A resource or a holder. Every name of a run is known beforehand.
pub type Name = &'static str;

/// Who holds and waits: an actor of a session, or a name without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    pub session: Option<u32>,
    pub holder: Name,
}

/// Something that a renewal extends.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub ttl: u64,
    pub renewed: u64,
    /// When it was last put on record as alive: in which tenure, and how many stalls there had been.
    pub tenure: u32,
    pub stalls: usize,
    /// Stall credit used up before `renewed`.
    pub used: u64,
}

#[derive(Clone, Debug)]
pub struct Session {
    pub reuse: u32,
    pub holder: Name,
    pub term: Term,
    pub secret: [u8; 32],
    pub waits_only: bool,
    pub over: bool,
    pub memory: BTreeMap<u64, (u64, Memory)>,
    pub lowest: u64,
}

/// How a request was answered.
#[derive(Clone, Debug)]
pub enum Memory {
    /// What was said, and when.
    Said(Result<Answer, Refusal>, u64),
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
    pub rides: bool,
    pub term: Term,
    pub granted: u64,
    pub priority: u8,
    pub depth: u32,
    pub max_hold: Option<u64>,
    pub progress: Option<Progress>,
    pub veto: Option<u64>,
    pub pinned: Option<u64>,
    pub drain: Option<Drain>,
    /// The draining lease that this one follows by overlap.
    pub predecessor: Option<usize>,
    /// It is such a draining lease, counted apart.
    pub apart: bool,
    pub end: Option<Reason>,
}

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub term: Term,
    /// As far as the journal knows, and as far as the grantor has heard.
    pub on_record: u64,
    pub seen: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Drain {
    pub until: u64,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    HandOff(Style, Name),
    Priority,
    Revoked(Reason),
}

impl Cause {
    pub fn reason(self) -> Reason {
        match self {
            Self::HandOff(..) => Reason::HandedOff,
            Self::Priority => Reason::Priority,
            Self::Revoked(reason) => reason,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Wait {
    /// Its place in the order of all waits.
    pub order: u64,
    /// What the journal calls it.
    pub place: Option<u32>,
    pub actor: Actor,
    pub asks: Vec<(Name, Access)>,
    pub several: bool,
    pub ttl: u64,
    pub priority: u8,
    pub until: u64,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub tag: Option<u64>,
    /// Only the order of queues held it: it may pass.
    pub passes: bool,
}

/// What is remembered of a resource besides leases and waits.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub capacity: Option<u32>,
    pub lasting: bool,
    pub confirmed: u64,
    pub for_operator: bool,
    pub floor: u64,
}

/// What one turn told and changed.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub told: BTreeMap<u64, Vec<Answer>>,
    pub ended: BTreeSet<(u32, u64, u8)>,
    pub draining: BTreeSet<(u32, u64)>,
    pub began: Vec<u64>,
    pub granted: Vec<u64>,
    pub zombies: Vec<(Name, u64)>,
}

/// What a hold took and what became of it (C2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Units {
    pub reserved: u64,
    pub confirmed: u64,
    pub given_back: u64,
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
    pub leases: Vec<Lease>,
    pub sessions: Vec<Session>,
    pub waits: Vec<Wait>,
    pub waits_ever: u64,
    pub places: BTreeMap<Name, Place>,
    pub deadlocks: u64,
    /// What fences reported.
    pub targets: BTreeMap<super::reports::Place, super::reports::Row>,
    pub units: Units,
    /// The driver's clock when this tenure began to serve, and the grantor time then; and at the last turn.
    pub anchor: (u64, u64),
    pub last_turn: u64,
    pub late: bool,
    pub turn: Turn,
}

impl Place {
    pub fn has_settings(&self) -> bool {
        self.lasting || self.confirmed > 0 || self.for_operator || self.floor > 0
    }
}

/// Units that an access takes; none if it is not counted in units.
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

pub fn reach(lease: &Lease) -> Reach {
    match lease.access {
        Access::Exclusive | Access::Slot => Reach::Slot(lease.slot),
        Access::Shared => Reach::Shared,
        Access::Units(_) => Reach::Units,
    }
}
