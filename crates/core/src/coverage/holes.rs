//! Holes in coverage: compares the targets that a charter declares with the targets that fences reported.

use std::collections::BTreeMap;

use super::{CheckCounts, CoverageTable, FenceMode, TargetSlot, TargetStatus};
use crate::charter::{self, Charter};

/// One target slot: its recorded status, and its check counts in this tenure.
type At = (u32, TargetStatus, Option<CheckCounts>);

/// A hole: a zombie's write can pass here, or its handling is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hole {
    /// No target is declared or reported: it is unknown where the holder writes.
    NoTarget,
    /// Declared, but no fence ever reported from it.
    NeverReported,
    /// Reported, but no charter declares it.
    Undeclared,
    /// Declared as forced, but its fence reports as cooperative.
    Weaker,
    /// Declared without a mode.
    NoMode,
    /// Declared as checking nothing.
    Unfenced,
}

impl Hole {
    /// All kinds of holes.
    pub const ALL: [Self; 6] =
        [Self::NoTarget, Self::NeverReported, Self::Undeclared, Self::Weaker, Self::NoMode, Self::Unfenced];

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::NeverReported => "never_reported",
            Self::Undeclared => "undeclared",
            Self::Weaker => "weaker",
            Self::NoMode => "no_mode",
            Self::Unfenced => "unfenced",
        }
    }

    /// Parses the stable word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hole| hole.word() == word)
    }

    /// What it means and what to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoTarget => "it is unknown where its holder writes; declare its targets in a charter",
            Self::NeverReported => "no fence ever reported from it; install the fence with a reporter",
            Self::Undeclared => "no charter declares it; declare it, or forget it if it no longer exists",
            Self::Weaker => "declared as forced, but its fence is cooperative; force it, or change the declaration",
            Self::NoMode => "its handling of a stale token is not declared; set its mode in the charter",
            Self::Unfenced => "it checks nothing; install a fence, or accept that a zombie can write",
        }
    }
}

/// One target of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Name of the target.
    pub name: String,
    /// Its location according to the charter; empty if it is not declared.
    pub at: String,
    /// The declared mode, if the charter declares the target; the inner value is `None` if it declares no mode.
    pub declared: Option<Option<charter::TargetMode>>,
    /// Reports of its fences by slot, with the check counts in this tenure.
    pub reports: Vec<(u32, TargetStatus, Option<CheckCounts>)>,
    /// The hole, if any.
    pub hole: Option<Hole>,
}

/// All targets of a resource, declared ones first, in the charter's order. A resource without targets gets one target with
/// an empty name and a hole.
pub fn target_views(
    resource: &str,
    charter: Option<&Charter>,
    coverage: &CoverageTable,
    checked: Option<&BTreeMap<TargetSlot, CheckCounts>>,
) -> Vec<TargetView> {
    let mut reported: BTreeMap<&str, Vec<At>> = BTreeMap::new();
    for (target, slot, seen) in coverage.targets_of(resource) {
        let counted = checked.and_then(|checked| checked.get(&(target.into(), slot))).copied();
        reported.entry(target).or_default().push((slot, seen.clone(), counted));
    }
    let mut targets = Vec::new();
    for target in charter.map_or(&[][..], |charter| &charter.targets) {
        let seen = reported.remove(target.name.as_str()).unwrap_or_default();
        let hole = declared_hole(target.mode.as_ref(), seen.iter().map(|(_, seen, _)| seen.mode).collect());
        let (name, at) = (target.name.clone(), target.at.clone());
        targets.push(TargetView { name, at, declared: Some(target.mode.clone()), reports: seen, hole });
    }
    for (name, seen) in reported {
        let hole = Some(Hole::Undeclared);
        targets.push(TargetView { name: name.into(), at: String::new(), declared: None, reports: seen, hole });
    }
    if targets.is_empty() {
        let hole = Some(Hole::NoTarget);
        targets.push(TargetView { name: String::new(), at: String::new(), declared: None, reports: Vec::new(), hole });
    }
    targets
}

/// How many slots of a declared target reported each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportedModes {
    pub forced: usize,
    pub cooperative: usize,
}

impl FromIterator<FenceMode> for ReportedModes {
    fn from_iter<I: IntoIterator<Item = FenceMode>>(modes: I) -> Self {
        modes.into_iter().fold(Self::default(), |counted, mode| match mode {
            FenceMode::Forced => Self { forced: counted.forced + 1, ..counted },
            FenceMode::Cooperative => Self { cooperative: counted.cooperative + 1, ..counted },
        })
    }
}

/// The hole of a declared target whose fences reported these modes.
pub(super) fn declared_hole(mode: Option<&charter::TargetMode>, reported: ReportedModes) -> Option<Hole> {
    match mode {
        None => Some(Hole::NoMode),
        Some(charter::TargetMode::None { .. }) => Some(Hole::Unfenced),
        // The grantor itself refuses there; a bounded pause is a declared assumption.
        Some(charter::TargetMode::Grantor | charter::TargetMode::BoundedPause { .. }) => None,
        Some(charter::TargetMode::Forced | charter::TargetMode::Cooperative)
            if reported == ReportedModes::default() =>
        {
            Some(Hole::NeverReported)
        }
        Some(charter::TargetMode::Forced) if reported.cooperative > 0 => Some(Hole::Weaker),
        Some(charter::TargetMode::Forced | charter::TargetMode::Cooperative) => None,
    }
}

/// The number of holes of each kind, in the order of [`Hole::ALL`]. A declared target counts once for each charter: its fences of all
/// resources below the prefix count together. An undeclared target counts once for each resource. A resource without charter and
/// reports has no targets to count, so [`Hole::NoTarget`] stays zero.
///
/// A recount of everything, which [`HoleCounts`](super::HoleCounts) must agree with.
#[cfg(test)]
pub(super) fn count_holes(charters: &charter::Charters, coverage: &CoverageTable) -> [usize; Hole::ALL.len()] {
    use std::collections::BTreeSet;

    let mut reported: BTreeMap<(&str, &str), Vec<FenceMode>> = BTreeMap::new();
    let mut undeclared = BTreeSet::new();
    for (resource, target, mode) in coverage.modes() {
        match charters.find(resource) {
            Some((prefix, charter)) if charter.targets.iter().any(|declared| declared.name == target) => {
                reported.entry((prefix, target)).or_default().push(mode);
            }
            _ => {
                undeclared.insert((resource, target));
            }
        }
    }
    let mut holes = [0; Hole::ALL.len()];
    holes[Hole::Undeclared as usize] = undeclared.len();
    for (prefix, charter) in charters.iter() {
        for target in &charter.targets {
            let modes = reported.get(&(prefix, target.name.as_str())).map_or(&[][..], Vec::as_slice);
            if let Some(hole) = declared_hole(target.mode.as_ref(), modes.iter().copied().collect()) {
                holes[hole as usize] += 1;
            }
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::super::{CoverageRecord, HoleCounts};
    use super::*;
    use crate::charter::Charters;
    use crate::time::WallClock;

    fn charter(targets: &[(&str, Option<charter::TargetMode>)]) -> Charter {
        let target = |(name, mode): &(&str, Option<charter::TargetMode>)| charter::Target {
            name: (*name).into(),
            at: format!("sqlite:/var/{name}"),
            mode: mode.clone(),
            reporter: None,
        };
        Charter { targets: targets.iter().map(target).collect(), ..Charter::default() }
    }

    fn reported(targets: &[(&str, FenceMode)]) -> CoverageTable {
        let mut coverage = CoverageTable::default();
        for (target, mode) in targets {
            let (resource, target) = ("a".into(), (*target).into());
            let fact = CoverageRecord::Reported { resource, slot: 0, target, mode: *mode, owner: None };
            coverage.apply(&fact, 0, WallClock(5)).unwrap();
        }
        coverage
    }

    fn holes_of(charter: Option<&Charter>, coverage: &CoverageTable) -> Vec<(String, Option<Hole>)> {
        target_views("a", charter, coverage, None).into_iter().map(|target| (target.name, target.hole)).collect()
    }

    #[test]
    fn a_resource_without_declared_and_reported_targets_is_one_hole() {
        let none = CoverageTable::default();
        assert_eq!(holes_of(None, &none), [(String::new(), Some(Hole::NoTarget))]);
        assert_eq!(holes_of(Some(&Charter::default()), &none), [(String::new(), Some(Hole::NoTarget))]);
    }

    #[test]
    fn each_combination_of_declared_and_reported_modes_has_the_expected_hole() {
        use charter::TargetMode as Declared;
        let pause = Declared::BoundedPause { assumed_ms: 5_000, blast_radius: None };
        let cases = [
            (Some(Declared::Forced), Some(FenceMode::Forced), None),
            (Some(Declared::Forced), Some(FenceMode::Cooperative), Some(Hole::Weaker)),
            (Some(Declared::Forced), None, Some(Hole::NeverReported)),
            (Some(Declared::Cooperative), Some(FenceMode::Forced), None),
            (Some(Declared::Cooperative), Some(FenceMode::Cooperative), None),
            (Some(Declared::Cooperative), None, Some(Hole::NeverReported)),
            (Some(Declared::Grantor), None, None),
            (Some(pause), None, None),
            (Some(Declared::None { comment: None }), Some(FenceMode::Forced), Some(Hole::Unfenced)),
            (None, Some(FenceMode::Forced), Some(Hole::NoMode)),
        ];
        for (declared, mode, hole) in cases {
            let coverage = reported(&mode.map(|mode| ("db", mode)).into_iter().collect::<Vec<_>>());
            let charter = charter(&[("db", declared.clone())]);
            assert_eq!(holes_of(Some(&charter), &coverage), [("db".to_owned(), hole)], "{declared:?} {mode:?}");
        }
    }

    #[test]
    fn undeclared_targets_come_last_and_are_holes() {
        let coverage = reported(&[("aaa", FenceMode::Forced), ("db", FenceMode::Forced)]);
        let charter = charter(&[("db", Some(charter::TargetMode::Forced))]);
        let seen = holes_of(Some(&charter), &coverage);
        assert_eq!(seen, [("db".to_owned(), None), ("aaa".to_owned(), Some(Hole::Undeclared))]);
    }

    #[test]
    fn holes_are_counted_once_for_each_charter_and_each_undeclared_target() {
        use charter::TargetMode as Declared;
        let mut charters = Charters::default();
        let targets = [
            ("ledger", Some(Declared::Forced)),
            ("cache", Some(Declared::Forced)),
            ("mail", Some(Declared::None { comment: None })),
            ("disk", None),
            ("server", Some(Declared::Grantor)),
        ];
        charters.set("jobs", charter(&targets), 0).expect("there is room");
        charters.set("jobs/other", charter(&[("ledger", Some(Declared::Cooperative))]), 0).expect("there is room");
        let count = |coverage: &CoverageTable| {
            let holes = count_holes(&charters, coverage);
            assert_eq!(HoleCounts::of(&charters, coverage).holes(), holes);
            Hole::ALL
                .into_iter()
                .filter(|hole| holes[*hole as usize] > 0)
                .map(|hole| (hole, holes[hole as usize]))
                .collect::<Vec<_>>()
        };
        let none = CoverageTable::default();
        assert_eq!(count(&none), [(Hole::NeverReported, 3), (Hole::NoMode, 1), (Hole::Unfenced, 1)]);
        let mut coverage = CoverageTable::default();
        for (resource, target, mode) in [
            ("jobs/a", "ledger", FenceMode::Forced),
            ("jobs/b", "ledger", FenceMode::Forced),
            ("jobs/b", "cache", FenceMode::Cooperative),
            ("jobs/c", "cache", FenceMode::Cooperative),
            ("jobs/b", "queue", FenceMode::Forced),
            ("elsewhere", "ledger", FenceMode::Forced),
            ("jobs/other", "cache", FenceMode::Forced),
        ] {
            let (resource, target) = (resource.into(), target.into());
            let record = CoverageRecord::Reported { resource, slot: 0, target, mode, owner: None };
            coverage.apply(&record, 0, WallClock(5)).expect("a valid report");
        }
        let expected = [
            (Hole::NeverReported, 1),
            (Hole::Undeclared, 3),
            (Hole::Weaker, 1),
            (Hole::NoMode, 1),
            (Hole::Unfenced, 1),
        ];
        assert_eq!(count(&coverage), expected, "the charter of jobs/other has its own ledger");
    }

    #[test]
    fn every_hole_has_its_own_word_and_advice() {
        for hole in Hole::ALL {
            assert_eq!(Hole::from_word(hole.word()), Some(hole));
            assert!(hole.advice().contains(';'), "{hole:?} names no next step");
        }
    }
}
