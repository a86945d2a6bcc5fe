//! Runs many seeds in parallel: which fail, whether they are deterministic, and which combinations were never tried.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::check::{self, PromiseViolation};
use crate::fault::Fault;
use crate::history::{History, HistoryEvent};
use crate::mutants::PlantedFault;
use crate::request::SimRequest;
use crate::world::{Setup, World};

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct FailedSeed {
    /// The seed to replay.
    pub seed: u64,
    /// The checker that found it.
    pub by: &'static str,
    /// What it found.
    pub violation: PromiseViolation,
}

/// How often each kind of request was in flight during each fault.
pub type FaultCoverage = BTreeMap<(&'static str, &'static str), u64>;

/// Result of many seeds.
#[derive(Debug, Default)]
pub struct RunReport {
    /// Number of seeds run.
    pub runs: u64,
    /// How many of them were run twice.
    pub repeated: u64,
    /// Failed seeds, in order.
    pub failures: Vec<FailedSeed>,
    /// Combinations of fault and request that occurred.
    pub coverage: FaultCoverage,
}

/// Which seeds to run, and how.
pub struct RunPlan<'a> {
    /// The first seed.
    pub from: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of threads.
    pub jobs: usize,
    /// A fault planted outside of the core.
    pub planted: Option<PlantedFault>,
    /// Whether to stop at the first failure.
    pub stop: bool,
    /// When to stop, even if seeds are left.
    pub until: Option<Instant>,
    /// Set to stop now; the report covers what ran until then.
    pub halted: &'a AtomicBool,
    /// Called after each seed.
    pub on_seed: &'a (dyn Fn() + Sync),
}

impl RunPlan<'_> {
    /// A plan for seeds 0 to `seeds`, on one thread, to the end.
    pub const fn new(seeds: u64) -> RunPlan<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        RunPlan { from: 0, seeds, jobs: 1, planted: None, stop: false, until: None, halted: &NEVER, on_seed: &|| {} }
    }

    fn is_over(&self) -> bool {
        self.halted.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// One run in a hundred is repeated: the same seed must give the same history.
const REPEAT_EVERY: u64 = 100;

/// Runs one setup and returns the first broken promise.
pub fn run_setup(setup: &Setup) -> (History, Option<(&'static str, PromiseViolation)>) {
    let history = World::new(setup).run();
    let found = check::first_violation(&history);
    (history, found)
}

/// Runs many seeds.
pub fn run_seeds(plan: &RunPlan<'_>) -> RunReport {
    let next = AtomicU64::new(plan.from);
    let stopped = AtomicBool::new(false);
    let report = Mutex::new(RunReport::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                let mut own = RunReport::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= plan.from + plan.seeds || stopped.load(Ordering::Relaxed) || plan.is_over() {
                        break;
                    }
                    run_seed(plan, seed, &mut own);
                    if plan.stop && !own.failures.is_empty() {
                        stopped.store(true, Ordering::Relaxed);
                    }
                    (plan.on_seed)();
                }
                let mut all = report.lock().expect("no thread panics while it holds the lock");
                all.runs += own.runs;
                all.repeated += own.repeated;
                all.failures.extend(own.failures);
                for (cell, count) in own.coverage {
                    *all.coverage.entry(cell).or_default() += count;
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no thread panics while it holds the lock");
    report.failures.sort_by_key(|failure| failure.seed);
    report
}

fn run_seed(plan: &RunPlan<'_>, seed: u64, report: &mut RunReport) {
    let setup = Setup { planted: plan.planted, ..Setup::new(seed) };
    let (history, found) = run_setup(&setup);
    report.runs += 1;
    count_coverage(&history, &mut report.coverage);
    if let Some((by, violation)) = found {
        report.failures.push(FailedSeed { seed, by, violation });
    } else if seed.is_multiple_of(REPEAT_EVERY) {
        report.repeated += 1;
        if World::new(&setup).run().digest() != history.digest() {
            let violation =
                PromiseViolation { promise: "V1", at: 0, detail: "the same seed gave another history".to_owned() };
            report.failures.push(FailedSeed { seed, by: "repeat", violation });
        }
    }
}

/// Counts which requests were unanswered during each fault.
fn count_coverage(history: &History, coverage: &mut FaultCoverage) {
    let mut open: BTreeMap<u64, &'static str> = BTreeMap::new();
    for (_, event) in &history.events {
        match event {
            HistoryEvent::Requested { op, request, .. } => {
                open.insert(*op, request.kind());
            }
            HistoryEvent::ReplyReceived { op, .. } | HistoryEvent::Abandoned { op, .. } => {
                open.remove(op);
            }
            HistoryEvent::FaultInjected { fault, .. } => {
                for kind in open.values() {
                    *coverage.entry((fault.name(), kind)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
}

/// Combinations of fault and request that never occurred.
pub fn missing_combinations(coverage: &FaultCoverage) -> Vec<(&'static str, &'static str)> {
    let mut missing = Vec::new();
    for fault in Fault::ALL {
        // These two faults act before any request is sent.
        if matches!(fault, Fault::ServerDrift | Fault::HolderDrift) {
            continue;
        }
        for kind in SimRequest::KINDS {
            if kind != "observe_token" && !coverage.contains_key(&(fault.name(), kind)) {
                missing.push((fault.name(), kind));
            }
        }
    }
    missing
}

/// Finds the smallest world in which a seed still breaks the same promise, with the same fault planted.
pub fn shrink(seed: u64, planted: Option<PlantedFault>) -> Option<(Setup, PromiseViolation)> {
    let (faults, holders, length) = crate::world::draw_setup(seed);
    let original = Setup { faults: Some(faults), holders: Some(holders), length: Some(length), ..Setup::new(seed) };
    let mut best = Setup { planted, ..original };
    let (_, violation) = run_setup(&best).1?;
    let mut best_violation = violation;
    loop {
        let promise = best_violation.promise;
        let smaller = candidates(&best).into_iter().find_map(|setup| {
            let (_, found) = run_setup(&setup).1?;
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
