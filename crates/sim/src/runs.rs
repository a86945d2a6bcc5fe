//! Many seeds, one after the other and side by side: which fail, whether they repeat, and what was never tried.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::ask::Ask;
use crate::check::{self, Violation};
use crate::fault::Fault;
use crate::history::{Event, History};
use crate::planted::Planted;
use crate::world::{Setup, World};

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The checker that found it.
    pub by: &'static str,
    /// What it found.
    pub violation: Violation,
}

/// How often each request was under way when each fault struck.
pub type Coverage = BTreeMap<(&'static str, &'static str), u64>;

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Report {
    /// How many were played.
    pub played: u64,
    /// How many of them were played twice.
    pub twice: u64,
    /// Those that failed, by seed.
    pub failures: Vec<Failure>,
    /// What was tried.
    pub coverage: Coverage,
}

/// How many seeds to play, and how.
pub struct Plan<'a> {
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// How many side by side.
    pub jobs: usize,
    /// A fault planted outside of the core.
    pub planted: Option<Planted>,
    /// Whether to stop at the first failure.
    pub stop: bool,
    /// When to stop, whatever is left.
    pub until: Option<Instant>,
    /// Set by whoever wants an end now; what was played until then is told.
    pub halted: &'a AtomicBool,
    /// Told after each seed.
    pub each: &'a (dyn Fn() + Sync),
}

impl Plan<'_> {
    /// So many seeds from the first on, one after the other, to the end.
    pub const fn of(seeds: u64) -> Plan<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Plan { from: 0, seeds, jobs: 1, planted: None, stop: false, until: None, halted: &NEVER, each: &|| {} }
    }

    fn is_over(&self) -> bool {
        self.halted.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// One run in a hundred is played twice: the same seed must give the same history.
const TWICE: u64 = 100;

/// Plays one setup and tells the first broken promise.
pub fn play(setup: &Setup) -> (History, Option<(&'static str, Violation)>) {
    let history = World::new(setup).play();
    let found = check::first(&history);
    (history, found)
}

/// Plays many seeds.
pub fn many(plan: &Plan<'_>) -> Report {
    let next = AtomicU64::new(plan.from);
    let stopped = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                let mut own = Report::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= plan.from + plan.seeds || stopped.load(Ordering::Relaxed) || plan.is_over() {
                        break;
                    }
                    one(plan, seed, &mut own);
                    if plan.stop && !own.failures.is_empty() {
                        stopped.store(true, Ordering::Relaxed);
                    }
                    (plan.each)();
                }
                let mut all = report.lock().expect("no thread panics while it adds up");
                all.played += own.played;
                all.twice += own.twice;
                all.failures.extend(own.failures);
                for (cell, count) in own.coverage {
                    *all.coverage.entry(cell).or_default() += count;
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no thread panics while it adds up");
    report.failures.sort_by_key(|failure| failure.seed);
    report
}

fn one(plan: &Plan<'_>, seed: u64, report: &mut Report) {
    let setup = Setup { planted: plan.planted, ..Setup::of(seed) };
    let (history, found) = play(&setup);
    report.played += 1;
    cover(&history, &mut report.coverage);
    if let Some((by, violation)) = found {
        report.failures.push(Failure { seed, by, violation });
    } else if seed.is_multiple_of(TWICE) {
        report.twice += 1;
        if World::new(&setup).play().digest() != history.digest() {
            let violation = Violation { promise: "V1", at: 0, why: "the same seed gave another history".to_owned() };
            report.failures.push(Failure { seed, by: "twice", violation });
        }
    }
}

/// Counts which requests were without an answer when each fault struck.
fn cover(history: &History, coverage: &mut Coverage) {
    let mut open: BTreeMap<u64, &'static str> = BTreeMap::new();
    for (_, event) in &history.events {
        match event {
            Event::Asked { op, ask, .. } => {
                open.insert(*op, ask.kind());
            }
            Event::Answered { op, .. } | Event::GaveUp { op, .. } => {
                open.remove(op);
            }
            Event::Struck { fault, .. } => {
                for kind in open.values() {
                    *coverage.entry((fault.word(), kind)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
}

/// Cells of fault and request that never met.
pub fn never_met(coverage: &Coverage) -> Vec<(&'static str, &'static str)> {
    let mut missing = Vec::new();
    for fault in Fault::ALL {
        // These two are made before anybody asks for anything.
        if matches!(fault, Fault::WildServer | Fault::WildHolder) {
            continue;
        }
        for kind in Ask::KINDS {
            if kind != "show" && !coverage.contains_key(&(fault.word(), kind)) {
                missing.push((fault.word(), kind));
            }
        }
    }
    missing
}

/// The smallest world found in which a seed still breaks the same promise, with the same fault planted, if there is one.
pub fn shrink(seed: u64, planted: Option<Planted>) -> Option<(Setup, Violation)> {
    let (faults, holders, length) = crate::world::drawn(seed);
    let as_drawn = Setup { faults: Some(faults), holders: Some(holders), length: Some(length), ..Setup::of(seed) };
    let mut best = Setup { planted, ..as_drawn };
    let (_, violation) = play(&best).1?;
    let mut best_violation = violation;
    loop {
        let promise = best_violation.promise;
        let smaller = candidates(&best).into_iter().find_map(|setup| {
            let (_, found) = play(&setup).1?;
            (found.promise == promise).then_some((setup, found))
        });
        match smaller {
            Some((setup, found)) => (best, best_violation) = (setup, found),
            None => return Some((best, best_violation)),
        }
    }
}

fn candidates(setup: &Setup) -> Vec<Setup> {
    let faults = setup.faults.expect("a shrunk setup names its faults");
    let mut all: Vec<Setup> =
        faults.iter().map(|fault| Setup { faults: Some(faults.without(fault)), ..*setup }).collect();
    if let Some(holders) = setup.holders.filter(|holders| *holders > 1) {
        all.push(Setup { holders: Some(holders - 1), ..*setup });
    }
    if let Some(length) = setup.length.filter(|length| *length > 1_000) {
        all.push(Setup { length: Some(length * 3 / 4), ..*setup });
    }
    all
}
