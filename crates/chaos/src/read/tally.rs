//! What a run amounts to: what holders did, which writes came too late, and whether any of those got in.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_sim::clock::At;
use serde::Serialize;

use super::history::{Left, Sent, sent};
use crate::holder::target::Kind;
use crate::said::{Said, What};

/// Counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Leases granted, and told so.
    pub grants: u64,
    /// Answers to renewals and confirmations that said yes.
    pub renewals: u64,
    /// Requests whose answer never came.
    pub unknown: u64,
    /// Writes applied at fenced targets.
    pub writes: u64,
    /// Writes sent to a fenced target after a later holder had claimed it.
    pub late: u64,
    /// Those that were refused.
    pub late_refused: u64,
    /// Those whose answer never came, and which are not in the target.
    pub late_unknown: u64,
    /// Those that got in: none, ever.
    pub late_accepted: u64,
    /// Writes that came too late at the unfenced twins, and got in.
    pub corrupted: u64,
}

impl Tally {
    /// Adds those of another round.
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

/// Counts what is left of a run.
pub fn tally(left: &Left) -> Tally {
    let mut tally = Tally::default();
    for said in &left.said {
        match said.what {
            What::Granted { .. } => tally.grants += 1,
            What::Current { .. } => tally.renewals += 1,
            What::Unknown { .. } => tally.unknown += 1,
            _ => {}
        }
    }
    let applied: BTreeSet<u64> = left.ghosts.iter().map(|ghost| ghost.op).collect();
    let refused = left.said.iter().filter_map(|said| match said.what {
        What::Stopped { op, .. } => Some(op),
        _ => None,
    });
    let refused: BTreeSet<u64> = refused.collect();
    tally.writes = left.ghosts.iter().filter(|ghost| Kind::of(ghost.target) != Kind::Twin).count() as u64;
    for op in late(&left.said) {
        tally.late += 1;
        if applied.contains(&op) {
            tally.late_accepted += 1;
        } else if refused.contains(&op) {
            tally.late_refused += 1;
        } else {
            tally.late_unknown += 1;
        }
    }
    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    for ghost in left.ghosts.iter().filter(|ghost| Kind::of(ghost.target) == Kind::Twin) {
        let highest = highest.entry(ghost.target).or_default();
        tally.corrupted += u64::from(ghost.number < *highest);
        *highest = (*highest).max(ghost.number);
    }
    tally
}

/// For each fenced target: when which number was told to be in, and is the highest so far.
pub struct Highest(BTreeMap<u32, Vec<(At, u64)>>);

impl Highest {
    /// Of what was told.
    pub fn of(said: &[Said], sent: &BTreeMap<u64, Sent>) -> Self {
        let mut told: BTreeMap<u32, Vec<(At, u64)>> = BTreeMap::new();
        for said in said {
            if let What::Written { op } = &said.what
                && let Some(sent) = sent.get(op)
                && Kind::of(sent.target) != Kind::Twin
            {
                let told = told.entry(sent.target).or_default();
                if told.last().is_none_or(|(_, highest)| *highest < sent.number) {
                    told.push((said.at, sent.number));
                }
            }
        }
        Self(told)
    }

    /// Whether a higher number than this was told to be in before a moment.
    pub fn is_above(&self, target: u32, number: u64, before: At) -> bool {
        let told = self.0.get(&target).map_or([].as_slice(), Vec::as_slice);
        let count = told.partition_point(|(at, _)| *at < before);
        count > 0 && told[count - 1].1 > number
    }
}

/// The writes that were sent to a fenced target after a higher number was told to be in there.
pub fn late(said: &[Said]) -> Vec<u64> {
    let sent = sent(said);
    let highest = Highest::of(said, &sent);
    let is_late = |write: &Sent| write.value && highest.is_above(write.target, write.number, write.at);
    sent.iter().filter(|(_, write)| is_late(write)).map(|(op, _)| *op).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::ghost::Ghost;

    fn said(at: u64, what: What) -> Said {
        Said { at, who: 0, what }
    }

    fn sends(at: u64, op: u64, number: u64, value: bool) -> Said {
        said(at, What::Sends { op, target: 0, number, value })
    }

    #[test]
    fn a_write_is_late_when_a_higher_number_was_in_before_it_was_sent() {
        let mut left = Left::default();
        let written = |at, op| said(at, What::Written { op });
        left.said = vec![sends(1, 1, 5, false), written(2, 1), sends(3, 2, 5, true), written(4, 2)];
        left.said.extend([sends(5, 3, 7, false), sends(6, 4, 5, true), written(7, 3), sends(8, 5, 5, true)]);
        assert_eq!(late(&left.said), [5], "#4 was sent before the claim was answered");
        assert_eq!((tally(&left).late, tally(&left).late_unknown, tally(&left).late_accepted), (1, 1, 0));
        left.ghosts = vec![Ghost { target: 0, number: 5, who: 0, op: 5 }];
        assert_eq!(tally(&left).late_accepted, 1);
        left.ghosts.clear();
        left.said.push(said(9, What::Stopped { op: 5, code: "STALE".into() }));
        assert_eq!(tally(&left).late_refused, 1);
    }
}
