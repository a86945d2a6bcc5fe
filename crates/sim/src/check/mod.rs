//! What must hold in every run, one file for each promise. They read the history and nothing else.

pub mod acked;
pub mod alive;
pub mod alone;
pub mod cached;
pub mod capacity;
pub mod checkpoints;
pub mod deadlock;
pub mod delivery;
pub mod full;
pub mod handoff;
pub mod ledger;
pub mod linear;
pub mod never_early;
pub mod never_endless;
pub mod one_holder;
pub mod pins;
pub mod progress;
pub mod quarantine;
pub mod queue;
pub mod requests;
#[cfg(test)]
mod sample;
pub mod sessions;
pub mod stale;
pub mod stalled;
pub mod state;
pub mod storm;
pub mod terms;
pub mod tokens;
pub mod urgency;
pub mod zombies;

use std::fmt;

use crate::clock::{At, MS};
use crate::history::{Event, History};

/// A promise that was broken in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: &'static str,
    /// When.
    pub at: At,
    /// How.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}.{:03} ms: {}", self.promise, self.at / MS, self.at % MS, self.why)
    }
}

/// A checker's finding.
pub type Finding = Result<(), Violation>;

/// What breaks a promise.
pub(crate) fn broken(promise: &'static str, at: At, why: impl Into<String>) -> Finding {
    Err(Violation { promise, at, why: why.into() })
}

/// Every checker: its file, the promises it watches, and itself.
#[allow(clippy::type_complexity, reason = "a table of three columns")]
pub const ALL: [(&str, &str, fn(&History) -> Finding); 28] = [
    ("stale", "F1 F2 F3 F4 F5 F7 T5 T6", stale::check),
    ("alone", "F9", alone::check),
    ("tokens", "T1 T2 T3 T4 T5 T9", tokens::check),
    ("quarantine", "T5 T9", quarantine::check),
    ("acked", "L3 L7 E1 X3", acked::check),
    ("one_holder", "L1 H2", one_holder::check),
    ("full", "V4", full::check),
    ("handoff", "H3", handoff::check),
    ("never_early", "L2 L12", never_early::check),
    ("never_endless", "L9 L10", never_endless::check),
    ("alive", "L4 L5 L6", alive::check),
    ("queue", "W1 W2 W3 W4 L8", queue::check),
    ("deadlock", "D1 D2 D3", deadlock::check),
    ("capacity", "C1 C3 C4", capacity::check),
    ("delivery", "Q2 Q3 Q4 Q5", delivery::check),
    ("checkpoints", "H1", checkpoints::check),
    ("requests", "L11", requests::check),
    ("pins", "B1", pins::check),
    ("cached", "R1 R2", cached::check),
    ("urgency", "P1", urgency::check),
    ("stalled", "G1", stalled::check),
    ("sessions", "S2", sessions::check),
    ("zombies", "F6", zombies::check),
    ("storm", "N1", storm::check),
    ("state", "V1 C2 P2 Q1 S1 T5", state::check),
    ("broken", "V1 V2 V3 T5 X1", in_the_open),
    ("progress", "X1", progress::check),
    ("linear", "L1 L4 L6", linear::check),
];

/// The first broken promise of a run, and who found it.
pub fn first(history: &History) -> Option<(&'static str, Violation)> {
    ALL.iter().find_map(|(name, _, check)| check(history).err().map(|violation| (*name, violation)))
}

/// What broke without a checker: a journal that cannot be folded, an opening that was refused, a panic.
fn in_the_open(history: &History) -> Finding {
    for (at, event) in &history.events {
        if let Event::Broken { promise, why } = event {
            return broken(promise, *at, why.clone());
        }
    }
    Ok(())
}
