//! The verdict of a run: the simulator's checkers on its histories, and checks that only real targets allow.

use std::collections::BTreeMap;
use std::io;

use leasehold_sim::check::{self, PromiseViolation, fence_marks, never_early};
use leasehold_sim::clock::{MS, SimTime};
use leasehold_sim::history::{History, HistoryEvent};
use leasehold_sim::trace;
use serde::Serialize;

use crate::evidence::derived_history::Evidence;
use crate::evidence::measured_time::measured_history;
use crate::evidence::sent_writes::{SentWrite, sent_writes};
use crate::evidence::summary::Summary;
use crate::holder::target::TargetKind;
use crate::holder_log::LoggedEvent;

/// Checkers of promises that these processes can break. The others need events that real processes do not log (when a renewal
/// was decided, a grantor's state) or requests that these holders do not send.
const CHECKERS: [&str; 8] = [
    "fence_marks",
    "tokens",
    "durable_before_reply",
    "one_holder",
    "never_early",
    "only_current_renews",
    "wait_queue",
    "linearizability",
];
/// Number of events printed before a violation.
const TRACE_EVENTS: usize = 40;

/// A broken promise with the events before it.
#[derive(Clone, Debug, Serialize)]
pub struct BrokenPromise {
    /// Id of the promise.
    pub promise: String,
    /// Checker that found it.
    pub by: String,
    /// Description of the violation.
    pub detail: String,
    /// The events before it.
    pub events: Vec<String>,
}

impl BrokenPromise {
    /// A violation found without a checker.
    pub fn plain(promise: &str, detail: &str) -> Self {
        Self { promise: promise.to_owned(), by: "run".to_owned(), detail: detail.to_owned(), events: Vec::new() }
    }

    fn of(by: &str, violation: &PromiseViolation, history: &History) -> Self {
        let target = violation.detail.strip_prefix("target ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let events = trace_before(history, violation.at, target);
        Self { promise: violation.promise.to_owned(), by: by.to_owned(), detail: violation.to_string(), events }
    }
}

/// The last events until a time, or those at one target.
fn trace_before(history: &History, until: SimTime, target: Option<u32>) -> Vec<String> {
    let wanted = |event: &HistoryEvent| match (event, target) {
        (HistoryEvent::WriteDecided { target: at, .. }, Some(target)) => *at == target,
        (HistoryEvent::FaultInjected { .. }, _) | (_, None) => true,
        (_, Some(_)) => false,
    };
    let before: Vec<_> = history.events.iter().filter(|(at, event)| *at <= until && wanted(event)).collect();
    let line = |(at, event): &&(SimTime, HistoryEvent)| {
        let mut line = String::new();
        trace::line(&mut line, *at, event);
        line.trim_end().to_owned()
    };
    before[before.len().saturating_sub(TRACE_EVENTS)..].iter().map(line).collect()
}

/// Violations of a run without fences: the corrupted write.
pub fn without_fence(history: &History) -> Vec<BrokenPromise> {
    fence_marks::check(history)
        .err()
        .map(|violation| BrokenPromise::of("fence_marks", &violation, history))
        .into_iter()
        .collect()
}

/// Runs every checker on all evidence.
pub fn all(evidence: &Evidence, build: impl Fn(&Evidence) -> History, summary: &Summary) -> Vec<BrokenPromise> {
    let mut found = Vec::new();
    let fenced = Evidence {
        entries: evidence.entries.clone(),
        batches: evidence.batches.clone(),
        applied_writes: evidence
            .applied_writes
            .iter()
            .copied()
            .filter(|write| TargetKind::of(write.target) != TargetKind::Twin)
            .collect(),
    };
    let history = build(&fenced);
    for (name, _, check) in check::ALL.iter().filter(|(name, ..)| CHECKERS.contains(name)) {
        found.extend(check(&history).err().map(|violation| BrokenPromise::of(name, &violation, &history)));
    }
    let measured = measured_history(&fenced);
    if let Err(violation) = never_early::check(&measured) {
        found.push(BrokenPromise {
            by: "never_early, measured".to_owned(),
            ..BrokenPromise::of("", &violation, &history)
        });
    }
    if summary.late_accepted > 0 {
        found.push(BrokenPromise::plain("F1", &format!("{} late writes were applied", summary.late_accepted)));
    }
    let twin = Evidence {
        entries: evidence.entries.clone(),
        batches: Vec::new(),
        applied_writes: evidence
            .applied_writes
            .iter()
            .copied()
            .filter(|write| TargetKind::of(write.target) == TargetKind::Twin)
            .collect(),
    };
    if fence_marks::check(&build(&twin)).is_ok() {
        found.push(BrokenPromise::plain("F1", "no unfenced twin was corrupted: the run proves nothing"));
    }
    found
}

/// Marks that were read during the run never decrease.
pub fn marks_never_decrease(known: &mut BTreeMap<u32, u64>, read: &io::Result<Vec<(u32, u64)>>) -> Vec<BrokenPromise> {
    // A log locked by a stopped holder cannot be read now; the next check will read it.
    let Ok(read) = read else { return Vec::new() };
    let mut found = Vec::new();
    for (target, mark) in read {
        let last = known.insert(*target, *mark).unwrap_or(0);
        if *mark < last {
            found.push(BrokenPromise::plain(
                "F7",
                &format!("the mark of target {target} decreased from {last} to {mark}"),
            ));
        }
    }
    found
}

/// Every acknowledged claim and write is at or below the mark of its target.
pub fn marks_cover(evidence: &Evidence, marks: &io::Result<Vec<(u32, u64)>>) -> Vec<BrokenPromise> {
    let marks: BTreeMap<u32, u64> = match marks {
        Ok(marks) => marks.iter().copied().collect(),
        Err(error) => return vec![BrokenPromise::plain("F7", &format!("the marks cannot be read: {error}"))],
    };
    let sent = sent_writes(&evidence.entries);
    let mut found = Vec::new();
    for entry in &evidence.entries {
        let LoggedEvent::WriteAcknowledged { op } = &entry.event else { continue };
        let Some(SentWrite { target, number, .. }) = sent.get(op) else { continue };
        if let Some(mark) = marks.get(target).filter(|mark| *mark < number) {
            let detail =
                format!("target {target} acknowledged {number} at {} ms, but its mark is {mark}", entry.at / MS);
            found.push(BrokenPromise::plain("F2", &detail));
        }
    }
    let applied: std::collections::BTreeSet<u64> = evidence.applied_writes.iter().map(|write| write.op).collect();
    for entry in &evidence.entries {
        let LoggedEvent::WriteAcknowledged { op } = &entry.event else { continue };
        if sent.get(op).is_some_and(|write| write.value) && !applied.contains(op) {
            found.push(BrokenPromise::plain("F2", &format!("write {op} was acknowledged, but is missing")));
        }
    }
    found.truncate(10);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_checker_exists_in_the_simulator() {
        let known: Vec<_> = check::ALL.iter().map(|(name, ..)| *name).collect();
        assert!(CHECKERS.iter().all(|name| known.contains(name)), "{known:?}");
    }
}
