//! Counts of a run: grants, writes, late writes, and late writes that were accepted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::derived_history::Evidence;
use super::sent_writes::{HighestAcknowledged, SentWrite, sent_writes};
use crate::holder::target::TargetKind;
use crate::holder_log::{LogEntry, LoggedEvent};

/// Counts of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Grants that holders received.
    pub grants: u64,
    /// Successful renewals and confirmations.
    pub renewals: u64,
    /// Requests without a reply.
    pub unknown: u64,
    /// Writes applied at fenced targets.
    pub writes: u64,
    /// Writes sent to a fenced target after a later holder had claimed it.
    pub late: u64,
    /// Late writes that were refused.
    pub late_refused: u64,
    /// Late writes without a reply that the target did not apply.
    pub late_unknown: u64,
    /// Late writes that were applied: must be zero.
    pub late_accepted: u64,
    /// Late writes that the unfenced twins applied.
    pub corrupted: u64,
}

impl Summary {
    /// Adds the counts of another round.
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.renewals += other.renewals;
        self.unknown += other.unknown;
        self.writes += other.writes;
        self.late += other.late;
        self.late_refused += other.late_refused;
        self.late_unknown += other.late_unknown;
        self.late_accepted += other.late_accepted;
        self.corrupted += other.corrupted;
    }
}

/// Counts the evidence of a run.
pub fn summarize(evidence: &Evidence) -> Summary {
    let mut summary = Summary::default();
    for entry in &evidence.entries {
        match entry.event {
            LoggedEvent::Granted { .. } => summary.grants += 1,
            LoggedEvent::Current { .. } => summary.renewals += 1,
            LoggedEvent::OutcomeUnknown { .. } => summary.unknown += 1,
            _ => {}
        }
    }
    let applied: BTreeSet<u64> = evidence.applied_writes.iter().map(|applied_write| applied_write.op).collect();
    let refused = evidence.entries.iter().filter_map(|entry| match entry.event {
        LoggedEvent::WriteRefused { op, .. } => Some(op),
        _ => None,
    });
    let refused: BTreeSet<u64> = refused.collect();
    summary.writes = evidence
        .applied_writes
        .iter()
        .filter(|applied_write| TargetKind::of(applied_write.target) != TargetKind::Twin)
        .count() as u64;
    for op in late(&evidence.entries) {
        summary.late += 1;
        if applied.contains(&op) {
            summary.late_accepted += 1;
        } else if refused.contains(&op) {
            summary.late_refused += 1;
        } else {
            summary.late_unknown += 1;
        }
    }
    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    for applied_write in
        evidence.applied_writes.iter().filter(|applied_write| TargetKind::of(applied_write.target) == TargetKind::Twin)
    {
        let highest = highest.entry(applied_write.target).or_default();
        summary.corrupted += u64::from(applied_write.number < *highest);
        *highest = (*highest).max(applied_write.number);
    }
    summary
}

/// Writes that were sent to a fenced target after it had acknowledged a higher number.
pub fn late(entries: &[LogEntry]) -> Vec<u64> {
    let sent = sent_writes(entries);
    let highest = HighestAcknowledged::of(entries, &sent);
    let is_late = |write: &SentWrite| write.value && highest.is_above(write.target, write.number, write.at);
    sent.iter().filter(|(_, write)| is_late(write)).map(|(op, _)| *op).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::applied_writes::AppliedWrite;

    fn entry(at: u64, event: LoggedEvent) -> LogEntry {
        LogEntry { at, holder: 0, event }
    }

    fn write_sent(at: u64, op: u64, number: u64, value: bool) -> LogEntry {
        entry(at, LoggedEvent::WriteSent { op, target: 0, number, value })
    }

    #[test]
    fn a_write_is_late_if_a_higher_number_was_acknowledged_before_it_was_sent() {
        let mut evidence = Evidence::default();
        let written = |at, op| entry(at, LoggedEvent::WriteAcknowledged { op });
        evidence.entries = vec![write_sent(1, 1, 5, false), written(2, 1), write_sent(3, 2, 5, true), written(4, 2)];
        evidence.entries.extend([
            write_sent(5, 3, 7, false),
            write_sent(6, 4, 5, true),
            written(7, 3),
            write_sent(8, 5, 5, true),
        ]);
        assert_eq!(late(&evidence.entries), [5], "#4 was sent before the claim was acknowledged");
        assert_eq!(
            (summarize(&evidence).late, summarize(&evidence).late_unknown, summarize(&evidence).late_accepted),
            (1, 1, 0)
        );
        evidence.applied_writes = vec![AppliedWrite { target: 0, number: 5, holder: 0, op: 5 }];
        assert_eq!(summarize(&evidence).late_accepted, 1);
        evidence.applied_writes.clear();
        evidence.entries.push(entry(9, LoggedEvent::WriteRefused { op: 5, code: "STALE".into() }));
        assert_eq!(summarize(&evidence).late_refused, 1);
    }
}
