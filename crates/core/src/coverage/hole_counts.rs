//! Counts of the holes in coverage, kept up to date with each charter and report, so that a scrape of metrics counts nothing (A16).
//!
//! They follow from the charters and the coverage, and are not stored. A report costs a lookup. A change of a charter moves the
//! targets that are reported below its prefix, like the offers of their resources.

use std::collections::BTreeMap;

use super::holes::{Hole, ReportedModes, declared_hole};
use super::{CoverageRecord, CoverageTable, FenceMode};
use crate::charter::{Charters, TargetMode};

/// Holes by kind, and what is needed to change their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoleCounts {
    holes: [usize; Hole::ALL.len()],
    /// What fences reported of declared targets, by the prefix of the charter and the name of the target.
    reported: BTreeMap<Box<str>, BTreeMap<Box<str>, ReportedModes>>,
}

/// A target slot that starts or ceases to count.
#[derive(Clone, Copy)]
struct CountedSlot<'a> {
    resource: &'a str,
    target: &'a str,
    mode: FenceMode,
    /// Whether no other slot of this target of the resource counts.
    is_only: bool,
}

/// Whether something starts or ceases to count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountChange {
    Add,
    Remove,
}

impl CountChange {
    fn apply(self, count: &mut usize) {
        match self {
            Self::Add => *count += 1,
            Self::Remove => *count -= 1,
        }
    }
}

impl HoleCounts {
    /// Counts everything.
    pub fn of(charters: &Charters, coverage: &CoverageTable) -> Self {
        let mut counts = Self::default();
        for (_, charter) in charters.iter() {
            for target in &charter.targets {
                counts.count_declared(target.mode.as_ref(), ReportedModes::default(), CountChange::Add);
            }
        }
        counts.change_below("", charters, coverage, |_| true, CountChange::Add);
        counts
    }

    /// The number of holes of each kind, in the order of [`Hole::ALL`].
    pub fn holes(&self) -> [usize; Hole::ALL.len()] {
        self.holes
    }

    /// Call before and after a charter is set or removed, with the tables of that moment.
    pub fn before_charter_change(&mut self, prefix: &str, charters: &Charters, coverage: &CoverageTable) {
        self.change_charter(prefix, charters, coverage, CountChange::Remove);
    }

    /// See [`Self::before_charter_change`].
    pub fn after_charter_change(&mut self, prefix: &str, charters: &Charters, coverage: &CoverageTable) {
        self.change_charter(prefix, charters, coverage, CountChange::Add);
    }

    /// Call before and after a record is applied to the coverage, with the table of that moment.
    pub fn before_record(&mut self, record: &CoverageRecord, charters: &Charters, coverage: &CoverageTable) {
        self.change_record(record, charters, coverage, CountChange::Remove);
    }

    /// See [`Self::before_record`].
    pub fn after_record(&mut self, record: &CoverageRecord, charters: &Charters, coverage: &CoverageTable) {
        self.change_record(record, charters, coverage, CountChange::Add);
    }

    fn change_record(
        &mut self,
        record: &CoverageRecord,
        charters: &Charters,
        coverage: &CoverageTable,
        change: CountChange,
    ) {
        match record {
            CoverageRecord::Reported { resource, slot, target, .. } => {
                let Some(status) = coverage.get(resource, target, *slot) else { return };
                let is_only = coverage.slots_of(resource, target).take(2).count() == 1;
                self.change_slot(charters, CountedSlot { resource, target, mode: status.mode, is_only }, change);
            }
            // Its slots cease to count, whether they are still in the table or not.
            CoverageRecord::Forgotten { resource, target, .. } if change == CountChange::Remove => {
                for (at, (_, status)) in coverage.slots_of(resource, target).enumerate() {
                    let slot = CountedSlot { resource, target, mode: status.mode, is_only: at == 0 };
                    self.change_slot(charters, slot, change);
                }
            }
            CoverageRecord::Forgotten { .. } | CoverageRecord::Zombie { .. } => {}
        }
    }

    fn change_charter(&mut self, prefix: &str, charters: &Charters, coverage: &CoverageTable, change: CountChange) {
        // Resources below a longer prefix keep their charter.
        let may_change = |found: Option<&str>| found.is_none_or(|found| found.len() <= prefix.len());
        let declared = |counts: &mut Self| {
            for target in charters.get(prefix).map_or(&[][..], |charter| &charter.targets) {
                counts.count_declared(target.mode.as_ref(), ReportedModes::default(), change);
            }
        };
        // A declared target counts without reports when its charter comes or goes.
        if change == CountChange::Add {
            declared(self);
        }
        self.change_below(prefix, charters, coverage, may_change, change);
        if change == CountChange::Remove {
            declared(self);
        }
    }

    /// Changes all slots of the resources below a prefix whose charter is one of these.
    fn change_below(
        &mut self,
        prefix: &str,
        charters: &Charters,
        coverage: &CoverageTable,
        concerns: impl Fn(Option<&str>) -> bool,
        change: CountChange,
    ) {
        for (resource, slots) in coverage.below(prefix) {
            if !concerns(charters.find(resource).map(|(found, _)| found)) {
                continue;
            }
            let mut last = None;
            for ((target, _), status) in slots {
                let is_only = last != Some(target);
                last = Some(target);
                self.change_slot(charters, CountedSlot { resource, target, mode: status.mode, is_only }, change);
            }
        }
    }

    fn change_slot(&mut self, charters: &Charters, slot: CountedSlot<'_>, change: CountChange) {
        let CountedSlot { resource, target, mode, is_only } = slot;
        let found = charters.find(resource).and_then(|(prefix, charter)| {
            let declared = charter.targets.iter().find(|declared| declared.name == target)?;
            Some((prefix, declared.mode.as_ref()))
        });
        let Some((prefix, declared)) = found else {
            if is_only {
                change.apply(&mut self.holes[Hole::Undeclared as usize]);
            }
            return;
        };
        let before = self.reported.get(prefix).and_then(|targets| targets.get(target)).copied().unwrap_or_default();
        let mut after = before;
        change.apply(match mode {
            FenceMode::Forced => &mut after.forced,
            FenceMode::Cooperative => &mut after.cooperative,
        });
        self.count_declared(declared, before, CountChange::Remove);
        self.count_declared(declared, after, CountChange::Add);
        let targets = self.reported.entry(prefix.into()).or_default();
        if after == ReportedModes::default() {
            targets.remove(target);
        } else {
            targets.insert(target.into(), after);
        }
        if targets.is_empty() {
            self.reported.remove(prefix);
        }
    }

    fn count_declared(&mut self, mode: Option<&TargetMode>, reported: ReportedModes, change: CountChange) {
        if let Some(hole) = declared_hole(mode, reported) {
            change.apply(&mut self.holes[hole as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::holes::count_holes;
    use super::*;
    use crate::charter::{Charter, Target};
    use crate::time::WallClock;

    const RESOURCES: [&str; 6] = ["a", "a/b", "a/b/c", "a-b", "ab", "z"];
    const PREFIXES: [&str; 5] = ["", "a", "a/b", "a-b", "z"];
    const TARGETS: [&str; 3] = ["ledger", "mail", "queue"];

    #[derive(Clone, Debug)]
    enum Step {
        Set(&'static str, Vec<(&'static str, Option<TargetMode>)>),
        Remove(&'static str),
        Report(&'static str, &'static str, u32, FenceMode),
        Forget(&'static str, &'static str),
    }

    fn mode() -> impl Strategy<Value = Option<TargetMode>> {
        prop_oneof![
            Just(None),
            Just(Some(TargetMode::Forced)),
            Just(Some(TargetMode::Cooperative)),
            Just(Some(TargetMode::Grantor)),
            Just(Some(TargetMode::None { comment: None })),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let (resource, prefix, target) = (
            || prop::sample::select(&RESOURCES),
            || prop::sample::select(&PREFIXES),
            || prop::sample::select(&TARGETS),
        );
        let targets = prop::collection::btree_map(target(), mode(), 0..3);
        prop_oneof![
            2 => (prefix(), targets).prop_map(|(prefix, targets)| Step::Set(prefix, targets.into_iter().collect())),
            1 => prefix().prop_map(Step::Remove),
            5 => (resource(), target(), 0u32..3, prop::sample::select(&FenceMode::ALL))
                .prop_map(|(resource, target, slot, mode)| Step::Report(resource, target, slot, mode)),
            2 => (resource(), target()).prop_map(|(resource, target)| Step::Forget(resource, target)),
        ]
    }

    fn record(step: &Step) -> Option<CoverageRecord> {
        Some(match *step {
            Step::Report(resource, target, slot, mode) => {
                CoverageRecord::Reported { resource: resource.into(), slot, target: target.into(), mode, owner: None }
            }
            Step::Forget(resource, target) => {
                CoverageRecord::Forgotten { resource: resource.into(), target: target.into(), comment: "".into() }
            }
            Step::Set(..) | Step::Remove(_) => return None,
        })
    }

    fn charter(targets: &[(&str, Option<TargetMode>)]) -> Charter {
        let target = |(name, mode): &(&str, Option<TargetMode>)| Target {
            name: (*name).into(),
            at: "sqlite:/var/x".into(),
            mode: mode.clone(),
            reporter: None,
        };
        Charter { targets: targets.iter().map(target).collect(), ..Charter::default() }
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_a_recount_after_every_change(steps in prop::collection::vec(step(), 0..60)) {
            let (mut charters, mut coverage) = (Charters::default(), CoverageTable::default());
            let mut counts = HoleCounts::of(&charters, &coverage);
            for step in steps {
                if let Some(record) = record(&step) {
                    // As the grantor, which records no target that is not there.
                    if let Step::Forget(resource, target) = step
                        && coverage.slots_of(resource, target).next().is_none()
                    {
                        continue;
                    }
                    counts.before_record(&record, &charters, &coverage);
                    coverage.apply(&record, 0, WallClock(5)).expect("a valid record");
                    counts.after_record(&record, &charters, &coverage);
                }
                if let Step::Set(prefix, _) | Step::Remove(prefix) = step {
                    counts.before_charter_change(prefix, &charters, &coverage);
                    match &step {
                        Step::Set(_, targets) => drop(charters.set(prefix, charter(targets), 0).expect("there is room")),
                        _ => drop(charters.remove(prefix)),
                    }
                    counts.after_charter_change(prefix, &charters, &coverage);
                }
                prop_assert_eq!(counts.holes(), count_holes(&charters, &coverage), "after {:?}", step);
            }
            prop_assert_eq!(HoleCounts::of(&charters, &coverage), counts, "a snapshot is read as the state that was written");
        }
    }
}
