//! Runs scenarios of one client in parallel, and collects their results.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::driver_list::DriverEntry;
use crate::driver_process::{DriverHello, DriverProcess};
use crate::environment::{EnvironmentKind, ServerKind, SharedServers};
use crate::failure::{ScenarioFailure, broken};
use crate::runner_step;
use crate::scenario::Scenario;
use crate::scenario_run::ScenarioRun;

/// What is the same for all scenarios of a client.
pub struct Suite<'a> {
    /// The client.
    pub driver: &'a DriverEntry,
    /// Command that starts a driver.
    pub command: Vec<String>,
    /// Root of the repository.
    pub root: PathBuf,
    /// Servers.
    pub shared: &'a SharedServers,
    /// Scenarios at a time.
    pub jobs: usize,
    /// Whether the lines of all drivers are printed.
    pub log: bool,
    /// A property that all drivers break.
    pub broken: Option<String>,
}

/// One scenario in one environment.
#[derive(Clone, Debug)]
pub struct ScenarioCase<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Where it runs.
    pub environment: EnvironmentKind,
}

/// How a case ended.
#[derive(Clone, Debug)]
pub enum CaseOutcome {
    /// All steps were as expected.
    Passed,
    /// The client lacks a feature, for this reason.
    Skipped(String),
    /// A step was not as expected, or could not be performed.
    Failed(ScenarioFailure),
}

/// The outcome of a case, with its duration.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Name of the scenario.
    pub scenario: String,
    /// Where it ran.
    pub environment: EnvironmentKind,
    /// How it ended.
    pub outcome: CaseOutcome,
    /// Time from its start to its end.
    pub millis: u64,
}

/// Number of the next run. Runs of all clients and properties share servers, so that each has names of its own.
static NEXT_RUN: AtomicUsize = AtomicUsize::new(0);

/// Driver processes that scenarios share, by the position of the actor.
#[derive(Default)]
struct DriverPool(Mutex<BTreeMap<usize, Arc<DriverProcess>>>);

impl Suite<'_> {
    /// Runs all cases and prints a line for each.
    pub fn run(&self, cases: Vec<ScenarioCase<'_>>) -> Result<(DriverHello, Vec<CaseResult>), ScenarioFailure> {
        let (first, hello) = self.start_driver("driver-0")?;
        if let Some(feature) = hello.skips.keys().find(|feature| !self.driver.may_skip.contains(feature)) {
            return broken(format!("{} may not skip {feature}; see drivers.toml", self.driver.name));
        }
        let pool = DriverPool(Mutex::new(BTreeMap::from([(0, Arc::new(first))])));
        let results = self.run_parallel(&cases, &hello, &pool);
        Ok((hello, results))
    }

    fn run_parallel(&self, cases: &[ScenarioCase<'_>], hello: &DriverHello, pool: &DriverPool) -> Vec<CaseResult> {
        let results = Mutex::new(Vec::new());
        let queue = Mutex::new(in_order_of_start(cases.to_vec()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(cases.len()) {
                scope.spawn(|| {
                    while let Some(case) = next(&queue) {
                        let number = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
                        let result = self.run_case(&case, number, hello, pool);
                        if self.broken.is_none() {
                            print_line(&self.driver.name, &result);
                        }
                        results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                    }
                });
            }
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_case(&self, case: &ScenarioCase<'_>, number: usize, hello: &DriverHello, pool: &DriverPool) -> CaseResult {
        let began = Instant::now();
        let missing = case.scenario.needs.iter().find_map(|feature| hello.skips.get(feature));
        let outcome = match missing {
            Some(reason) => CaseOutcome::Skipped(reason.clone()),
            None => match catch_unwind(AssertUnwindSafe(|| self.perform(case, number, pool))) {
                Ok(Ok(())) => CaseOutcome::Passed,
                Ok(Err(failure)) => CaseOutcome::Failed(failure),
                Err(_) => CaseOutcome::Failed(ScenarioFailure::Broken("the runner panicked".into())),
            },
        };
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        CaseResult { scenario: case.scenario.name.clone(), environment: case.environment, outcome, millis }
    }

    fn perform(&self, case: &ScenarioCase<'_>, number: usize, pool: &DriverPool) -> Result<(), ScenarioFailure> {
        let mut drivers = HashMap::new();
        for (at, actor) in case.scenario.actors().into_iter().enumerate() {
            let own = self.broken.is_some() || case.scenario.needs_own_process(actor);
            let driver = if own {
                Arc::new(self.start_driver(&format!("{}.{actor}", case.scenario.name))?.0)
            } else {
                pool.get(at, || self.start_driver(&format!("driver-{at}")))?
            };
            drivers.insert(actor.to_owned(), driver);
        }
        let namespace = format!("t{number}");
        let mut run = ScenarioRun::prepare(case.scenario, case.environment, namespace, self.shared, drivers)?;
        if let Some(property) = &self.broken {
            run.break_property(property)?;
        }
        let outcome = run.perform(runner_step::perform);
        if case.scenario.actors().into_iter().any(|actor| !case.scenario.needs_own_process(actor)) {
            run.close_clients();
        }
        outcome
    }

    fn start_driver(&self, name: &str) -> Result<(DriverProcess, DriverHello), ScenarioFailure> {
        DriverProcess::start(name, &self.command, &self.root, self.log)
    }
}

impl DriverPool {
    fn get(
        &self,
        at: usize,
        start: impl FnOnce() -> Result<(DriverProcess, DriverHello), ScenarioFailure>,
    ) -> Result<Arc<DriverProcess>, ScenarioFailure> {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = pool.get(&at) {
            return Ok(driver.clone());
        }
        let driver = Arc::new(start()?.0);
        pool.insert(at, driver.clone());
        Ok(driver)
    }
}

/// Those that need servers of their own take longest, so they start first.
fn in_order_of_start(cases: Vec<ScenarioCase<'_>>) -> VecDeque<ScenarioCase<'_>> {
    let mut cases = cases;
    cases.sort_by_key(|case| {
        let own = case.scenario.needs_own_servers() || case.scenario.server == ServerKind::Tls;
        (!(own && case.environment == EnvironmentKind::Three), !own, std::cmp::Reverse(case.scenario.steps.len()))
    });
    cases.into()
}

fn next<'a>(queue: &Mutex<VecDeque<ScenarioCase<'a>>>) -> Option<ScenarioCase<'a>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn print_line(client: &str, result: &CaseResult) {
    let CaseResult { scenario, environment, outcome, millis } = result;
    let (word, reason) = match outcome {
        CaseOutcome::Passed => ("ok", String::new()),
        CaseOutcome::Skipped(reason) => ("skipped", format!(": {reason}")),
        CaseOutcome::Failed(failure) => ("FAILED", format!("\n    {failure}")),
    };
    println!("{client} {scenario} [{}] ... {word} ({millis} ms){reason}", environment.name());
}
