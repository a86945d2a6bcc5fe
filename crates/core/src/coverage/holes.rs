//! What a lease's charter declares beside what fences reported, and where the two leave a hole.

use std::collections::BTreeMap;

use super::{Checked, Coverage, Mode, Place, Seen};
use crate::charter::{self, Charter};

/// One slot of a target: what is on record, and what was checked since this grantor serves.
type At = (u32, Seen, Option<Checked>);

/// Where a zombie could get through, or where nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hole {
    /// Neither declared nor reported: nobody knows where this lease's holder writes.
    NoTarget,
    /// Declared, and no fence ever reported from there.
    NeverReported,
    /// Reported, and no charter declares it.
    Undeclared,
    /// Declared as forced, and its fence says that it only is cooperative.
    Weaker,
    /// Declared without a word on how it meets a stale token.
    Unsaid,
    /// Declared as checking nothing.
    Unfenced,
}

impl Hole {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::NoTarget, Self::NeverReported, Self::Undeclared, Self::Weaker, Self::Unsaid, Self::Unfenced];

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::NeverReported => "never_reported",
            Self::Undeclared => "undeclared",
            Self::Weaker => "weaker",
            Self::Unsaid => "unsaid",
            Self::Unfenced => "unfenced",
        }
    }

    /// The hole that a stable word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hole| hole.word() == word)
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoTarget => "nobody knows where its holder writes; declare its targets in a charter",
            Self::NeverReported => "no fence ever reported from it; install the fence, and give it a reporter",
            Self::Undeclared => "no charter declares it; declare it, or forget it if it is gone",
            Self::Weaker => "declared forced, but its fence is cooperative; force it, or declare it as it is",
            Self::Unsaid => "nobody said how it meets a stale token; say so in the charter",
            Self::Unfenced => "it checks nothing; put a fence there, or accept that a zombie writes",
        }
    }
}

/// One target of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// What people call it.
    pub name: String,
    /// Where it is, as the charter says; empty if none does.
    pub at: String,
    /// What the charter says about it, if it declares it: absent inside while nobody has said.
    pub declared: Option<Option<charter::Mode>>,
    /// What its fences reported, by slot, with what was counted since the server started.
    pub seen: Vec<(u32, Seen, Option<Checked>)>,
    /// What is missing.
    pub hole: Option<Hole>,
}

/// Every target that a resource covers, declared ones first, in the charter's order. One target that is nobody's name
/// stands for having none at all.
pub fn holes(
    resource: &str,
    charter: Option<&Charter>,
    coverage: &Coverage,
    checked: Option<&BTreeMap<Place, Checked>>,
) -> Vec<TargetView> {
    let mut reported: BTreeMap<&str, Vec<At>> = BTreeMap::new();
    for (target, slot, seen) in coverage.of(resource) {
        let counted = checked.and_then(|checked| checked.get(&(target.into(), slot))).copied();
        reported.entry(target).or_default().push((slot, seen.clone(), counted));
    }
    let mut targets = Vec::new();
    for target in charter.map_or(&[][..], |charter| &charter.targets) {
        let seen = reported.remove(target.name.as_str()).unwrap_or_default();
        let hole = declared(target.mode.as_ref(), &seen);
        let (name, at) = (target.name.clone(), target.at.clone());
        targets.push(TargetView { name, at, declared: Some(target.mode.clone()), seen, hole });
    }
    for (name, seen) in reported {
        let hole = Some(Hole::Undeclared);
        targets.push(TargetView { name: name.into(), at: String::new(), declared: None, seen, hole });
    }
    if targets.is_empty() {
        let hole = Some(Hole::NoTarget);
        targets.push(TargetView { name: String::new(), at: String::new(), declared: None, seen: Vec::new(), hole });
    }
    targets
}

fn declared(mode: Option<&charter::Mode>, seen: &[(u32, Seen, Option<Checked>)]) -> Option<Hole> {
    match mode {
        None => Some(Hole::Unsaid),
        Some(charter::Mode::None { .. }) => Some(Hole::Unfenced),
        // The grantor itself refuses there, and an assumption was written down with its price.
        Some(charter::Mode::Grantor | charter::Mode::BoundedPause { .. }) => None,
        Some(charter::Mode::Forced | charter::Mode::Cooperative) if seen.is_empty() => Some(Hole::NeverReported),
        Some(charter::Mode::Forced) if seen.iter().any(|(_, seen, _)| seen.mode != Mode::Forced) => Some(Hole::Weaker),
        Some(charter::Mode::Forced | charter::Mode::Cooperative) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fact;
    use super::*;
    use crate::time::Wall;

    fn charter(targets: &[(&str, Option<charter::Mode>)]) -> Charter {
        let target = |(name, mode): &(&str, Option<charter::Mode>)| charter::Target {
            name: (*name).into(),
            at: format!("sqlite:/var/{name}"),
            mode: mode.clone(),
        };
        Charter { targets: targets.iter().map(target).collect(), ..Charter::default() }
    }

    fn reported(targets: &[(&str, Mode)]) -> Coverage {
        let mut coverage = Coverage::default();
        for (target, mode) in targets {
            let fact = Fact::Reported { resource: "a".into(), slot: 0, target: (*target).into(), mode: *mode };
            coverage.apply(&fact, Wall(5)).unwrap();
        }
        coverage
    }

    fn told(charter: Option<&Charter>, coverage: &Coverage) -> Vec<(String, Option<Hole>)> {
        holes("a", charter, coverage, None).into_iter().map(|target| (target.name, target.hole)).collect()
    }

    #[test]
    fn a_lease_that_nobody_declared_and_nobody_reported_is_one_hole() {
        let none = Coverage::default();
        assert_eq!(told(None, &none), [(String::new(), Some(Hole::NoTarget))]);
        assert_eq!(told(Some(&Charter::default()), &none), [(String::new(), Some(Hole::NoTarget))]);
    }

    #[test]
    fn every_way_to_declare_and_to_report_is_a_hole_or_is_not() {
        use charter::Mode as Declared;
        let pause = Declared::BoundedPause { assumed_ms: 5_000, blast_radius: None };
        let cases = [
            (Some(Declared::Forced), Some(Mode::Forced), None),
            (Some(Declared::Forced), Some(Mode::Cooperative), Some(Hole::Weaker)),
            (Some(Declared::Forced), None, Some(Hole::NeverReported)),
            (Some(Declared::Cooperative), Some(Mode::Forced), None),
            (Some(Declared::Cooperative), Some(Mode::Cooperative), None),
            (Some(Declared::Cooperative), None, Some(Hole::NeverReported)),
            (Some(Declared::Grantor), None, None),
            (Some(pause), None, None),
            (Some(Declared::None { why: None }), Some(Mode::Forced), Some(Hole::Unfenced)),
            (None, Some(Mode::Forced), Some(Hole::Unsaid)),
        ];
        for (declared, mode, hole) in cases {
            let coverage = reported(&mode.map(|mode| ("db", mode)).into_iter().collect::<Vec<_>>());
            let charter = charter(&[("db", declared.clone())]);
            assert_eq!(told(Some(&charter), &coverage), [("db".to_owned(), hole)], "{declared:?} {mode:?}");
        }
    }

    #[test]
    fn what_reports_and_is_not_declared_comes_last_and_is_a_hole() {
        let coverage = reported(&[("aaa", Mode::Forced), ("db", Mode::Forced)]);
        let charter = charter(&[("db", Some(charter::Mode::Forced))]);
        let seen = told(Some(&charter), &coverage);
        assert_eq!(seen, [("db".to_owned(), None), ("aaa".to_owned(), Some(Hole::Undeclared))]);
    }

    #[test]
    fn every_hole_has_a_word_of_its_own() {
        for hole in Hole::ALL {
            assert_eq!(Hole::from_word(hole.word()), Some(hole));
            assert!(hole.advice().contains(';'), "{hole:?} names no next step");
        }
    }
}
