//! A simple, slow reference implementation of the grantor, and random runs that compare the core with it.
//!
//! [`run_seed`] generates a run from a seed and compares the core with the spec after every turn. A failing run is
//! shrunk to the actions it needs and printed.

#![allow(dead_code, reason = "each test that includes the spec uses its own part of it")]

mod acquire;
mod charters;
mod command_effects;
mod compare;
mod coverage;
mod deadlock_oracle;
mod faults;
mod grantor_time;
mod holdings;
mod lease_ops;
mod listings;
mod model;
mod operator;
mod random_actions;
mod reports;
mod request_gen;
pub mod runner;
mod sessions;
mod tick;
mod wait_queue;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[allow(unused_imports, reason = "each test that includes the spec uses its own part of it")]
pub use random_actions::{Action, RunProfile};
#[allow(unused_imports, reason = "each test that includes the spec uses its own part of it")]
use runner::Runner;

/// Number of actions of a run.
const LENGTH: usize = 120;

/// Identity of the test cluster.
mod identity {
    use leasehold_core::token::{Cluster, Incarnation};

    pub const CLUSTER: Cluster = Cluster(*b"spectest");
    pub const OTHER_CLUSTER: Cluster = Cluster(*b"stranger");

    pub const fn incarnation(n: u32) -> Incarnation {
        Incarnation(n)
    }
}

/// The situations that a run reached, by name, with counts.
pub type RunCoverage = BTreeMap<&'static str, u64>;

/// Runs one seed. The error describes the shortest failing run that was found.
pub fn run_seed(seed: u64) -> Result<(), String> {
    run(seed, &random_actions::generate(seed, LENGTH)).map(|_| ())
}

/// Runs these actions. The error describes the shortest failing run that was found.
pub fn run(seed: u64, actions: &[Action]) -> Result<RunCoverage, String> {
    match attempt(seed, actions, false) {
        Ok(runner) => Ok(runner.coverage),
        Err(_) => {
            let actions = shrink(seed, actions.to_vec());
            let Err((error, trace)) = attempt(seed, &actions, true) else {
                return Err(format!("seed {seed}: a run failed once and then passed: the core is not deterministic"));
            };
            let mut text = format!("seed {seed}: {error}\n{} actions are enough:\n", actions.len());
            for line in trace {
                let _ = writeln!(text, "  {line}");
            }
            Err(text)
        }
    }
}

/// The situations that a seed reaches.
pub fn coverage_of(seed: u64) -> Result<RunCoverage, String> {
    run(seed, &random_actions::generate(seed, LENGTH))
}

/// The batches that the run of a seed writes, and the state after them.
pub fn journal_of(seed: u64, length: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    match attempt(seed, &random_actions::generate(seed, length), false) {
        Ok(runner) => runner.journal(),
        Err((error, _)) => panic!("seed {seed}: {error}"),
    }
}

fn attempt(seed: u64, actions: &[Action], trace: bool) -> Result<Runner, (String, Vec<String>)> {
    let mut runner = Runner::new(RunProfile::new(seed), trace).map_err(|error| (error, Vec::new()))?;
    for action in actions {
        let done =
            catch_panic(|| runner.action(*action)).unwrap_or_else(|panic| Err(format!("the core panicked: {panic}")));
        if let Err(error) = done {
            return Err((error, runner.trace.take().unwrap_or_default()));
        }
    }
    Ok(runner)
}

/// Removes actions, first in large chunks and then one by one, as long as the run still fails.
fn shrink(seed: u64, mut actions: Vec<Action>) -> Vec<Action> {
    let mut piece = actions.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(from..(from + piece).min(actions.len()));
            if attempt(seed, &fewer, false).is_err() {
                actions = fewer;
            } else {
                from += piece;
            }
        }
        piece /= 2;
    }
    actions
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a closure and returns the message of a panic instead of printing it.
pub fn catch_panic<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let was = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(what));
    QUIET.set(was);
    done.map_err(|panic| match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "a panic without a message".to_owned(),
    })
}
