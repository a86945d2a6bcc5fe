//! The page `docs/reference/client-conformance.md`: one row per scenario, one column per client, no empty cell.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use super::client_results::{ClientResults, SavedOutcome};
use crate::broken_run::PROPERTIES;
use crate::driver_list::DriverEntry;
use crate::scenario::Scenario;

const PAGE: &str = "docs/reference/client-conformance.md";

/// Writes the page from the newest results of all clients (`bless`), or compares it. False if a cell is red or not run, or if the page
/// is outdated.
pub fn update_page(
    root: &Path,
    drivers: &[DriverEntry],
    scenarios: &[Scenario],
    results: &Path,
    bless: bool,
) -> io::Result<bool> {
    let mut clients = BTreeMap::new();
    for driver in drivers {
        if let Some(read) = ClientResults::read(&results.join(format!("{}.json", driver.name)))? {
            clients.insert(driver.name.clone(), read);
        }
    }
    let (page, incomplete) = page(drivers, scenarios, &clients);
    incomplete.iter().for_each(|cell| println!("{PAGE}: {cell}"));
    if bless {
        std::fs::write(root.join(PAGE), page)?;
        println!("{PAGE} is written");
        return Ok(incomplete.is_empty());
    }
    let is_current = std::fs::read_to_string(root.join(PAGE)).is_ok_and(|written| written == page);
    if !is_current {
        println!("{PAGE} is outdated; run all clients with LEASEHOLD_BLESS=1");
    }
    Ok(is_current && incomplete.is_empty())
}

/// The page, and the cells that are empty or red.
fn page(
    drivers: &[DriverEntry],
    scenarios: &[Scenario],
    clients: &BTreeMap<String, ClientResults>,
) -> (String, Vec<String>) {
    let (mut page, mut incomplete, mut notes) = (String::from(INTRODUCTION), Vec::new(), Vec::<String>::new());
    let titles: Vec<_> = drivers.iter().map(|driver| driver.title.as_str()).collect();
    let _ = writeln!(page, "\n## Scenarios\n\n| Scenario | Shows | Runs against | {} |", titles.join(" | "));
    let _ = writeln!(page, "|---|---|---|{}", "---|".repeat(titles.len()));
    for scenario in scenarios {
        let environments: Vec<_> = scenario.environments.iter().map(|environment| environment.name()).collect();
        let mut cells = Vec::new();
        for driver in drivers {
            match cell(scenario, clients.get(&driver.name)) {
                Ok(Some(reason)) => cells.push(note(&mut notes, &driver.title, reason)),
                Ok(None) => cells.push("yes".to_owned()),
                Err(reason) => {
                    cells.push(if reason.starts_with("failed") { "failed" } else { "not run" }.to_owned());
                    incomplete.push(format!("{} of {}: {reason}", scenario.name, driver.name));
                }
            }
        }
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            scenario.name,
            scenario.title,
            environments.join(", "),
            cells.join(" | ")
        );
    }
    page.push_str("\n## Skipped\n\n");
    if notes.is_empty() {
        page.push_str("No client skips a scenario.\n");
    }
    for (at, text) in notes.iter().enumerate() {
        let _ = writeln!(page, "{}. {text}", at + 1);
    }
    page.push_str(BROKEN);
    for property in PROPERTIES {
        let red = scenarios.iter().filter(|scenario| scenario.red.iter().any(|red| red == property));
        let red: Vec<_> = red.map(|scenario| format!("`{}`", scenario.name)).collect();
        let _ = writeln!(page, "| `{property}` | {} |", red.join(", "));
    }
    page.push_str("\n## Versions\n\n| Client | Version |\n|---|---|\n");
    for driver in drivers {
        let version = clients.get(&driver.name).map_or("not run", |results| results.version.as_str());
        let _ = writeln!(page, "| {} | {version} |", driver.title);
    }
    (page, incomplete)
}

/// The reason of a skipped cell, `None` for a green one, or why the cell is incomplete.
fn cell<'a>(scenario: &Scenario, results: Option<&'a ClientResults>) -> Result<Option<&'a str>, String> {
    let results = results.ok_or("not run")?;
    let outcomes = results.outcomes.get(&scenario.name).ok_or("not run")?;
    let mut skipped = None;
    for environment in &scenario.environments {
        match outcomes.get(environment.name()) {
            Some(SavedOutcome::Passed) => {}
            Some(SavedOutcome::Skipped(reason)) => skipped = Some(reason.as_str()),
            Some(SavedOutcome::Failed(reason)) => return Err(format!("failed: {reason}")),
            None => return Err(format!("not run in {}", environment.name())),
        }
    }
    Ok(skipped)
}

/// A cell that refers to a note with the reason.
fn note(notes: &mut Vec<String>, client: &str, reason: &str) -> String {
    let text = format!("{client}: {reason}");
    let at = notes.iter().position(|note| *note == text).unwrap_or_else(|| {
        notes.push(text);
        notes.len() - 1
    });
    format!("skipped ({})", at + 1)
}

const INTRODUCTION: &str = "\
# Client conformance

This page shows which scenarios each client passes. It is generated from the results of the suite in `clients/conformance`, which runs every
client against real servers; [Client conformance suite](../internals/client-conformance.md) says how.

- **one**: one server with a file journal. **three**: three servers over etcd. **proxy**: one server behind a proxy that holds, loses or cuts
  what passes between one holder and the server.
- *yes*: the scenario passes in each of its environments. *skipped* has a number; the reason is [below](#skipped).
";

const BROKEN: &str = "
## Seen to fail

The suite also runs with each of these properties broken on purpose. Then the named scenarios must fail.

| Broken property | Scenarios that turn red |
|---|---|
";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario() -> Scenario {
        Scenario {
            name: "fork".into(),
            title: "A fork loses leases".into(),
            environments: vec![crate::environment::EnvironmentKind::One],
            session_ttl_ms: 1,
            server: crate::environment::ServerKind::Shared,
            reply_delay_ms: 0,
            needs: Vec::new(),
            red: PROPERTIES.map(String::from).to_vec(),
            steps: Vec::new(),
        }
    }

    fn driver() -> DriverEntry {
        toml::from_str("name='rust'\ntitle='Rust'\nbuild=[]\ncommand=[]\nmay_skip=[]").expect("valid")
    }

    fn results(outcome: serde_json::Value) -> BTreeMap<String, ClientResults> {
        let results =
            json!({"client": "rust", "version": "0.1.0", "outcomes": {"fork": {"one": outcome}}, "millis": {}});
        BTreeMap::from([("rust".to_owned(), serde_json::from_value(results).expect("valid"))])
    }

    #[test]
    fn a_green_cell_says_yes_and_a_skipped_one_names_its_reason() {
        let (text, incomplete) = page(&[driver()], &[scenario()], &results(json!("passed")));
        assert!(incomplete.is_empty() && text.contains("| `fork` | A fork loses leases | one | yes |"), "{text}");
        let (text, incomplete) = page(&[driver()], &[scenario()], &results(json!({"skipped": "no fork"})));
        assert!(
            incomplete.is_empty() && text.contains("| skipped (1) |") && text.contains("1. Rust: no fork"),
            "{text}"
        );
        assert!(text.contains("| `no_token` | `fork` |"), "{text}");
    }

    #[test]
    fn an_empty_or_red_cell_is_reported() {
        for (clients, reason) in [
            (BTreeMap::new(), "fork of rust: not run"),
            (results(json!({"failed": "held"})), "fork of rust: failed: held"),
        ] {
            let (text, incomplete) = page(&[driver()], &[scenario()], &clients);
            assert_eq!(incomplete, [reason]);
            assert!(!text.contains("|  |"), "{text}");
        }
    }
}
