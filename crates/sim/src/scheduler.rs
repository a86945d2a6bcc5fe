//! Scheduler: real time, the event queue, the network, random numbers, and the history.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use leasehold_core::command::{Answer, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::token::{Incarnation, Token};

use crate::clock::{MS, SimTime};
use crate::fault::{Fault, FaultSet};
use crate::history::{Batch, History, HistoryEvent, PresentedWrite};
use crate::planted_fault::PlantedFault;
use crate::request::SimRequest;
use crate::rng::SimRng;

/// Maximum number of servers.
pub const SERVERS: usize = 3;
/// Maximum number of actors.
const MAX_ACTORS: usize = 32;

/// A sender or receiver of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum SimActor {
    Server(usize),
    Target(usize),
    Operator,
    Holder(usize),
}

impl SimActor {
    /// Index of the actor in the network.
    pub const fn index(self) -> usize {
        match self {
            Self::Server(i) => i,
            Self::Target(i) => SERVERS + i,
            Self::Operator => SERVERS + 4,
            Self::Holder(i) => SERVERS + 5 + i,
        }
    }
}

/// A request in transit.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct Envelope {
    pub op: u64,
    /// Number of earlier sends, so that a reply to an earlier copy is not mistaken for one to this copy.
    pub tries: u32,
    pub from: SimActor,
    pub request: SimRequest,
    pub id: Option<leasehold_core::command::RequestId>,
    pub presented: Option<Token>,
}

/// A message between actors.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum Message {
    Request(Box<Envelope>),
    Reply { op: u64, answer: Answer, incarnation: Incarnation },
    NotServing { op: u64, tries: u32 },
    Notice { session: SessionId, event: SessionEvent },
    Write { id: u64, from: SimActor, token: String, sequence: u64, value: Option<u64> },
    Written { id: u64, applied: bool },
}

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
    ops: u64,
    queue: BinaryHeap<QueuedEvent>,
    order: u64,
    /// Blocked directions between actors, as `[from][to]`.
    blocked: [[bool; MAX_ACTORS]; MAX_ACTORS],
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

    /// Sends a message through the simulated network.
    pub fn send(&mut self, from: SimActor, to: SimActor, message: Message) {
        if self.blocked[from.index()][to.index()] {
            return;
        }
        if self.should_inject(Fault::Loss, 12) {
            self.record_fault(Fault::Loss, format!("{from:?} to {to:?}"));
            return;
        }
        // A connection does not duplicate messages; a duplicate models a retry, so only retryable messages are duplicated.
        let may_repeat = match &message {
            Message::Request(envelope) => envelope.id.is_some() || !envelope.request.creates(),
            _ => true,
        };
        if may_repeat && self.should_inject(Fault::Duplicate, 12) {
            self.record_fault(Fault::Duplicate, format!("{from:?} to {to:?}"));
            let at = self.now + self.latency();
            self.schedule(at, ScheduledEvent::Deliver(to, message.clone()));
        }
        let at = self.now + self.latency();
        self.schedule(at, ScheduledEvent::Deliver(to, message));
    }

    /// Transit time of a message.
    pub fn latency(&mut self) -> SimTime {
        if self.should_inject(Fault::Delay, 15) {
            let delay = self.rng.between(50 * MS, 3_000 * MS);
            self.record_fault(Fault::Delay, format!("{} ms", delay / MS));
            return delay;
        }
        self.rng.between(100, 3 * MS)
    }

    /// Blocks or unblocks one direction between two actors.
    pub const fn set_blocked(&mut self, from: usize, to: usize, blocked: bool) {
        self.blocked[from][to] = blocked;
    }

    /// Unblocks the whole network.
    pub const fn unblock_all(&mut self) {
        self.blocked = [[false; MAX_ACTORS]; MAX_ACTORS];
    }
}
