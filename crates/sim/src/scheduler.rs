//! Scheduler: real time, the event queue, random numbers, and the history.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use leasehold_core::ids::SessionId;

use crate::clock::SimTime;
use crate::fault::{Fault, FaultSet};
use crate::history::{Batch, History, HistoryEvent, PresentedWrite};
use crate::impostor::Impostors;
use crate::message::{MAX_ACTORS, Message, SimActor};
use crate::mutants::PlantedFault;
use crate::operators::Operators;
use crate::rng::SimRng;

/// A step of the journal.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum JournalStep {
    Append { generation: u64, sequence: u64, batch: Batch },
    Confirm { generation: u64 },
    Open,
}

/// Outcome of a journal step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum JournalOutcome {
    Durable,
    Confirmed,
    Opened { generation: u64 },
    Fenced,
    Full,
    Failed,
}

/// An event in the queue.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum ScheduledEvent {
    Deliver(SimActor, Message),
    Wake(SimActor),
    Journal { server: usize, boot: u32, ticket: u64, step: JournalStep },
    JournalDone { server: usize, boot: u32, ticket: u64, outcome: JournalOutcome },
    Flush { target: usize, boot: u32 },
    Apply { target: usize, id: u64, from: SimActor, presented: PresentedWrite, value: Option<u64> },
    Nemesis,
}

struct QueuedEvent(SimTime, u64, ScheduledEvent);

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// The scheduler of a run.
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct Scheduler {
    pub now: SimTime,
    pub rng: SimRng,
    pub faults: FaultSet,
    pub planted: Option<PlantedFault>,
    pub history: History,
    pub healed: bool,
    pub servers: usize,
    /// Sessions that were opened, for holders that try another holder's session.
    pub sessions: Vec<SessionId>,
    /// Whether requests present no tokens, so that only the clock raises numbers.
    pub hides_tokens: bool,
    /// The identities of holders and impostors, in a run with access rules.
    pub impostors: Option<Impostors>,
    /// The operators that need each other, in a run that has some.
    pub operators: Option<Operators>,
    ops: u64,
    queue: BinaryHeap<QueuedEvent>,
    order: u64,
    /// Blocked directions of the network, as `[from][to]`.
    pub(crate) blocked: [[bool; MAX_ACTORS]; MAX_ACTORS],
}

impl Scheduler {
    /// Creates a scheduler with an empty queue.
    pub fn new(mut rng: SimRng, faults: FaultSet, planted: Option<PlantedFault>, servers: usize) -> Self {
        let hides_tokens = rng.one_in(3);
        Self {
            now: 0,
            rng,
            faults,
            planted,
            history: History::default(),
            healed: false,
            servers,
            sessions: Vec::new(),
            hides_tokens,
            impostors: None,
            operators: None,
            ops: 0,
            queue: BinaryHeap::new(),
            order: 0,
            blocked: [[false; MAX_ACTORS]; MAX_ACTORS],
        }
    }

    /// Returns the number of a new request or write.
    pub const fn next_op(&mut self) -> u64 {
        self.ops += 1;
        self.ops
    }

    /// Whether to inject this fault now; never after healing.
    pub const fn should_inject(&mut self, fault: Fault, one_in: u64) -> bool {
        self.faults.has(fault) && !self.healed && self.rng.one_in(one_in)
    }

    /// A session other than `own`: a recent one, or an invented one.
    pub fn another_session(&mut self, own: SessionId) -> SessionId {
        let lately = self.sessions.iter().rev().filter(|other| **other != own).take(6);
        let lately: Vec<SessionId> = lately.copied().collect();
        if lately.is_empty() || self.rng.one_in(6) {
            return SessionId { slot: own.slot ^ (1 + self.rng.below(3) as u32), ..own };
        }
        *self.rng.pick(&lately)
    }

    /// Whether this fault is planted.
    pub fn is_planted(&self, planted: PlantedFault) -> bool {
        self.planted == Some(planted)
    }

    /// Appends an event to the history.
    pub fn record(&mut self, event: HistoryEvent) {
        self.history.add(self.now, event);
    }

    /// Appends an injected fault to the history.
    pub fn record_fault(&mut self, fault: Fault, detail: impl Into<String>) {
        self.record(HistoryEvent::FaultInjected { fault, detail: detail.into() });
    }

    /// Schedules an event.
    pub fn schedule(&mut self, at: SimTime, event: ScheduledEvent) {
        self.order += 1;
        self.queue.push(QueuedEvent(at.max(self.now), self.order, event));
    }

    /// Takes the next event and advances real time to it.
    pub fn next_event(&mut self) -> Option<ScheduledEvent> {
        let QueuedEvent(at, _, event) = self.queue.pop()?;
        self.now = at;
        Some(event)
    }
}
