//! Every fault that was built in on purpose, switched on one after the other, until a checker finds it.

use leasehold_core::mutants::{Mutant, choose};

use crate::planted::Planted;
use crate::runs::{Plan, many};

/// How many separate tries are made for the median.
const TRIES: u64 = 3;

/// A fault of the core, or one planted around it.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// In the core.
    Core(Mutant),
    /// Around it.
    Around(Planted),
}

/// A fault, and what became of it.
#[derive(Debug)]
pub struct Killed {
    /// The promise that it breaks.
    pub promise: &'static str,
    /// Its name.
    pub fault: String,
    /// Who found it, with the promise it saw broken; none if it survived.
    pub by: Option<String>,
    /// The median number of seeds until then.
    pub seeds: u64,
}

/// Faults of the core that no run of these worlds can show, with the reason. The core's own checks catch each of them.
pub const ELSEWHERE: &[(Mutant, &str)] = &[
    (Mutant::ReentryNewToken, "nobody here enters a hold twice"),
    (Mutant::ExhaustionIgnored, "no run lasts until numbers run out"),
    (Mutant::ReadersOvertake, "nobody here shares a lease"),
    (Mutant::NoGrace, "nobody here has a priority"),
    (Mutant::NothingInherited, "nobody here has a priority"),
    (Mutant::SecretNotCompared, "nobody here comes back by a secret"),
    (Mutant::ReadDuringIntent, "nothing here is cached"),
    (Mutant::WriteDoesNotWait, "nothing here is cached"),
    (Mutant::PulseIsProgress, "nobody here must show progress"),
    (Mutant::PinBelowFloor, "nothing here is pinned"),
    (Mutant::PinIgnored, "nothing here is pinned"),
    (Mutant::RequestsUnbounded, "nobody here asks for so much"),
    (Mutant::ClaimAtOnce, "successors here claim without waiting; the fence orders them"),
    (Mutant::ChainNotChecked, "no journal here puts one batch in another's place"),
    (Mutant::EndNotGuarded, "no record here ends a lease that is not its own"),
    (Mutant::RenewalInState, "the state is folded from records alone, with the fault on both sides"),
];

/// Every fault that these worlds must show.
pub fn all() -> Vec<Fault> {
    let core = Mutant::ALL.iter().filter(|mutant| !ELSEWHERE.iter().any(|(other, _)| other == *mutant));
    core.map(|mutant| Fault::Core(*mutant)).chain(Planted::ALL.iter().map(|planted| Fault::Around(*planted))).collect()
}

/// Switches one on and plays until it is found.
pub fn kill(fault: Fault, most: u64, jobs: usize) -> Killed {
    let (promise, name, planted) = match fault {
        Fault::Core(mutant) => (mutant.promise(), format!("{mutant:?}"), None),
        Fault::Around(planted) => (planted.promise(), format!("{planted:?}"), Some(planted)),
    };
    if let Fault::Core(mutant) = fault {
        choose(Some(mutant));
    }
    let mut needed = Vec::new();
    let mut by = None;
    for attempt in 0..TRIES {
        let from = attempt * 1_000_000;
        let report = many(&Plan { from, seeds: most, jobs, planted, stop: true, each: &|| {} });
        match report.failures.first() {
            None => {
                by = None;
                break;
            }
            Some(failure) => {
                needed.push(failure.seed - from + 1);
                by.get_or_insert(format!("{} ({})", failure.by, failure.violation.promise));
            }
        }
    }
    choose(None);
    needed.sort_unstable();
    let seeds = needed.get(needed.len() / 2).copied().unwrap_or(most);
    Killed { promise, fault: name, by, seeds }
}
