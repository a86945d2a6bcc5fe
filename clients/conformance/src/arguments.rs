//! The command line: which clients and scenarios run, and where results go.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Parser;

use crate::broken_run;
use crate::driver_list::{self, DriverEntry};
use crate::environment::{EnvironmentKind, SharedServers};
use crate::report::{self, ClientResults};
use crate::scenario::{self, Scenario};
use crate::suite::{CaseOutcome, ScenarioCase, Suite};

/// Run the conformance scenarios of Leasehold's clients
///
/// A run of all clients compares docs/reference/client-conformance.md with the results; with LEASEHOLD_BLESS=1 it writes the page.
#[derive(Debug, Parser)]
#[command(name = "leasehold-conformance", version)]
pub struct Args {
    /// Client to run, as in drivers.toml; can be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,

    /// Run scenarios whose name contains this text
    #[arg(long, value_name = "TEXT")]
    scenario: Option<String>,

    /// Run only in this environment: one, three or proxy
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Break each property of the client, and require that the named scenarios fail
    #[arg(long)]
    broken: bool,

    /// Scenarios at a time
    #[arg(long, value_name = "N", default_value_t = 12)]
    jobs: usize,

    /// Build nothing
    #[arg(long)]
    no_build: bool,

    /// Path of the `leasehold` binary [default: next to this binary]
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,

    /// Root of the repository whose drivers run [default: that of this program]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Print every line that a driver reads and writes
    #[arg(long)]
    log: bool,

    /// List the scenarios and exit
    #[arg(long)]
    list: bool,

    /// Directory for the results, one JSON file per client [default: target/conformance]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Args {
    /// Runs the selection. False if something failed.
    pub fn run(&self) -> io::Result<bool> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
        let root = self.root.clone().unwrap_or_else(|| own.join("../..")).canonicalize()?;
        let scenarios = scenario::read_all(&own.join("scenarios"))?;
        if self.list {
            scenarios.iter().for_each(|scenario| println!("{}: {}", scenario.name, scenario.title));
            return Ok(true);
        }
        let drivers = driver_list::read(&own.join("drivers.toml"))?;
        let selected = self.selected_drivers(&drivers)?;
        let target = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
        let results = self.results.clone().unwrap_or_else(|| target.join("../conformance"));
        std::fs::create_dir_all(&results)?;
        if !self.no_build {
            build_binaries(&root)?;
        }
        let shared = SharedServers::new(&self.leasehold.clone().unwrap_or_else(|| target.join("leasehold")));
        let mut all_passed = true;
        for driver in selected {
            if !self.no_build {
                driver.build(&root)?;
            }
            let command = driver.command(&root, &target);
            let (jobs, log) = (self.jobs.max(1), self.log);
            let mut suite = Suite { driver, command, root: root.clone(), shared: &shared, jobs, log, broken: None };
            all_passed &= self.run_client(&mut suite, &scenarios, &results)?;
        }
        let bless = std::env::var_os("LEASEHOLD_BLESS").is_some();
        let is_complete = self.scenario.is_none() && self.environment.is_none() && !self.broken;
        if is_complete && (bless || self.client.is_empty()) {
            all_passed &= report::update_page(&root, &drivers, &scenarios, &results, bless)?;
        }
        Ok(all_passed)
    }

    fn run_client(&self, suite: &mut Suite<'_>, scenarios: &[Scenario], results: &Path) -> io::Result<bool> {
        let name = suite.driver.name.clone();
        let selected: Vec<Scenario> = scenarios.iter().filter(|scenario| self.is_selected(scenario)).cloned().collect();
        if self.broken {
            let red =
                broken_run::run(suite, &selected).map_err(|failure| io::Error::other(format!("{name}: {failure}")))?;
            let failed = red.iter().filter(|result| result.outcome.is_err()).count();
            println!("{name}: {} red as required, {failed} not", red.len() - failed);
            if self.scenario.is_none() {
                report::save_red(&results.join(format!("{name}-broken.json")), &red)?;
            }
            return Ok(failed == 0 && !red.is_empty());
        }
        let cases: Vec<_> = selected.iter().flat_map(|scenario| self.cases(scenario)).collect();
        if cases.is_empty() {
            return Err(io::Error::other("no scenario has this name in this environment; see --list"));
        }
        let began = Instant::now();
        let (hello, outcomes) = suite.run(cases).map_err(|failure| io::Error::other(format!("{name}: {failure}")))?;
        let count = |is: fn(&CaseOutcome) -> bool| outcomes.iter().filter(|result| is(&result.outcome)).count();
        let passed = count(|outcome| matches!(outcome, CaseOutcome::Passed));
        let skipped = count(|outcome| matches!(outcome, CaseOutcome::Skipped(_)));
        let failed = outcomes.len() - passed - skipped;
        println!(
            "{name}: {passed} passed, {failed} failed, {skipped} skipped in {:.1} s",
            began.elapsed().as_secs_f64()
        );
        if self.scenario.is_none() && self.environment.is_none() {
            ClientResults::new(&name, &hello.version, &outcomes).save(&results.join(format!("{name}.json")))?;
        }
        Ok(failed == 0)
    }

    fn cases<'a>(&self, scenario: &'a Scenario) -> Vec<ScenarioCase<'a>> {
        let wanted = |kind: &&EnvironmentKind| self.environment.as_deref().is_none_or(|name| name == kind.name());
        let cases = scenario.environments.iter().filter(wanted);
        cases.map(|environment| ScenarioCase { scenario, environment: *environment }).collect()
    }

    fn is_selected(&self, scenario: &Scenario) -> bool {
        self.scenario.as_ref().is_none_or(|text| scenario.name.contains(text.as_str()))
    }

    fn selected_drivers<'a>(&self, drivers: &'a [DriverEntry]) -> io::Result<Vec<&'a DriverEntry>> {
        if self.client.is_empty() {
            return Ok(drivers.iter().collect());
        }
        let find = |name: &String| {
            let names: Vec<_> = drivers.iter().map(|driver| driver.name.as_str()).collect();
            let unknown = || io::Error::other(format!("no client {name}; drivers.toml has {}", names.join(", ")));
            drivers.iter().find(|driver| driver.name == *name).ok_or_else(unknown)
        };
        self.client.iter().map(find).collect()
    }
}

/// Builds the server, which no dependency of this crate contains, and the driver of the Rust client. With the features of the
/// whole workspace, as the tests have built them: then no dependency is built again.
fn build_binaries(root: &Path) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let binaries = ["build", "--quiet", "--workspace", "--bin", "leasehold", "--bin", "rust-driver"];
    let status = Command::new(cargo).args(binaries).current_dir(root).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("the server cannot be built")) }
}
