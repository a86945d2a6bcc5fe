//! The command line: which clients and scenarios run, and where results go.

use std::io;
use std::path::Path;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};

use crate::benchmark::BenchmarkOptions;
use crate::broken_run;
use crate::environment::{EnvironmentKind, SharedServers};
use crate::prepared_clients::BuildOptions;
use crate::report::{self, ClientResults, ServerBuild};
use crate::scenario::{self, Scenario};
use crate::suite::{CaseOutcome, ScenarioCase, Suite};

/// Run the conformance scenarios of Leasehold's clients
///
/// Each client's results are stored. A run of all clients compares docs/reference/client-conformance.md with them; with LEASEHOLD_BLESS=1
/// it writes the page.
#[derive(Debug, Parser)]
#[command(name = "leasehold-conformance", version, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(subcommand)]
    action: Option<RunnerCommand>,

    #[command(flatten)]
    suite: SuiteOptions,
}

#[derive(Debug, Subcommand)]
enum RunnerCommand {
    /// Measure what holding many leases costs in each client, and how long acquire and release take
    Bench(BenchmarkOptions),
    /// Compare docs/reference/client-conformance.md with the stored results of all clients; with LEASEHOLD_BLESS=1, write it
    Page(BuildOptions),
}

#[derive(Debug, Args)]
struct SuiteOptions {
    #[command(flatten)]
    build: BuildOptions,

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
    #[arg(long, value_name = "N", default_value_t = 16)]
    jobs: usize,

    /// Print every line that a driver reads and writes
    #[arg(long)]
    log: bool,

    /// List the scenarios and exit
    #[arg(long)]
    list: bool,
}

impl CommandLine {
    /// Performs the action. False if something failed.
    pub fn run(&self) -> io::Result<bool> {
        let scenarios = scenario::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"))?;
        match &self.action {
            None => self.suite.run(&scenarios),
            Some(RunnerCommand::Bench(options)) => options.run(),
            Some(RunnerCommand::Page(options)) => report::update_page(&options.locate()?, &scenarios, is_blessed()),
        }
    }
}

fn is_blessed() -> bool {
    std::env::var_os("LEASEHOLD_BLESS").is_some()
}

impl SuiteOptions {
    fn run(&self, scenarios: &[Scenario]) -> io::Result<bool> {
        if self.list {
            scenarios.iter().for_each(|scenario| println!("{}: {}", scenario.name, scenario.title));
            return Ok(true);
        }
        let clients = self.build.prepare()?;
        let shared = SharedServers::new(&clients.leasehold);
        let server = ServerBuild::of(&clients.leasehold)?;
        let mut all_passed = true;
        for client in &clients.selected {
            let (jobs, log) = (self.jobs.max(1), self.log);
            let (command, root) = (client.command.clone(), clients.root.clone());
            let mut suite = Suite { driver: &client.driver, command, root, shared: &shared, jobs, log, broken: None };
            all_passed &= self.run_client(&mut suite, scenarios, &clients.results, &server)?;
        }
        let is_complete = self.scenario.is_none() && self.environment.is_none() && !self.broken;
        if is_complete && (is_blessed() || self.build.selects_all()) {
            all_passed &= report::update_page(&clients, scenarios, is_blessed())?;
        }
        Ok(all_passed)
    }

    fn run_client(
        &self,
        suite: &mut Suite<'_>,
        scenarios: &[Scenario],
        results: &Path,
        server: &ServerBuild,
    ) -> io::Result<bool> {
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
            let stored = ClientResults::new(&name, &hello.version, server, &outcomes);
            stored.save(&results.join(format!("{name}.json")))?;
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
}
