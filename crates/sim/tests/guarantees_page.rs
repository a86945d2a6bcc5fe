//! The table in `docs/explanation/guarantees.md`: which check covers each promise, and which fault proves that the check can fail.
//!
//! Generated from the registries of faults and checkers; `LEASEHOLD_BLESS=1` rewrites it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::mutants::Mutant;
use leasehold_sim::check;
use leasehold_sim::mutants::PlantedFault;
use leasehold_sim::mutation_run::{self, ELSEWHERE, HISTORICAL};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const BEGIN: &str = "<!-- generated from the registries; LEASEHOLD_BLESS=1 rewrites it -->\n";
const END: &str = "<!-- end of the generated table -->\n";

/// Promises that neither the core's checks nor the simulator check: where they are tested, and the list of faults there.
const TESTED_ELSEWHERE: [(&str, &str, &str); 31] = [
    ("F8", "crates/fence/src/conformance", FENCE_FAULTS),
    ("T8", "crates/fence/src/conformance", FENCE_FAULTS),
    ("A8", "crates/fence/src/conformance", FENCE_FAULTS),
    ("K1", "crates/client/src/recipes/credential", CREDENTIAL_FAULTS),
    ("K2", "crates/client/src/recipes/credential", CREDENTIAL_FAULTS),
    ("K3", "crates/client/src/recipes/credential", CREDENTIAL_FAULTS),
    ("K4", "crates/client/src/recipes/credential", CREDENTIAL_FAULTS),
    ("T8", "crates/seal/tests", ""),
    ("A8", "crates/seal/tests", ""),
    ("A8", "crates/cli/tests/cluster", PLANTED_FAULTS),
    ("A9", "crates/server/tests/access", ""),
    ("A7", "crates/server/tests/access", PLANTED_FAULTS),
    ("A10", "crates/server/tests/access", PLANTED_FAULTS),
    ("A12", "crates/server/tests/access", PLANTED_FAULTS),
    ("A12", "crates/cli/tests/tls", ""),
    ("A14", "crates/server/tests/access", ""),
    ("A13", "crates/server/tests/audit", PLANTED_FAULTS),
    ("A13", "crates/cli/tests/tls", ""),
    ("A2", "crates/cli/tests/tls", PLANTED_FAULTS),
    ("A3", "crates/cli/tests/tls", PLANTED_FAULTS),
    ("A10", "crates/cli/tests/tls", ""),
    ("A11", "crates/cli/tests/secrets.rs", PLANTED_FAULTS),
    ("A15", "crates/server/tests/bad_input", PLANTED_FAULTS),
    ("A15", "crates/cli/tests/browser", ""),
    ("A15", "crates/cli/tests/fence_http", ""),
    ("A16", "crates/cli/tests/tls", PLANTED_FAULTS),
    ("A16", "crates/server/tests/bad_input", ""),
    ("A16", "crates/core/tests/query_access.rs", ""),
    ("A17", "crates/client/tests", PLANTED_FAULTS),
    ("A17", "crates/cli/tests/fences", ""),
    ("A18", "crates/tidy/tests/supply_chain.rs", PLANTED_FAULTS),
];

const FENCE_FAULTS: &str = include_str!("../../fence/tests/conformance/self_test.rs");
const PLANTED_FAULTS: &str = include_str!("../../../.ci/planted-faults.toml");
const CREDENTIAL_FAULTS: &str = include_str!("../../client/src/recipes/credential/tests/mutants.rs");

/// Faults that `.ci/plant-faults` plants: name, promise, file and the code that the fault replaces.
fn planted_faults() -> Vec<[&'static str; 4]> {
    let value = |fault: &'static str, key: &str| {
        let rest = fault.split_once(&format!("\n{key} = ")).unwrap_or_else(|| panic!("no {key}: {fault}")).1;
        let quote = if rest.starts_with("'''") { "'''" } else { &rest[..1] };
        rest[quote.len()..].split_once(quote).expect("the value ends").0.trim_matches('\n')
    };
    PLANTED_FAULTS
        .split("[[fault]]")
        .skip(1)
        .map(|fault| ["name", "promise", "file", "old"].map(|key| value(fault, key)))
        .collect()
}

/// Faults that tests elsewhere enable and catch; their lists name the fault and its promise.
fn caught_elsewhere(id: &str) -> Vec<&'static str> {
    let has_planted = TESTED_ELSEWHERE.iter().any(|(of, _, list)| *of == id && *list == PLANTED_FAULTS);
    let planted = planted_faults().into_iter().filter(|[_, promise, ..]| has_planted && *promise == id);
    let lists = TESTED_ELSEWHERE.iter().filter(|(of, ..)| *of == id).flat_map(|(.., list)| list.lines());
    let rows = lists.filter_map(|line| line.trim().strip_prefix('(')?.split_once("::")?.1.split_once(", "));
    // The suite's names of obligations.
    let obligations: &[&str] = match id {
        "F8" => &["BOUNDED_CLAIM)"],
        "T8" | "A8" => &["SEALED)", "SEAL_STAYS)"],
        _ => &[],
    };
    let breaks = |detail: &str| {
        detail.starts_with(&format!("\"{id}\"")) || obligations.iter().any(|name| detail.starts_with(name))
    };
    rows.filter(|(_, detail)| breaks(detail)).map(|(fault, _)| fault).chain(planted.map(|[name, ..]| name)).collect()
}

/// Every promise with its owner, in the order of the page.
fn promises(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| **")?.split_once("** | "));
    rows.map(|(id, rest)| (id, rest.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default())).collect()
}

fn checkers(id: &str) -> Vec<&'static str> {
    let watch = check::ALL.iter().filter(|(_, promises, _)| promises.split(' ').any(|promise| promise == id));
    watch.map(|(name, ..)| *name).collect()
}

fn row(id: &str) -> String {
    let core: Vec<_> = Mutant::ALL.iter().filter(|mutant| mutant.promise() == id).collect();
    let around = PlantedFault::ALL.iter().filter(|planted| planted.promise() == id);
    let mut by: Vec<String> = checkers(id).iter().map(|name| format!("simulator (`{name}`)")).collect();
    if !core.is_empty() {
        by.push("[core](../internals/mutants.md)".to_owned());
    }
    by.extend(TESTED_ELSEWHERE.iter().filter(|(of, ..)| *of == id).map(|(_, path, _)| format!("tests of `{path}`")));
    let faults =
        core.iter().map(|mutant| format!("`{mutant:?}`")).chain(around.map(|planted| format!("`{planted:?}`")));
    let faults = faults.chain(caught_elsewhere(id).into_iter().map(|fault| format!("`{fault}`")));
    let faults = faults.collect::<Vec<_>>().join(", ");
    let by = if by.is_empty() { "not checked yet".to_owned() } else { by.join(", ") };
    format!("| {id} | {by} | {} |\n", if faults.is_empty() { "none yet" } else { &faults })
}

fn table(page: &str) -> String {
    let mut table = "| promise | checked by | faults that were caught |\n|---|---|---|\n".to_owned();
    promises(page).iter().for_each(|(id, _)| table.push_str(&row(id)));
    let _ = write!(table, "\nBugs of other systems, and the fault that reproduces each here:\n\n");
    for (bug, fault) in HISTORICAL {
        let _ = writeln!(table, "- {bug}: `{fault}`");
    }
    table
}

#[test]
fn the_page_lists_the_check_and_the_fault_of_each_promise() {
    let path = root().join("docs/explanation/guarantees.md");
    let page = read(&path);
    let (before, rest) = page.split_once(BEGIN).expect("the start of the table is marked");
    let (found, after) = rest.split_once(END).expect("the table's end is marked");
    let made = table(&page);
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        let updated = format!("{before}{BEGIN}{made}{END}{after}");
        fs::write(&path, updated).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else {
        assert_eq!(found, made, "the table differs; regenerate it with LEASEHOLD_BLESS=1");
    }
}

#[test]
fn every_planted_fault_applies_to_the_code_as_it_is() {
    assert!(!planted_faults().is_empty());
    for [name, _, file, old] in planted_faults() {
        assert_eq!(read(&root().join(file)).matches(old).count(), 1, "{name}: its code is not in {file}");
    }
}

#[test]
fn every_promise_has_a_check_and_a_fault_or_an_owner() {
    let page = read(&root().join("docs/explanation/guarantees.md"));
    let all = promises(&page);
    for (id, kept) in &all {
        let fault = Mutant::ALL.iter().any(|mutant| mutant.promise() == *id)
            || PlantedFault::ALL.iter().any(|planted| planted.promise() == *id)
            || !caught_elsewhere(id).is_empty();
        assert!(fault || kept.contains("owed: "), "{id} has no fault and no owner: {kept}");
        let checked = !checkers(id).is_empty() || TESTED_ELSEWHERE.iter().any(|(of, ..)| of == id);
        assert!(checked || kept.starts_with("core") || kept.contains("owed: "), "{id} has no check");
    }
    for (name, promises, _) in check::ALL {
        for id in promises.split(' ') {
            assert!(all.iter().any(|(known, _)| *known == id), "{name} checks {id}, which is not a promise");
        }
    }
}

#[test]
fn every_fault_is_caught_here_or_by_the_core_including_historical_bugs() {
    let here: Vec<String> = mutation_run::all().into_iter().map(mutation_run::MutationFault::name).collect();
    assert_eq!(here.len() + ELSEWHERE.len(), Mutant::ALL.len() + PlantedFault::ALL.len());
    for row in mutation_run::elsewhere() {
        assert!(row.by.is_some(), "docs/internals/mutants.md does not name the check that catches {}", row.fault);
    }
    for (bug, fault) in HISTORICAL {
        assert!(here.iter().any(|known| known == fault), "no fault here reproduces: {bug}");
    }
    for planted in PlantedFault::ALL {
        assert_eq!(PlantedFault::parse(&format!("{planted:?}")), Ok(*planted));
        assert!(!planted.description().is_empty(), "{planted:?} has no description");
    }
}
