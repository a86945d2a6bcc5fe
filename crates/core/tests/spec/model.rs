//! The grantor as one would explain it at a whiteboard: plain lists, linear scans, everything computed anew each time.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::charter::{AfterRevocation, Charter};
use leasehold_core::command::{Answer, Current, Grant, Style};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason, Rung};
use leasehold_core::limits;
use leasehold_core::refusal::{Cycle, Refusal};
use leasehold_core::token::{Number, Reach};

use super::charters;

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
    pub units: Units,
    /// The driver's clock when this tenure began to serve, and the grantor time then; and at the last turn.
    pub anchor: (u64, u64),
    pub last_turn: u64,
    pub late: bool,
    pub turn: Turn,
}

impl Spec {
    pub fn new(max_ttl: u64) -> Self {
        Self {
            max_ttl,
            incarnation: 1,
            now: 0,
            wall: 0,
            counter: 0,
            tenure: 0,
            stalls: Vec::new(),
            quarantine: None,
            leases: Vec::new(),
            sessions: Vec::new(),
            waits: Vec::new(),
            waits_ever: 0,
            places: BTreeMap::new(),
            deadlocks: 0,
            units: Units::default(),
            anchor: (0, 0),
            last_turn: 0,
            late: false,
            turn: Turn::default(),
        }
    }

    /// A tenure begins: what was granted or alive in the one before gets a full ttl; everything else keeps its deadline.
    pub fn open(&mut self, wall: u64, restore: Option<(u32, Option<u64>)>) {
        self.wall = wall;
        if let Some((incarnation, floor)) = restore {
            self.incarnation = incarnation;
            self.counter = self.counter.max(floor.unwrap_or(0));
            self.counter = self.next_number() - 1;
            self.waits.clear();
            for session in &mut self.sessions {
                session.over = true;
            }
            for i in self.live() {
                self.end_lease(i, Reason::Restored);
            }
            self.places.retain(|_, place| place.has_settings());
            self.quarantine = Some((self.now + self.max_ttl, false));
        }
        self.counter = self.next_number() - 1;
        let (now, tenure, stalls) = (self.now, self.tenure, self.stalls.clone());
        let carry = |term: &mut Term| {
            if term.tenure == tenure {
                let since: u64 = stalls[term.stalls..].iter().map(|(_, ms)| ms).sum();
                term.used = since.min(term.ttl);
                term.renewed = now;
            }
        };
        for lease in &mut self.leases {
            carry(&mut lease.term);
            if let Some(progress) = &mut lease.progress {
                carry(&mut progress.term);
                progress.seen = progress.on_record;
            }
        }
        for session in &mut self.sessions {
            carry(&mut session.term);
        }
        for wait in &mut self.waits {
            wait.tag = None;
            wait.passes = false;
        }
        self.tenure += 1;
        self.turn = Turn::default();
    }

    /// Grantor time runs from here.
    pub fn serve(&mut self, instant: u64) {
        self.anchor = (instant, self.now);
        self.last_turn = instant;
    }

    pub fn begin_turn(&mut self, instant: u64, wall: u64) {
        let stall = (instant - self.last_turn).saturating_sub(limits::TURN_NORMAL);
        self.turn = Turn::default();
        self.late = stall > 0;
        self.last_turn = instant;
        self.now = self.anchor.1 + (instant - self.anchor.0);
        self.wall = wall;
        let quiet = self.live().is_empty() && self.sessions.iter().all(|session| session.over);
        if self.late && !quiet {
            self.stalls.push((self.now, stall));
        }
    }

    pub fn next_number(&self) -> u64 {
        (self.counter + 1).max(self.wall << 22)
    }

    pub fn term(&self, ttl: u64) -> Term {
        Term { ttl, renewed: self.now, tenure: self.tenure, stalls: self.stalls.len(), used: 0 }
    }

    /// A renewal; the first of a tenure goes on record.
    pub fn renewed(&self, term: Term) -> Term {
        let on_record = if term.tenure == self.tenure { term.stalls } else { self.stalls.len() };
        Term { renewed: self.now, tenure: self.tenure, stalls: on_record, used: 0, ..term }
    }

    /// A full ttl from the last renewal, and what the grantor stood still since, at most one ttl.
    pub fn deadline(&self, term: &Term) -> u64 {
        let stalled: u64 = self.stalls.iter().filter(|(at, _)| *at > term.renewed).map(|(_, ms)| ms).sum();
        term.renewed + term.ttl + stalled.min(term.ttl - term.used)
    }

    /// When a lease ends by itself, and why. What rides on a session ends with it.
    pub fn lease_deadline(&self, lease: &Lease) -> (u64, Reason) {
        let own = if lease.rides { u64::MAX } else { self.deadline(&lease.term).max(lease.veto.unwrap_or(0)) };
        let mut ends = vec![(own, Reason::Ttl)];
        ends.extend(lease.progress.map(|progress| (self.deadline(&progress.term), Reason::Stalled)));
        ends.extend(lease.max_hold.map(|most| (lease.granted + most, Reason::MaxHold)));
        ends.extend(lease.drain.map(|drain| (drain.until, drain.cause.reason())));
        // Of two ends at the same time the first of this list is told.
        *ends.iter().min_by_key(|(at, _)| at).expect("there is one")
    }

    /// How long a lease lives unless something moves its deadline.
    pub fn remaining(&self, lease: &Lease) -> u64 {
        let own = self.lease_deadline(lease).0;
        let end = match lease.actor.session {
            Some(session) if lease.rides => own.min(self.deadline(&self.sessions[session as usize].term)),
            _ => own,
        };
        end.saturating_sub(self.now)
    }

    /// The places of all held leases.
    pub fn live(&self) -> Vec<usize> {
        (0..self.leases.len()).filter(|i| self.leases[*i].end.is_none()).collect()
    }

    pub fn live_on(&self, resource: &str) -> Vec<usize> {
        self.live().into_iter().filter(|i| self.leases[*i].resource == resource).collect()
    }

    /// Those that count: without the draining predecessors of overlaps.
    pub fn counted_on(&self, resource: &str) -> Vec<&Lease> {
        self.live_on(resource).into_iter().map(|i| &self.leases[i]).filter(|lease| !lease.apart).collect()
    }

    pub fn carried_by(&self, session: u32) -> Vec<usize> {
        self.live().into_iter().filter(|i| self.leases[*i].actor.session == Some(session)).collect()
    }

    pub fn place(&self, resource: &str) -> Place {
        self.places.get(resource).cloned().unwrap_or_default()
    }

    pub fn charter(&self, resource: &str) -> Charter {
        charters::of(resource).unwrap_or_default()
    }

    pub fn capacity_known(&self, resource: &str) -> Option<u32> {
        self.place(resource).capacity.or(self.charter(resource).capacity)
    }

    pub fn capacity(&self, resource: &str) -> u32 {
        self.capacity_known(resource).unwrap_or(1)
    }

    /// Units that slots and holds take.
    pub fn used(&self, resource: &str) -> u64 {
        self.counted_on(resource).into_iter().map(|lease| units(lease.access)).sum()
    }

    /// Whether so much can be taken now (L1, C1).
    pub fn fits(&self, resource: &str, access: Access) -> bool {
        let leases = self.counted_on(resource);
        let all = |kinds: &[Access]| leases.iter().all(|lease| kinds.contains(&lease.access));
        let place = self.place(resource);
        if place.for_operator {
            return false;
        }
        let capacity = u64::from(self.capacity(resource));
        match access {
            Access::Exclusive => leases.is_empty(),
            Access::Shared => all(&[Access::Shared]),
            Access::Slot | Access::Units(_) => {
                let whole = leases.iter().any(|lease| units(lease.access) == 0);
                let slot_left = access != Access::Slot || u64::from(self.free_slot(resource)) < capacity;
                !whole && slot_left && self.used(resource) + place.confirmed + units(access) <= capacity
            }
        }
    }

    pub fn free_slot(&self, resource: &str) -> u32 {
        let leases = self.counted_on(resource);
        let taken = |slot| leases.iter().any(|lease| lease.access == Access::Slot && lease.slot == slot);
        (0..).find(|slot| !taken(*slot)).expect("some slot is free")
    }

    /// Whether anything is known about a name.
    pub fn is_known(&self, resource: &str) -> bool {
        !self.live_on(resource).is_empty() || self.is_waited_for(resource) || self.places.contains_key(resource)
    }

    pub fn is_waited_for(&self, resource: &str) -> bool {
        self.waits.iter().any(|wait| wait.asks.iter().any(|(name, _)| *name == resource))
    }

    /// Forgets what nobody set on purpose once nobody is there.
    pub fn tidy(&mut self) {
        let gone: Vec<Name> = self
            .places
            .iter()
            .filter(|(name, place)| !place.has_settings() && self.live_on(name).is_empty() && !self.is_waited_for(name))
            .map(|(name, _)| *name)
            .collect();
        for name in gone {
            self.places.remove(name);
        }
    }

    pub fn quarantined(&self) -> Result<(), Refusal> {
        match self.quarantine {
            Some((until, rolled_back)) if until > self.now => {
                Err(Refusal::Quarantined { remaining: until - self.now, rolled_back })
            }
            _ => Ok(()),
        }
    }

    pub fn tell(&mut self, tag: u64, answer: Answer) {
        self.turn.told.entry(tag).or_default().push(answer);
    }

    /// A lease is over. After a revocation by authority the resource may be left to an operator.
    pub fn end_lease(&mut self, i: usize, reason: Reason) {
        let resource = self.leases[i].resource;
        let authority = matches!(reason, Reason::Operator | Reason::Policy);
        if authority && self.charter(resource).after_revocation == AfterRevocation::HoldForOperator {
            self.places.entry(resource).or_default().for_operator = true;
        }
        self.end_plainly(i, reason);
    }

    /// An end by which nothing is left to an operator.
    pub fn end_plainly(&mut self, i: usize, reason: Reason) {
        let lease = &mut self.leases[i];
        lease.end = Some(reason);
        self.turn.ended.insert((i as u32, lease.number, reason.code()));
        if let Access::Units(units) = lease.access {
            self.units.given_back += u64::from(units);
        }
        for other in &mut self.leases {
            if other.predecessor == Some(i) {
                other.predecessor = None;
            }
        }
        self.tidy();
    }

    /// What a holder is told about its lease.
    pub fn current_now(&self, i: usize) -> Current {
        let lease = &self.leases[i];
        let left = |drain: Option<Drain>| drain.map(|drain| drain.until.saturating_sub(self.now));
        Current {
            number: number(lease.number),
            remaining_ms: self.remaining(lease),
            drain_ms: left(lease.drain),
            overlaps_ms: lease.predecessor.map(|before| left(self.leases[before].drain).unwrap_or(0)),
        }
    }

    pub fn grant_now(&self, i: usize) -> Grant {
        let lease = &self.leases[i];
        let current = self.current_now(i);
        let ttl_ms = match lease.actor.session {
            Some(session) if lease.rides => self.sessions[session as usize].term.ttl,
            _ => lease.term.ttl,
        };
        Grant {
            lease: lease_id(i),
            number: current.number,
            reach: reach(lease),
            ttl_ms,
            remaining_ms: current.remaining_ms,
            rung: Rung::Session,
            drain_ms: self.charter(lease.resource).handoff.unwrap_or_default().drain_ms,
            overlaps_ms: current.overlaps_ms,
            depth: 1 + lease.depth,
        }
    }

    /// A cycle of one: who asks for what only it could give.
    pub fn waits_for_itself(&self, actor: Actor, resource: Name) -> Refusal {
        let member =
            leasehold_core::refusal::Member { holder: actor.holder.to_owned(), waits_for: resource.to_owned() };
        Refusal::Deadlock(Box::new(Cycle { members: vec![member], length: 1 }))
    }
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

pub fn session_id(slot: u32) -> SessionId {
    SessionId { slot, reuse: 0 }
}

pub fn reach(lease: &Lease) -> Reach {
    match lease.access {
        Access::Exclusive | Access::Slot => Reach::Slot(lease.slot),
        Access::Shared => Reach::Shared,
        Access::Units(_) => Reach::Units,
    }
}
