//! Writes and claims that holders sent, and the highest token that each target acknowledged.

use std::collections::BTreeMap;

use leasehold_sim::clock::SimTime;

use crate::holder::target::TargetKind;
use crate::holder_log::{LogEntry, LoggedEvent};

/// A write or a claim that was sent.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct SentWrite {
    pub at: SimTime,
    pub target: u32,
    pub number: u64,
    /// True for a write, false for a claim.
    pub value: bool,
}

/// All writes and claims that were sent, by operation.
pub fn sent_writes(entries: &[LogEntry]) -> BTreeMap<u64, SentWrite> {
    let sends = entries.iter().filter_map(|entry| match entry.event {
        LoggedEvent::WriteSent { op, target, number, value } => {
            Some((op, SentWrite { at: entry.at, target, number, value }))
        }
        _ => None,
    });
    sends.collect()
}

/// Acknowledged numbers of each fenced target with their times, only where a new maximum was reached.
pub struct HighestAcknowledged(BTreeMap<u32, Vec<(SimTime, u64)>>);

impl HighestAcknowledged {
    /// Collects the acknowledged numbers.
    pub fn of(entries: &[LogEntry], sent: &BTreeMap<u64, SentWrite>) -> Self {
        let mut acknowledged: BTreeMap<u32, Vec<(SimTime, u64)>> = BTreeMap::new();
        for entry in entries {
            if let LoggedEvent::WriteAcknowledged { op } = &entry.event
                && let Some(sent) = sent.get(op)
                && TargetKind::of(sent.target) != TargetKind::Twin
            {
                let acknowledged = acknowledged.entry(sent.target).or_default();
                if acknowledged.last().is_none_or(|(_, highest)| *highest < sent.number) {
                    acknowledged.push((entry.at, sent.number));
                }
            }
        }
        Self(acknowledged)
    }

    /// Whether a number above `number` was acknowledged before `before`.
    pub fn is_above(&self, target: u32, number: u64, before: SimTime) -> bool {
        let acknowledged = self.0.get(&target).map_or([].as_slice(), Vec::as_slice);
        let count = acknowledged.partition_point(|(at, _)| *at < before);
        count > 0 && acknowledged[count - 1].1 > number
    }
}
