//! A small naive grantor, obviously right and slow, and runs of the real one beside it.
//!
//! [`run_seed`] draws a run from a seed and holds the core to the spec after every turn. A run that fails is cut down to
//! the acts that it needs, and told in words.

#![allow(dead_code, reason = "each test that includes the spec uses its own part of it")]

mod acquire;
mod acts;
mod asks;
mod authority;
mod breaks;
mod chance;
mod charters;
mod clock;
mod compare;
mod held;
mod model;
mod queue;
mod reports;
mod sessions;
mod sightings;
mod state;
mod stuck;
mod tick;
mod wishes;
pub mod world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[allow(unused_imports, reason = "each test that includes the spec uses its own part of it")]
pub use acts::{Act, Flavour};
#[allow(unused_imports, reason = "each test that includes the spec uses its own part of it")]
pub use chance::Chance;
use world::World;

/// How many acts a run has.
const LENGTH: usize = 120;

/// Which cluster the runs are of.
mod identity {
    use leasehold_core::token::{Cluster, Incarnation};

    pub const CLUSTER: Cluster = Cluster(*b"spectest");
    pub const STRANGER: Cluster = Cluster(*b"stranger");

    pub const fn incarnation(n: u32) -> Incarnation {
        Incarnation(n)
    }
}

/// What a run met, by name, and how often.
pub type Seen = BTreeMap<&'static str, u64>;

/// One run from a seed. The error tells the shortest run found that still fails.
pub fn run_seed(seed: u64) -> Result<(), String> {
    run(seed, &acts::draw(seed, LENGTH)).map(|_| ())
}

/// One run of these acts. The error tells the shortest run found that still fails.
pub fn run(seed: u64, acts: &[Act]) -> Result<Seen, String> {
    match attempt(seed, acts, false) {
        Ok(world) => Ok(world.seen),
        Err(_) => {
            let acts = shortest(seed, acts.to_vec());
            let Err((why, trace)) = attempt(seed, &acts, true) else {
                return Err(format!("seed {seed}: a run failed once and not again: the core is not deterministic"));
            };
            let mut words = format!("seed {seed}: {why}\n{} acts are enough:\n", acts.len());
            for line in trace {
                let _ = writeln!(words, "  {line}");
            }
            Err(words)
        }
    }
}

/// What a run of a seed meets.
pub fn seen_by(seed: u64) -> Result<Seen, String> {
    run(seed, &acts::draw(seed, LENGTH))
}

/// The batches that a run of a seed leaves, and the state after them.
pub fn kept_by(seed: u64, length: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    match attempt(seed, &acts::draw(seed, length), false) {
        Ok(world) => world.kept(),
        Err((why, _)) => panic!("seed {seed}: {why}"),
    }
}

fn attempt(seed: u64, acts: &[Act], trace: bool) -> Result<World, (String, Vec<String>)> {
    let mut world = World::new(Flavour::new(seed), trace).map_err(|why| (why, Vec::new()))?;
    for act in acts {
        let done = quietly(|| world.act(*act)).unwrap_or_else(|panic| Err(format!("the core panicked: {panic}")));
        if let Err(why) = done {
            return Err((why, world.trace.take().unwrap_or_default()));
        }
    }
    Ok(world)
}

/// Leaves acts out, in large pieces and then one by one, as long as the run still fails.
fn shortest(seed: u64, mut acts: Vec<Act>) -> Vec<Act> {
    let mut piece = acts.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from < acts.len() {
            let mut fewer = acts.clone();
            fewer.drain(from..(from + piece).min(acts.len()));
            if attempt(seed, &fewer, false).is_err() {
                acts = fewer;
            } else {
                from += piece;
            }
        }
        piece /= 2;
    }
    acts
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something that may panic, and hands the panic's words back instead of printing them.
pub fn quietly<T>(what: impl FnOnce() -> T) -> Result<T, String> {
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
        (Some(words), _) => words.clone(),
        (None, Some(words)) => (*words).to_owned(),
        (None, None) => "without words".to_owned(),
    })
}
