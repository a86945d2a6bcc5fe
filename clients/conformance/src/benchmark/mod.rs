//! `leasehold-conformance bench`: what a client costs. All clients are measured in one run, on one server.
//!
//! Costs depend on the machine, so that nothing here compares them with a limit. The run fails only if leases are lost.

mod acquire_cycle;
mod benchmark_report;
mod holding;
mod process_usage;

use std::io;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::driver_list::IS_RELEASE;
use crate::driver_process::DriverProcess;
use crate::environment::ServerGroup;
use crate::failure::ScenarioFailure;
use crate::prepared_clients::{BuildOptions, PreparedClients};
use acquire_cycle::CycleRound;
use benchmark_report::{BenchmarkConditions, BenchmarkReport, ClientCosts};

/// Session ttl of all clients: the usual one.
const SESSION_TTL: Duration = Duration::from_secs(30);
/// Time for one reply of a driver, also to a request for all leases; generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The client that others are compared with.
const REFERENCE: &str = "rust";

/// Options of the benchmark.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Build for release, run nothing else meanwhile, and compare only costs of one run:\n  \
                        cargo build --release --workspace --bin leasehold --bin leasehold-conformance --bin rust-driver\n  \
                        target/release/leasehold-conformance bench --no-server-build")]
pub struct BenchmarkOptions {
    #[command(flatten)]
    build: BuildOptions,

    /// Leases that one process of each client holds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    leases: u64,

    /// Time for which they are held, in seconds
    #[arg(long, value_name = "N", default_value_t = 90)]
    seconds: u64,

    /// Rounds of acquire and release; each round measures every client
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,

    /// Leases that each client acquires and releases in a round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,

    /// Print the costs as JSON
    #[arg(long)]
    json: bool,
}

/// A driver with one connected client.
pub struct BenchedClient {
    /// Name of the client.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The process.
    pub driver: DriverProcess,
}

impl BenchmarkOptions {
    /// Runs the benchmark. False if a lease was lost.
    pub fn run(&self) -> io::Result<bool> {
        let clients = self.build.clone().with_client(REFERENCE).prepare()?;
        let conditions = BenchmarkConditions::now(self);
        conditions.hints().iter().for_each(|hint| progress(hint));
        let report = self.measure(&clients, conditions).map_err(|failure| io::Error::other(failure.to_string()))?;
        if self.json {
            println!("{:#}", report.json());
        } else {
            print!("{}", report.text());
        }
        Ok(report.lost_leases().is_empty())
    }

    fn measure(
        &self,
        clients: &PreparedClients,
        conditions: BenchmarkConditions,
    ) -> Result<BenchmarkReport, ScenarioFailure> {
        let servers = ServerGroup::one(&clients.leasehold)?;
        // Processes of their own for both parts: one that has held many leases is not as it was.
        let started = start_all(clients, &servers)?;
        let holding = holding::measure(&started, &servers, self.leases, Duration::from_secs(self.seconds))?;
        drop(started);
        let started = start_all(clients, &servers)?;
        let rounds = acquire_cycle::measure(&started, self.rounds, self.pairs)?;
        let costs = started.iter().zip(holding).enumerate().map(|(at, (client, holding))| ClientCosts {
            client: client.name.clone(),
            version: client.version.clone(),
            holding,
            rounds: rounds.iter().map(|round| round[at]).collect::<Vec<CycleRound>>(),
        });
        Ok(BenchmarkReport { conditions, clients: costs.collect() })
    }
}

/// Starts the drivers, and connects a client of each to the server.
fn start_all(clients: &PreparedClients, servers: &ServerGroup) -> Result<Vec<BenchedClient>, ScenarioFailure> {
    let mut started = Vec::new();
    for client in &clients.selected {
        let name = client.driver.name.clone();
        let (driver, hello) = DriverProcess::start(&name, &client.command, &clients.root, false)?;
        let ttl = u64::try_from(SESSION_TTL.as_millis()).unwrap_or(u64::MAX);
        let fields = json!({
            "client": name, "servers": servers.addresses(), "holder": format!("bench-{name}"), "session_ttl_ms": ttl,
        });
        driver.request("connect", fields, TIMEOUT)?;
        let bench = BenchedClient { name, version: hello.version, driver };
        // The session is open, and the code was used once.
        bench.acquire("ready")?;
        bench.release("ready")?;
        started.push(bench);
    }
    Ok(started)
}

impl BenchedClient {
    /// Acquires a lease under a new handle.
    fn acquire(&self, handle: &str) -> Result<(), ScenarioFailure> {
        let resource = format!("bench/{}/one", self.name);
        let fields = json!({ "client": self.name, "lease": handle, "resource": resource, "wait_ms": 10_000 });
        self.driver.request("acquire", fields, TIMEOUT).map(drop)
    }

    /// Releases a lease.
    fn release(&self, handle: &str) -> Result<(), ScenarioFailure> {
        self.driver.request("release", json!({ "lease": handle }), TIMEOUT).map(drop)
    }
}

/// Prints progress to standard error, so that standard output has only the costs.
fn progress(line: &str) {
    eprintln!("bench: {line}");
}

/// Name of the build, for the conditions.
fn build_name() -> &'static str {
    if IS_RELEASE { "release" } else { "debug" }
}
