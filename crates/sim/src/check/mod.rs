//! Checkers, one file for each promise. They read only the history.

pub mod attribution;
pub mod cache;
pub mod capacity;
pub mod deadlock;
pub mod delivery;
pub mod disk_full;
pub mod durable_before_reply;
pub mod fence_marks;
pub mod fence_without_server;
pub mod handoff_terminates;
pub mod idempotency;
pub mod identities;
pub mod identity_limits;
pub mod last_renewals;
pub mod linearizability;
pub mod liveness;
pub mod never_early;
pub mod never_endless;
pub mod one_holder;
pub mod only_current_renews;
pub mod pins;
pub mod preemption;
pub mod progress_required;
pub mod recorded_state;
pub mod renewals_decided_in_order;
pub mod reported_state;
pub mod restored_store;
pub mod rollback_quarantine;
#[cfg(test)]
mod sample_histories;
pub mod session_secret;
pub mod small_state;
pub mod tokens;
pub mod two_persons;
pub mod wait_queue;
pub mod zombie_reports;

use std::fmt;

use crate::clock::{MS, SimTime};
use crate::history::{History, HistoryEvent};

/// A promise that was broken in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromiseViolation {
    /// Id of the promise.
    pub promise: &'static str,
    /// Time of the violation.
    pub at: SimTime,
    /// Description of the violation.
    pub detail: String,
}

impl fmt::Display for PromiseViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}.{:03} ms: {}", self.promise, self.at / MS, self.at % MS, self.detail)
    }
}

/// Result of a checker.
pub type CheckFinding = Result<(), PromiseViolation>;

/// Returns a violation.
pub(crate) fn broken(promise: &'static str, at: SimTime, detail: impl Into<String>) -> CheckFinding {
    Err(PromiseViolation { promise, at, detail: detail.into() })
}

/// Every checker: file, promises and function.
#[allow(clippy::type_complexity, reason = "a table of three columns")]
pub const ALL: [(&str, &str, fn(&History) -> CheckFinding); 33] = [
    ("fence_marks", "F1 F2 F3 F4 F5 F7 T5 T6", fence_marks::check),
    ("fence_without_server", "F9", fence_without_server::check),
    ("tokens", "T1 T2 T3 T4 T5 T9", tokens::check),
    ("rollback_quarantine", "T5 T9", rollback_quarantine::check),
    ("restored_store", "V2", restored_store::check),
    ("durable_before_reply", "L3 L7 E1 X3", durable_before_reply::check),
    ("one_holder", "L1 H2", one_holder::check),
    ("disk_full", "V4", disk_full::check),
    ("handoff_terminates", "H3", handoff_terminates::check),
    ("never_early", "L2 L12", never_early::check),
    ("never_endless", "L9 L10", never_endless::check),
    ("only_current_renews", "L4 L5 L6", only_current_renews::check),
    ("wait_queue", "W1 W2 W3 W4 L8", wait_queue::check),
    ("deadlock", "D1 D2 D3", deadlock::check),
    ("capacity", "C1 C3 C4", capacity::check),
    ("delivery", "Q2 Q3 Q4 Q5", delivery::check),
    ("small_state", "H1", small_state::check),
    ("idempotency", "L11", idempotency::check),
    ("pins", "B1", pins::check),
    ("cache", "R1 R2", cache::check),
    ("preemption", "P1", preemption::check),
    ("progress_required", "G1", progress_required::check),
    ("session_secret", "S2", session_secret::check),
    ("identities", "A4 A5 A6 A9", identities::check),
    ("identity_limits", "A12", identity_limits::check),
    ("attribution", "A13", attribution::check),
    ("two_persons", "A14", two_persons::check),
    ("zombie_reports", "F6", zombie_reports::check),
    ("renewals_decided_in_order", "N1", renewals_decided_in_order::check),
    ("reported_state", "V1 C2 P2 Q1 S1 T5", reported_state::check),
    ("recorded_violations", "V1 V2 V3 T5 X1", recorded_violations),
    ("liveness", "X1", liveness::check),
    ("linearizability", "L1 L4 L6", linearizability::check),
];

/// The first broken promise of a run, with the name of the checker.
pub fn first_violation(history: &History) -> Option<(&'static str, PromiseViolation)> {
    ALL.iter().find_map(|(name, _, check)| check(history).err().map(|violation| (*name, violation)))
}

/// Violations that the run itself recorded: a corrupt journal, a refused opening, a panic.
fn recorded_violations(history: &History) -> CheckFinding {
    for (at, event) in &history.events {
        if let HistoryEvent::InvariantBroken { promise, detail } = event {
            return broken(promise, *at, detail.clone());
        }
    }
    Ok(())
}
