//! What happened in a run, in order: the one thing that the checkers read and a replay prints.

use std::fmt;
use std::rc::Rc;

use leasehold_core::command::Answer;
use leasehold_core::ids::SessionId;
use leasehold_core::time::Millis;
use leasehold_core::token::Number;

use crate::ask::Ask;
use crate::clock::At;
use crate::fault::Fault;

/// One batch as it was made durable.
pub type Batch = Rc<[u8]>;

/// Something that happened.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum Event {
    /// A request was first sent.
    Asked { op: u64, who: u32, ask: Ask },
    /// A renewal came to a serving server and waits for its turn.
    Arrived { op: u64, server: u32, generation: u64 },
    /// A serving grantor was shown a number of its own cluster and life that it does not know yet.
    Newer { shown: u64, generation: u64 },
    /// A grantor decided; nobody knows yet. With its own time and tenure.
    Decided { op: u64, server: u32, generation: u64, time: Millis, answer: Answer },
    /// The answer left the server.
    Told { op: u64, server: u32, generation: u64, time: Millis, answer: Answer },
    /// The answer reached who asked.
    Answered { op: u64, who: u32, answer: Answer },
    /// Who asked goes on without an answer.
    GaveUp { op: u64, why: &'static str },
    /// A batch became durable.
    Landed { generation: u64, batch: Batch },
    /// The journal was set back, or restored, to these batches.
    SetBack { why: Fault, batches: Vec<Batch> },
    /// A server serves.
    Serving { server: u32, generation: u64 },
    /// A server stood still for so many milliseconds beyond the normal, by its own clock.
    Stood { server: u32, generation: u64, time: Millis, ms: u64 },
    /// A holder believes that it holds, and acts now.
    Acts { who: u32, number: Number, honest: bool },
    /// A write or claim came to a target.
    Reached { target: u32, id: u64 },
    /// A target ruled on it.
    Wrote { target: u32, id: u64, who: u32, shown: Shown, value: Option<u64>, verdict: Verdict },
    /// A target was killed and has so much of its log.
    TargetKilled { target: u32, kept: usize },
    /// A target has lost its mark, or was armed again.
    Mark { target: u32, armed: Option<Number> },
    /// A strict target was told which life of the cluster to follow.
    Adopted { target: u32, incarnation: u32 },
    /// What a serving grantor shows of its state between two turns.
    Shows { server: u32, generation: u64, state: State },
    /// A fault struck.
    Struck { fault: Fault, what: String },
    /// Everything is healed.
    Healed,
    /// Nothing new is asked any more.
    Over { served: Option<Millis> },
    /// What is on record cannot be folded, or the core panicked: a promise is broken in the open.
    Broken { promise: &'static str, why: String },
}

/// A token as a target reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Shown {
    pub number: Number,
    pub incarnation: u32,
    /// It is this cluster's, for this target, and believable.
    pub right: bool,
}

/// What a target made of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is applied, and stands in the log.
    Applied,
    /// It was refused, with the mark.
    Refused(&'static str),
}

/// What a grantor shows of itself, to be compared with what is on record.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct State {
    /// Numbers of held leases.
    pub held: Vec<u64>,
    /// Waiters by session, in the order of their queues, for each resource that queues form at.
    pub queues: Vec<Vec<SessionId>>,
    /// Messages: id, how often handed out, and the live receipt; `None` with `true` is dead.
    pub items: Vec<(u64, u32, Option<u64>, bool)>,
}

/// All that happened, with when.
#[derive(Debug, Default)]
pub struct History {
    /// In order.
    pub events: Vec<(At, Event)>,
}

impl History {
    /// Something happened.
    pub fn add(&mut self, at: At, event: Event) {
        self.events.push((at, event));
    }

    /// When everything was healed.
    pub fn healed(&self) -> Option<At> {
        self.events.iter().find(|(_, event)| matches!(event, Event::Healed)).map(|(at, _)| *at)
    }

    /// Whether the journal was ever set back.
    pub fn was_set_back(&self) -> bool {
        self.events.iter().any(|(_, event)| matches!(event, Event::SetBack { .. }))
    }

    /// Whether clocks were set in a run whose journal was set back: then numbers are above those before only once somebody
    /// has shown one.
    pub fn has_wrong_clocks(&self) -> bool {
        let set = |event: &Event| matches!(event, Event::Struck { fault: Fault::WallSet, .. });
        self.was_set_back() && self.events.iter().any(|(_, event)| set(event))
    }

    /// A digest of everything in order: equal for equal runs.
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
