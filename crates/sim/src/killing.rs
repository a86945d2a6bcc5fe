//! Every fault that was built in on purpose, switched on one after the other, until a checker finds it.

use leasehold_core::mutants::Mutant;

use crate::planted::Planted;

/// How many separate tries are made for the median.
#[cfg(feature = "mutants")]
const TRIES: u64 = 3;

/// Where the tries of a fault begin, so far apart that they share no seed.
#[cfg(feature = "mutants")]
const APART: u64 = 1_000_000;

/// The page of the faults that the core's own checks catch, each with the check: written and held by those checks.
const CAUGHT_BY_THE_CORE: &str = include_str!("../../../docs/mutants.md");

/// A fault of the core, or one planted around it.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// In the core.
    Core(Mutant),
    /// Around it: in journal, driver, holder or fence.
    Around(Planted),
}

impl Fault {
    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Core(mutant) => format!("{mutant:?}"),
            Self::Around(planted) => format!("{planted:?}"),
        }
    }

    /// The promise that it breaks.
    pub const fn promise(self) -> &'static str {
        match self {
            Self::Core(mutant) => mutant.promise(),
            Self::Around(planted) => planted.promise(),
        }
    }
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
    (Mutant::ExhaustionIgnored, "no run lasts until numbers run out"),
    (Mutant::RequestsUnbounded, "nobody here asks for so much"),
    (Mutant::ClaimAtOnce, "successors here claim without waiting; the fence orders them"),
    (Mutant::ChainNotChecked, "no journal here puts one batch in another's place"),
    (Mutant::ExpiredHoldConfirmed, "nobody here confirms in the very turn that ends its hold"),
    (Mutant::RefusalNotRecorded, "the same turn ends it anyway, before anybody is told"),
    (Mutant::EndNotGuarded, "no record here ends a lease that is not its own"),
    (Mutant::SessionIdAgain, "an id that comes again is in somebody's way in one world of a hundred thousand"),
];

/// What others got wrong before us, and the fault that does the same here.
pub const HISTORICAL: &[(&str, &str)] = &[
    ("grant to a dead waiter", "DeadWaiterGranted"),
    ("renewal OK after revoke", "RevokeForgotten"),
    ("stuck leader revokes everyone", "CreditNotRecorded"),
    ("ttl reset on every election", "EveryOpeningExtends"),
    ("revision backwards after restore", "RestoreKeepsCounter"),
    ("counter reset with the lock", "CounterResets"),
    ("zero means for ever", "ZeroIsForever"),
    ("ack by id", "AckById"),
    ("non-durable mark", "MarkNotDurable"),
];

/// Every fault that these worlds must show.
pub fn all() -> Vec<Fault> {
    let core = Mutant::ALL.iter().filter(|mutant| !ELSEWHERE.iter().any(|(other, _)| other == *mutant));
    core.map(|mutant| Fault::Core(*mutant)).chain(Planted::ALL.iter().map(|planted| Fault::Around(*planted))).collect()
}

/// The faults that others catch, each with the check that does, as the page says that its own run holds.
pub fn elsewhere() -> Vec<Killed> {
    let row = |(mutant, why): &(Mutant, &str)| {
        let fault = format!("{mutant:?}");
        let start = format!("| {} | `{fault}` | ", mutant.promise());
        let by = CAUGHT_BY_THE_CORE.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix(" |"));
        let by = by.filter(|by| !by.is_empty()).map(|by| format!("core, {by} ({why})"));
        Killed { promise: mutant.promise(), fault, by, seeds: 0 }
    };
    ELSEWHERE.iter().map(row).collect()
}

/// Switches one on and plays until it is found.
#[cfg(feature = "mutants")]
pub fn kill(fault: Fault, most: u64, jobs: usize) -> Killed {
    use leasehold_core::mutants::choose;

    use crate::runs::{Plan, many};
    let planted = match fault {
        Fault::Core(mutant) => {
            choose(Some(mutant));
            None
        }
        Fault::Around(planted) => Some(planted),
    };
    let mut needed = Vec::new();
    let mut by = None;
    for attempt in 0..TRIES {
        let from = attempt * APART;
        let report = many(&Plan { from, jobs, planted, stop: true, ..Plan::of(most) });
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
    Killed { promise: fault.promise(), fault: fault.name(), by, seeds }
}
