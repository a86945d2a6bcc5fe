//! Runs the simulator with each built-in fault enabled, until a checker finds it.

use leasehold_core::mutants::Mutant;

use crate::mutants::PlantedFault;

/// First seed of each try, far enough apart that tries share no seed.
#[cfg(feature = "mutants")]
const SEEDS_APART: u64 = 1_000_000;

/// The page that lists the faults which the core's own checks catch; those checks generate and verify it.
const CAUGHT_BY_THE_CORE: &str = include_str!("../../../docs/internals/mutants.md");

/// A fault of the core, or one planted around it.
#[derive(Clone, Copy, Debug)]
pub enum MutationFault {
    /// In the core.
    Core(Mutant),
    /// Around it: in journal, driver, holder or fence.
    Around(PlantedFault),
}

impl MutationFault {
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

/// A fault and its result.
#[derive(Debug)]
pub struct MutantResult {
    /// The promise that it breaks.
    pub promise: &'static str,
    /// Its name.
    pub fault: String,
    /// Checker that found it, with the broken promise; `None` if the fault survived.
    pub by: Option<String>,
    /// Median number of seeds until it was found.
    pub seeds: u64,
}

/// Faults of the core that no simulated run can show, with the reason. The core's own checks catch each of them.
pub const ELSEWHERE: &[(Mutant, &str)] = &[
    (Mutant::ExhaustionIgnored, "no run lasts until numbers run out"),
    (Mutant::RequestsUnbounded, "no holder here sends that many requests"),
    (Mutant::KeyAlwaysNew, "no caller here makes an idempotency key of its own"),
    (Mutant::KeyOpenedUnchecked, "no caller here makes an idempotency key of its own"),
    (Mutant::KeyHidesRollback, "no caller here makes an idempotency key of its own"),
    (Mutant::KeyHolderAccepted, "no session here is named like that of a key"),
    (Mutant::ClaimAtOnce, "successors here claim without waiting; the fence orders them"),
    (Mutant::ChainNotChecked, "no journal here swaps batches"),
    (Mutant::ExpiredHoldConfirmed, "no holder here confirms in the turn that ends its reservation"),
    (Mutant::RefusalNotRecorded, "the same turn ends it anyway, before any reply"),
    (Mutant::EndNotGuarded, "no record here ends a lease that is not its own"),
    (Mutant::CycleRevealsNames, "every holder here may see every name"),
    (Mutant::QueryUnfiltered, "no caller here queries with a part of the names"),
    (Mutant::SessionIdAgain, "a repeated id matters in one world of a hundred thousand"),
    (Mutant::EvidenceShortensQuarantine, "no operator here lowers the longest ttl during a quarantine"),
    (Mutant::FullTableHidesRollback, "no table here is full"),
    (Mutant::PresentedBeforeCheck, "the tokens of impostors are forged, and prove nothing in any order"),
    (Mutant::AnyLeaseSecretProves, "no impostor here knows the secret of another lease"),
    (Mutant::AnySessionSecretProves, "no impostor here knows the secret of another session"),
    (Mutant::AnyStreamProves, "no impostor here has a stream of its own"),
    (Mutant::OperatorNamesReporter, "no operator here changes reporters"),
    (Mutant::ReporterStopsForever, "no reporter here presents a second number that was never issued"),
    (Mutant::ChartersNotCounted, "every run sets one charter at most"),
    (Mutant::FullJournalProposes, "a proposal on a full disk is no grant, and harms no holder"),
];

/// Bugs of other systems, and the fault that reproduces each here.
pub const HISTORICAL: &[(&str, &str)] = &[
    ("grant to a dead waiter", "DeadWaiterGranted"),
    ("renewal OK after revoke", "RevokeForgotten"),
    ("stuck leader revokes everyone", "CreditNotRecorded"),
    ("ttl reset on every election", "EveryOpeningExtends"),
    ("revision backwards after restore", "RestoreKeepsCounter"),
    ("counter reset with the lock", "CounterResets"),
    ("zero means forever", "ZeroIsForever"),
    ("ack by id", "AckById"),
    ("non-durable mark", "MarkNotDurable"),
];

/// Every fault that simulated runs must find.
pub fn all() -> Vec<MutationFault> {
    let core = Mutant::ALL.iter().filter(|mutant| !ELSEWHERE.iter().any(|(other, _)| other == *mutant));
    core.map(|mutant| MutationFault::Core(*mutant))
        .chain(PlantedFault::ALL.iter().map(|planted| MutationFault::Around(*planted)))
        .collect()
}

/// Faults that other checks catch, each with its check, as the page lists them.
pub fn elsewhere() -> Vec<MutantResult> {
    let row = |(mutant, detail): &(Mutant, &str)| {
        let fault = format!("{mutant:?}");
        let start = format!("| {} | `{fault}` | ", mutant.promise());
        let by = CAUGHT_BY_THE_CORE.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix(" |"));
        let by = by.filter(|by| !by.is_empty()).map(|by| format!("core, {by} ({detail})"));
        MutantResult { promise: mutant.promise(), fault, by, seeds: 0 }
    };
    ELSEWHERE.iter().map(row).collect()
}

/// Enables one fault and runs until it is found, in each of several independent tries.
#[cfg(feature = "mutants")]
pub fn kill(fault: MutationFault, tries: u64, limit: u64, jobs: usize) -> MutantResult {
    use leasehold_core::mutants::choose;

    use crate::runner::{RunPlan, run_seeds};
    let planted = match fault {
        MutationFault::Core(mutant) => {
            choose(Some(mutant));
            None
        }
        MutationFault::Around(planted) => Some(planted),
    };
    let mut needed = Vec::new();
    let mut by = None;
    for attempt in 0..tries {
        let from = attempt * SEEDS_APART;
        let report = run_seeds(&RunPlan { from, jobs, planted, stop: true, ..RunPlan::new(limit) });
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
    let seeds = needed.get(needed.len() / 2).copied().unwrap_or(limit);
    MutantResult { promise: fault.promise(), fault: fault.name(), by, seeds }
}
