//! The page `docs/reference/client-conformance.md`: one row per scenario, one column per client, no empty cell.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;

use super::client_results::{ClientResults, SavedOutcome, SavedRedResult, read_red};
use crate::broken_run::PROPERTIES;
use crate::driver_list::DriverEntry;
use crate::prepared_clients::PreparedClients;
use crate::scenario::Scenario;

const PAGE: &str = "docs/reference/client-conformance.md";

/// What is stored about one client.
struct StoredResults {
    results: ClientResults,
    red: Vec<SavedRedResult>,
}

type StoredByClient = BTreeMap<String, StoredResults>;

/// Writes the page from the stored results of all clients (`bless`), or compares it. False if a cell is red or not run, if clients ran
/// against different builds of the server, or if the page is outdated. A page with an incomplete cell is not written.
pub fn update_page(clients: &PreparedClients, scenarios: &[Scenario], bless: bool) -> io::Result<bool> {
    let mut stored = StoredByClient::new();
    for driver in &clients.all {
        let at = |suffix: &str| clients.results.join(format!("{}{suffix}.json", driver.name));
        if let Some(results) = ClientResults::read(&at(""))? {
            let red = read_red(&at("-broken"))?.unwrap_or_default();
            stored.insert(driver.name.clone(), StoredResults { results, red });
        }
    }
    let (page, incomplete) = page(&clients.all, scenarios, &stored);
    incomplete.iter().for_each(|cell| println!("{PAGE}: {cell}"));
    if !incomplete.is_empty() {
        println!("{PAGE}: run all clients, and again with --broken, against one build of the server");
        return Ok(false);
    }
    let path = clients.root.join(PAGE);
    if bless {
        std::fs::write(path, page)?;
        println!("{PAGE} is written");
        return Ok(true);
    }
    let is_current = std::fs::read_to_string(path).is_ok_and(|written| written == page);
    println!("{PAGE} {}", if is_current { "is current" } else { "is outdated; run again with LEASEHOLD_BLESS=1" });
    Ok(is_current)
}

/// The page, and the cells that are empty or red.
fn page(drivers: &[DriverEntry], scenarios: &[Scenario], stored: &StoredByClient) -> (String, Vec<String>) {
    let (mut page, mut incomplete, mut notes) = (String::from(INTRODUCTION), Vec::new(), Vec::<String>::new());
    let titles: Vec<_> = drivers.iter().map(|driver| driver.title.as_str()).collect();
    let rule = "---|".repeat(titles.len());
    let _ = writeln!(page, "\n## Scenarios\n\n| Scenario | Shows | Runs against | {} |", titles.join(" | "));
    let _ = writeln!(page, "|---|---|---|{rule}");
    for scenario in scenarios {
        let environments: Vec<_> = scenario.environments.iter().map(|environment| environment.name()).collect();
        let cells = row(drivers, &scenario.name, &mut incomplete, |name| {
            let skipped = cell(scenario, stored.get(&name.name))?;
            Ok(skipped.map_or_else(|| "yes".to_owned(), |reason| note(&mut notes, &name.title, reason)))
        });
        let (name, title) = (&scenario.name, &scenario.title);
        let _ = writeln!(page, "| `{name}` | {title} | {} | {cells} |", environments.join(", "));
    }
    page.push_str("\n## Skipped\n\n");
    if notes.is_empty() {
        page.push_str("No client skips a scenario.\n");
    }
    for (at, text) in notes.iter().enumerate() {
        let _ = writeln!(page, "{}. {text}", at + 1);
    }
    let _ = writeln!(page, "{BROKEN}\n| Broken property | Scenario | {} |\n|---|---|{rule}", titles.join(" | "));
    for property in PROPERTIES {
        for scenario in scenarios.iter().filter(|scenario| scenario.red.iter().any(|red| red == property)) {
            let place = format!("{} with {property}", scenario.name);
            let cells = row(drivers, &place, &mut incomplete, |driver| {
                red_cell(property, &scenario.name, stored.get(&driver.name)).map(str::to_owned)
            });
            let _ = writeln!(page, "| `{property}` | `{}` | {cells} |", scenario.name);
        }
    }
    page.push_str("\n## Versions\n\n| Client | Version |\n|---|---|\n");
    for driver in drivers {
        let version = stored.get(&driver.name).map_or("not run", |stored| stored.results.version.as_str());
        let _ = writeln!(page, "| {} | {version} |", driver.title);
    }
    let mut builds = stored.values().map(|stored| &stored.results);
    if let Some(first) = builds.next()
        && let Some(other) = builds.find(|results| results.server != first.server)
    {
        incomplete.push(format!("{} and {} ran against different builds of the server", first.client, other.client));
    }
    (page, incomplete)
}

/// The cells of one row. An incomplete one is listed with its reason.
fn row(
    drivers: &[DriverEntry],
    place: &str,
    incomplete: &mut Vec<String>,
    mut cell: impl FnMut(&DriverEntry) -> Result<String, String>,
) -> String {
    let mut cells = Vec::new();
    for driver in drivers {
        cells.push(cell(driver).unwrap_or_else(|reason| {
            incomplete.push(format!("{place} of {}: {reason}", driver.name));
            if reason.starts_with("failed") { "failed" } else { "not run" }.to_owned()
        }));
    }
    cells.join(" | ")
}

/// The reason of a skipped cell, `None` for a green one, or why the cell is incomplete.
fn cell<'a>(scenario: &Scenario, stored: Option<&'a StoredResults>) -> Result<Option<&'a str>, String> {
    let outcomes = stored.and_then(|stored| stored.results.outcomes.get(&scenario.name)).ok_or("not run")?;
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

/// `red` if the scenario failed while the property was broken, or why the cell is incomplete.
fn red_cell(property: &str, scenario: &str, stored: Option<&StoredResults>) -> Result<&'static str, String> {
    let rows = stored.map(|stored| stored.red.as_slice()).unwrap_or_default();
    match rows.iter().find(|row| row.property == property && row.scenario == scenario) {
        Some(row) if row.red => Ok("red"),
        Some(row) => Err(format!("failed: {}", row.reason)),
        None => Err("not run".to_owned()),
    }
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
- All clients ran against one build of the server.
";

const BROKEN: &str = "
## Seen to fail

Each client also ran with each of these properties broken on purpose. *red*: the scenario failed, as it must.
";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::environment::EnvironmentKind;
    use crate::{driver_list, scenario};

    fn fork_scenario() -> Scenario {
        Scenario {
            name: "fork".into(),
            title: "A fork loses leases".into(),
            environments: vec![EnvironmentKind::One],
            session_ttl_ms: 1,
            server: crate::environment::ServerKind::Shared,
            reply_delay_ms: 0,
            needs: Vec::new(),
            red: vec![PROPERTIES[0].to_owned()],
            steps: Vec::new(),
        }
    }

    fn driver(name: &str) -> DriverEntry {
        let entry = format!("name='{name}'\ntitle='{}'\nbuild=[]\ncommand=[]\nmay_skip=[]", name.to_uppercase());
        toml::from_str(&entry).expect("valid")
    }

    fn stored(name: &str, outcome: &serde_json::Value, red: bool, bytes: u64) -> StoredByClient {
        let results = json!({
            "client": name, "version": "0.1.0", "server": {"bytes": bytes, "modified_nanos": 1},
            "outcomes": {"fork": {"one": outcome}}, "millis": {},
        });
        let row = SavedRedResult {
            property: PROPERTIES[0].to_owned(),
            scenario: "fork".into(),
            red,
            reason: "the lease is held".into(),
        };
        let stored = StoredResults { results: serde_json::from_value(results).expect("valid"), red: vec![row] };
        StoredByClient::from([(name.to_owned(), stored)])
    }

    #[test]
    fn a_green_cell_says_yes_and_a_skipped_one_names_its_reason() {
        let (text, incomplete) = page(&[driver("go")], &[fork_scenario()], &stored("go", &json!("passed"), true, 1));
        assert!(incomplete.is_empty() && text.contains("| `fork` | A fork loses leases | one | yes |"), "{text}");
        assert!(text.contains(&format!("| `{}` | `fork` | red |", PROPERTIES[0])), "{text}");
        let skipped = stored("go", &json!({"skipped": "no fork"}), true, 1);
        let (text, incomplete) = page(&[driver("go")], &[fork_scenario()], &skipped);
        assert!(incomplete.is_empty() && text.contains("| skipped (1) |") && text.contains("1. GO: no fork"), "{text}");
    }

    #[test]
    fn an_empty_or_red_cell_is_reported() {
        let red = format!("fork with {} of go", PROPERTIES[0]);
        for (stored, reasons) in [
            (StoredByClient::new(), vec!["fork of go: not run".to_owned(), format!("{red}: not run")]),
            (stored("go", &json!({"failed": "held"}), true, 1), vec!["fork of go: failed: held".to_owned()]),
            (stored("go", &json!("passed"), false, 1), vec![format!("{red}: failed: the lease is held")]),
        ] {
            let (text, incomplete) = page(&[driver("go")], &[fork_scenario()], &stored);
            assert_eq!(incomplete, reasons);
            assert!(!text.contains("|  |"), "{text}");
        }
    }

    #[test]
    fn results_of_different_servers_are_reported() {
        let mut both = stored("go", &json!("passed"), true, 1);
        both.extend(stored("java", &json!("passed"), true, 2));
        let (_, incomplete) = page(&[driver("go"), driver("java")], &[fork_scenario()], &both);
        assert_eq!(incomplete, ["go and java ran against different builds of the server"]);
    }

    /// Without running a client: the page has a complete row for each scenario as it is now.
    #[test]
    fn the_page_lists_every_scenario_without_an_empty_cell() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let scenarios = scenario::read_all(&own.join("scenarios")).expect("the files are valid");
        let drivers = driver_list::read(&own.join("drivers.toml")).expect("the file is valid");
        let text = std::fs::read_to_string(own.join("../..").join(PAGE)).expect("the page exists");
        let cells_after = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start));
            let line =
                line.unwrap_or_else(|| panic!("{PAGE}: no row `{start}`; run all clients with LEASEHOLD_BLESS=1"));
            let cells = line[start.len()..].trim_matches(['|', ' ']).split(" | ");
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        let count = text.lines().filter(|line| line.starts_with("| `")).count();
        let red = scenarios.iter().map(|scenario| scenario.red.len()).sum::<usize>();
        assert_eq!(count, scenarios.len() + red, "{PAGE} has rows of scenarios that are gone");
        for scenario in &scenarios {
            let environments: Vec<_> = scenario.environments.iter().map(|environment| environment.name()).collect();
            let start = format!("| `{}` | {} | {} |", scenario.name, scenario.title, environments.join(", "));
            let cells = cells_after(&start);
            assert_eq!(cells.len(), drivers.len(), "{start}");
            for (cell, driver) in cells.iter().zip(&drivers) {
                let may_skip = scenario.needs.iter().any(|feature| driver.may_skip.contains(feature));
                assert!(
                    cell == "yes" || (may_skip && cell.starts_with("skipped (")),
                    "{start} {}: {cell}",
                    driver.name
                );
            }
            for property in &scenario.red {
                let start = format!("| `{property}` | `{}` |", scenario.name);
                let cells = cells_after(&start);
                assert!(cells.len() == drivers.len() && cells.iter().all(|cell| cell == "red"), "{start} {cells:?}");
            }
        }
    }
}
