//! The table of `docs/guarantees.md` that says who checks each promise, and which fault proves that the check can fail.
//!
//! Made from the registries; `LEASEHOLD_BLESS=1` writes it anew.

use std::fmt::Write;
use std::fs;

use leasehold_core::mutants::Mutant;
use leasehold_sim::check;
use leasehold_sim::killing::{self, ELSEWHERE, HISTORICAL};
use leasehold_sim::planted::Planted;

use super::{read, root};

const BEGIN: &str = "<!-- made from the registries; LEASEHOLD_BLESS=1 writes it anew -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// Promises that neither the core's checks nor the simulator watch, where they are tested, and the list of faults there.
const ELSEWHERE_TESTED: [(&str, &str, &str); 5] = [
    ("F8", "crates/fence/src/conformance", TRIALS),
    ("K1", "crates/client/src/recipes/credential", CAUGHT),
    ("K2", "crates/client/src/recipes/credential", CAUGHT),
    ("K3", "crates/client/src/recipes/credential", CAUGHT),
    ("K4", "crates/client/src/recipes/credential", CAUGHT),
];

const TRIALS: &str = include_str!("../../../fence/tests/conformance/trials.rs");
const CAUGHT: &str = include_str!("../../../client/src/recipes/credential/tests/caught.rs");

/// The faults that tests elsewhere switch on and catch: their lists name the fault, and the promise it breaks.
fn caught_elsewhere(id: &str) -> Vec<&'static str> {
    let lists = ELSEWHERE_TESTED.iter().filter(|(of, ..)| *of == id).flat_map(|(.., list)| list.lines());
    let rows = lists.filter_map(|line| line.trim().strip_prefix("(Fault::")?.split_once(", "));
    let breaks = |why: &str| why.starts_with(&format!("\"{id}\"")) || (id == "F8" && why.starts_with("BOUNDED"));
    rows.filter(|(_, why)| breaks(why)).map(|(fault, _)| fault).collect()
}

/// Every promise with who keeps it, in the order of the page.
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
    let around = Planted::ALL.iter().filter(|planted| planted.promise() == id);
    let mut by: Vec<String> = checkers(id).iter().map(|name| format!("simulator (`{name}`)")).collect();
    if !core.is_empty() {
        by.push("[core](mutants.md)".to_owned());
    }
    by.extend(ELSEWHERE_TESTED.iter().filter(|(of, ..)| *of == id).map(|(_, path, _)| format!("tests of `{path}`")));
    let faults =
        core.iter().map(|mutant| format!("`{mutant:?}`")).chain(around.map(|planted| format!("`{planted:?}`")));
    let faults = faults.chain(caught_elsewhere(id).into_iter().map(|fault| format!("`{fault}`")));
    let faults = faults.collect::<Vec<_>>().join(", ");
    let by = if by.is_empty() { "nobody yet".to_owned() } else { by.join(", ") };
    format!("| {id} | {by} | {} |\n", if faults.is_empty() { "none yet" } else { &faults })
}

fn table(page: &str) -> String {
    let mut table = "| promise | checked by | faults that were caught |\n|---|---|---|\n".to_owned();
    promises(page).iter().for_each(|(id, _)| table.push_str(&row(id)));
    let _ = write!(table, "\nWhat others got wrong before, and the fault that does the same here:\n\n");
    for (bug, fault) in HISTORICAL {
        let _ = writeln!(table, "- {bug}: `{fault}`");
    }
    table
}

#[test]
fn the_page_says_who_checks_each_promise_and_which_fault_proves_it() {
    let path = root().join("docs/guarantees.md");
    let page = read(&path);
    let (before, rest) = page.split_once(BEGIN).expect("the table's place is marked");
    let (told, after) = rest.split_once(END).expect("the table's end is marked");
    let made = table(&page);
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        let anew = format!("{before}{BEGIN}{made}{END}{after}");
        fs::write(&path, anew).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else {
        assert_eq!(told, made, "the table differs; write it anew with LEASEHOLD_BLESS=1");
    }
}

#[test]
fn a_promise_without_a_check_and_a_fault_says_who_owes_it() {
    let page = read(&root().join("docs/guarantees.md"));
    let all = promises(&page);
    for (id, kept) in &all {
        let fault = Mutant::ALL.iter().any(|mutant| mutant.promise() == *id)
            || Planted::ALL.iter().any(|planted| planted.promise() == *id)
            || !caught_elsewhere(id).is_empty();
        assert!(fault || kept.contains("owed: "), "{id} has no fault, and nobody owes it: {kept}");
        let checked = !checkers(id).is_empty() || ELSEWHERE_TESTED.iter().any(|(of, ..)| of == id);
        assert!(checked || kept.starts_with("core") || kept.contains("owed: "), "nobody checks {id}");
    }
    for (name, promises, _) in check::ALL {
        for id in promises.split(' ') {
            assert!(all.iter().any(|(known, _)| *known == id), "{name} watches {id}, which nobody promises");
        }
    }
}

#[test]
fn every_fault_is_caught_here_or_by_the_core_and_the_bugs_of_others_are_among_them() {
    let here: Vec<String> = killing::all().into_iter().map(killing::Fault::name).collect();
    assert_eq!(here.len() + ELSEWHERE.len(), Mutant::ALL.len() + Planted::ALL.len());
    for row in killing::elsewhere() {
        assert!(row.by.is_some(), "docs/mutants.md does not say who catches {}", row.fault);
    }
    for (bug, fault) in HISTORICAL {
        assert!(here.iter().any(|known| known == fault), "nothing here does what others did: {bug}");
    }
    for planted in Planted::ALL {
        assert_eq!(Planted::named(&format!("{planted:?}")), Ok(*planted));
        assert!(!planted.what().is_empty(), "{planted:?} does not say what it does");
    }
}
