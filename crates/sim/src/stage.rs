//! What every actor stands on: real time, the order of what comes next, the network, chance, and the history.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use leasehold_core::command::{Answer, Event as Notice};
use leasehold_core::ids::SessionId;
use leasehold_core::token::{Incarnation, Token};

use crate::ask::Ask;
use crate::chance::Chance;
use crate::clock::{At, MS};
use crate::fault::{Fault, Faults};
use crate::history::{Batch, Event, History, Shown};
use crate::planted::Planted;

/// How many servers there can be.
pub const SERVERS: usize = 3;
/// How many actors there can be in all.
const PLACES: usize = 32;

/// Who sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each says who")]
pub enum Actor {
    Server(usize),
    Target(usize),
    Operator,
    Holder(usize),
}

impl Actor {
    /// Its place in the network.
    pub const fn place(self) -> usize {
        match self {
            Self::Server(i) => i,
            Self::Target(i) => SERVERS + i,
            Self::Operator => SERVERS + 4,
            Self::Holder(i) => SERVERS + 5 + i,
        }
    }
}

/// A request on its way.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Letter {
    pub op: u64,
    /// How often it was sent before, so that an answer to an earlier copy is not taken for one to this.
    pub tries: u32,
    pub from: Actor,
    pub ask: Ask,
    pub id: Option<leasehold_core::command::RequestId>,
    pub shown: Option<Token>,
}

/// What is sent.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum Mail {
    Ask(Box<Letter>),
    Reply { op: u64, answer: Answer, incarnation: Incarnation },
    Elsewhere { op: u64, tries: u32 },
    Notice { session: SessionId, event: Notice },
    Write { id: u64, from: Actor, token: String, sequence: u64, value: Option<u64> },
    Written { id: u64, applied: bool },
}

/// One step of the journal's own.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum Step {
    Append { generation: u64, sequence: u64, batch: Batch },
    Confirm { generation: u64 },
    Open,
}

/// How a step of the journal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says how")]
pub enum Kept {
    Durable,
    StillMine,
    Opened { generation: u64 },
    Fenced,
    Full,
    Failed,
}

/// What comes next.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum Due {
    Deliver(Actor, Mail),
    Wake(Actor),
    Journal { server: usize, life: u32, ticket: u64, step: Step },
    Kept { server: usize, life: u32, ticket: u64, kept: Kept },
    Flush { target: usize, life: u32 },
    Apply { target: usize, id: u64, from: Actor, shown: Shown, value: Option<u64> },
    Nemesis,
}

struct Entry(At, u64, Due);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// The stage.
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Stage {
    pub at: At,
    pub chance: Chance,
    pub faults: Faults,
    pub planted: Option<Planted>,
    pub history: History,
    pub healed: bool,
    pub servers: usize,
    /// Every session that was told, for whoever tries another's.
    pub sessions: Vec<SessionId>,
    /// Nobody shows what it has seen, so that only the clock lifts numbers.
    pub shy: bool,
    ops: u64,
    queue: BinaryHeap<Entry>,
    order: u64,
    /// Who cannot reach whom.
    blocked: [[bool; PLACES]; PLACES],
}

impl Stage {
    /// An empty stage.
    pub fn new(mut chance: Chance, faults: Faults, planted: Option<Planted>, servers: usize) -> Self {
        let shy = chance.one_in(3);
        Self {
            at: 0,
            chance,
            faults,
            planted,
            history: History::default(),
            healed: false,
            servers,
            sessions: Vec::new(),
            shy,
            ops: 0,
            queue: BinaryHeap::new(),
            order: 0,
            blocked: [[false; PLACES]; PLACES],
        }
    }

    /// The number of a new request or write.
    pub const fn op(&mut self) -> u64 {
        self.ops += 1;
        self.ops
    }

    /// Whether this kind of trouble strikes now; never after everything is healed.
    pub const fn strikes(&mut self, fault: Fault, one_in: u64) -> bool {
        self.faults.has(fault) && !self.healed && self.chance.one_in(one_in)
    }

    /// Another session than this: one that was told lately, or made up.
    pub fn another_session(&mut self, own: SessionId) -> SessionId {
        let lately = self.sessions.iter().rev().filter(|told| **told != own).take(6);
        let lately: Vec<SessionId> = lately.copied().collect();
        if lately.is_empty() || self.chance.one_in(6) {
            return SessionId { slot: own.slot ^ (1 + self.chance.below(3) as u32), ..own };
        }
        *self.chance.pick(&lately)
    }

    /// Whether this fault is planted.
    pub fn is_planted(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// Puts something on the history.
    pub fn note(&mut self, event: Event) {
        self.history.add(self.at, event);
    }

    /// Puts a fault that struck on the history.
    pub fn struck(&mut self, fault: Fault, what: impl Into<String>) {
        self.note(Event::Struck { fault, what: what.into() });
    }

    /// Something will happen then.
    pub fn later(&mut self, at: At, due: Due) {
        self.order += 1;
        self.queue.push(Entry(at.max(self.at), self.order, due));
    }

    /// What happens next; real time moves there.
    pub fn take_next(&mut self) -> Option<Due> {
        let Entry(at, _, due) = self.queue.pop()?;
        self.at = at;
        Some(due)
    }

    /// Sends something, as well as the network can.
    pub fn send(&mut self, from: Actor, to: Actor, mail: Mail) {
        if self.blocked[from.place()][to.place()] {
            return;
        }
        if self.strikes(Fault::Loss, 12) {
            self.struck(Fault::Loss, format!("{from:?} to {to:?}"));
            return;
        }
        // A connection does not repeat what it carries; what comes twice was sent again by somebody who may.
        let may_repeat = match &mail {
            Mail::Ask(letter) => letter.id.is_some() || !letter.ask.begins(),
            _ => true,
        };
        if may_repeat && self.strikes(Fault::Twice, 12) {
            self.struck(Fault::Twice, format!("{from:?} to {to:?}"));
            let at = self.at + self.way();
            self.later(at, Due::Deliver(to, mail.clone()));
        }
        let at = self.at + self.way();
        self.later(at, Due::Deliver(to, mail));
    }

    /// How long something is on its way.
    pub fn way(&mut self) -> At {
        if self.strikes(Fault::Delay, 15) {
            let long = self.chance.between(50 * MS, 3_000 * MS);
            self.struck(Fault::Delay, format!("{} ms", long / MS));
            return long;
        }
        self.chance.between(100, 3 * MS)
    }

    /// Cuts or mends one direction between two places.
    pub const fn cut(&mut self, from: usize, to: usize, yes: bool) {
        self.blocked[from][to] = yes;
    }

    /// Mends the whole network.
    pub const fn mend(&mut self) {
        self.blocked = [[false; PLACES]; PLACES];
    }
}
