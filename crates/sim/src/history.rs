//! History of a run: the ordered events that checkers read and `replay` prints.

use std::fmt;
use std::rc::Rc;

use leasehold_core::access::{IdentityLimits, IdentityUsage};
use leasehold_core::command::Answer;
use leasehold_core::ids::SessionId;
use leasehold_core::time::GrantorTime;
use leasehold_core::token::Number;

use crate::clock::SimTime;
use crate::fault::Fault;
use crate::impostor::ImpostorAttempt;
use crate::operators::OperatorAct;
use crate::request::SimRequest;

/// One batch as it was made durable.
pub type Batch = Rc<[u8]>;

/// An event of a run.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum HistoryEvent {
    /// A request was first sent.
    Requested { op: u64, actor: u32, request: SimRequest },
    /// A renewal arrived at a serving server and is queued.
    Arrived { op: u64, server: u32, generation: u64 },
    /// A serving grantor was presented a number of its own cluster and incarnation that is above its counter.
    NewerTokenPresented { presented: u64, generation: u64 },
    /// After the journal was reverted, a serving grantor was presented another number of its own cluster and incarnation.
    TokenPresented { presented: u64, generation: u64 },
    /// A grantor decided a request at its own time; the reply is not sent yet.
    Decided { op: u64, server: u32, generation: u64, time: GrantorTime, answer: Answer },
    /// A grantor decided the copy of a request that an impostor sent.
    ImpostorAnswered(Box<ImpostorAttempt>),
    /// A grantor decided a request of an operator that needs a second identity.
    OperatorActed(Box<OperatorAct>),
    /// What an identity has after a turn, if that changed.
    UsageReported { identity: String, has: IdentityUsage, limits: IdentityLimits },
    /// A request was refused by a limit of its identity, which had `has` and requested `more`.
    LimitReached { op: u64, identity: String, limit: &'static str, max: u64, has: u64, more: u64, is_renewal: bool },
    /// The reply left the server.
    ReplySent { op: u64, server: u32, generation: u64, time: GrantorTime, answer: Answer },
    /// The reply reached the actor.
    ReplyReceived { op: u64, actor: u32, answer: Answer },
    /// The actor continues without a reply.
    Abandoned { op: u64, reason: &'static str },
    /// A batch became durable.
    BatchDurable { generation: u64, batch: Batch },
    /// The journal was rolled back or restored to these batches.
    JournalReverted { cause: Fault, batches: Vec<Batch> },
    /// A shared journal is about to be rolled back, while its servers keep high-water marks.
    StoreRestored,
    /// A server lost its data directory, with its high-water mark.
    HighWaterLost { server: u32 },
    /// A server found that the shared journal lost what it has seen, and left a marker.
    RollbackFound { server: u32 },
    /// A server starts to serve.
    Serving { server: u32, generation: u64 },
    /// A turn of a server was this many milliseconds late by its own clock.
    Stalled { server: u32, generation: u64, time: GrantorTime, ms: u64 },
    /// A holder believes that it holds the lease, and acts.
    HolderActed { actor: u32, number: Number, clock_ok: bool },
    /// A write or claim arrived at a target.
    WriteArrived { target: u32, id: u64 },
    /// A target decided a write or claim.
    WriteDecided {
        target: u32,
        id: u64,
        actor: u32,
        presented: PresentedWrite,
        value: Option<u64>,
        verdict: TargetVerdict,
    },
    /// A target was killed; this many log entries remain.
    TargetKilled { target: u32, remaining: usize },
    /// A target lost its mark (`None`) or was re-armed.
    MarkChanged { target: u32, armed: Option<Number> },
    /// A strict target adopted an incarnation.
    Adopted { target: u32, incarnation: u32 },
    /// State that a serving grantor reports between two turns.
    StateReported { server: u32, generation: u64, state: ReportedState },
    /// A fault was injected.
    FaultInjected { fault: Fault, detail: String },
    /// Everything is healed.
    Healed,
    /// The run ended, with the time of the serving grantor.
    RunEnded { served: Option<GrantorTime> },
    /// The run itself found a broken promise: a corrupt journal or a panic.
    InvariantBroken { promise: &'static str, detail: String },
}

/// The token of a write as a target reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct PresentedWrite {
    pub number: Number,
    pub incarnation: u32,
    /// Whether cluster and resource match and the number is plausible.
    pub valid: bool,
}

/// Decision of a target on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetVerdict {
    /// Applied and logged.
    Applied,
    /// Refused for this reason.
    Refused(&'static str),
}

/// State that a grantor reports, to compare with the model.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReportedState {
    /// Numbers of held leases.
    pub held: Vec<u64>,
    /// Sessions of waiters in queue order, for each queued resource.
    pub queues: Vec<Vec<SessionId>>,
    /// Messages: id, attempts, live receipt, and whether it is dead.
    pub items: Vec<(u64, u32, Option<u64>, bool)>,
}

/// All events of a run, with their times.
#[derive(Debug, Default)]
pub struct History {
    /// Events in order.
    pub events: Vec<(SimTime, HistoryEvent)>,
}

impl History {
    /// Appends an event.
    pub fn add(&mut self, at: SimTime, event: HistoryEvent) {
        self.events.push((at, event));
    }

    /// Time at which everything was healed.
    pub fn healed(&self) -> Option<SimTime> {
        self.events.iter().find(|(_, event)| matches!(event, HistoryEvent::Healed)).map(|(at, _)| *at)
    }

    /// Whether the journal was reverted.
    pub fn was_reverted(&self) -> bool {
        self.events.iter().any(|(_, event)| matches!(event, HistoryEvent::JournalReverted { .. }))
    }

    /// Whether wall clocks were set in a run whose journal was reverted. Then new numbers exceed old ones only after an old one
    /// was presented.
    pub fn has_wrong_clocks(&self) -> bool {
        let set =
            |event: &HistoryEvent| matches!(event, HistoryEvent::FaultInjected { fault: Fault::WallClockStep, .. });
        self.was_reverted() && self.events.iter().any(|(_, event)| set(event))
    }

    /// Digest of all events: equal for equal runs.
    pub fn digest(&self) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        for (at, event) in &self.events {
            // Writing to a hash cannot fail.
            let _ = fmt::write(&mut hash, format_args!("{at}{event:?}"));
        }
        hash.0
    }
}

struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
