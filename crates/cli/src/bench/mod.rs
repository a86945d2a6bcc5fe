//! `leasehold bench`: measure the throughput and latency of a server.

mod acquire_load;
mod etcd_comparison;
mod etcd_lock;
mod failover;
mod many_leases;
pub mod report;
mod run_takeover;
mod session_load;
mod system_under_test;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Client, Endpoints};
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::local_cluster::servers::LocalServers;
use crate::local_cluster::{ChildProcess, LocalServer};
use crate::output::{CommandError, CommandResult};
use acquire_load::AcquireLoad;
use report::{BenchRow, table};
use session_load::{LeaseExpiry, LoadSession, Sample};
use system_under_test::{SystemUnderTest, leader_endpoint};

/// Measure the throughput and latency of a server
///
/// Starts a server in a new directory, or uses the one at --addr. All measured requests are durable: the server replies after
/// fsync. The load runs on the same machine as the server, and machines are noisy: use the best of several runs, and compare it
/// with the fsync rate.
///
/// With --tls it also measures a server with TLS 1.3, client certificates and access rules, in turn with the plain one.
///
/// With --cluster it starts an etcd cluster of three members and several servers, and also measures etcd's own lease and lock
/// under the same load. `failover` kills the leader repeatedly, or lets it step down (--planned).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold bench acquire renew --seconds 5\n  \
                        leasehold bench acquire etcd renew --cluster --in-flight 512\n  \
                        leasehold bench acquire renew --tls --in-flight 1,64\n  \
                        leasehold bench failover --crashes 20")]
pub struct Args {
    /// Measurements to run [default: all; `etcd` and `failover` only with --cluster]
    #[arg(value_enum, value_name = "MEASUREMENT")]
    measurements: Vec<Measurement>,
    /// Numbers of requests in flight to measure
    #[arg(long, value_name = "N,N...", value_delimiter = ',', default_values_t = [1_u64, 16, 64, 256])]
    in_flight: Vec<u64>,
    /// Sessions that share the requests in flight, each on its own connection
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    sessions: u64,
    /// Duration of each measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 3)]
    seconds: u64,
    /// Number of leases for `held` and `storm`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    leases: u64,
    /// Measure `acquire` and `renew` in turn with and without TLS, client certificates and access rules, on two new servers
    #[arg(long, conflicts_with = "cluster")]
    tls: bool,
    /// Start several servers over an etcd cluster; requires etcd
    #[arg(long)]
    cluster: bool,
    /// Number of servers with --cluster
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=9))]
    servers: u64,
    /// Number of failovers to measure
    #[arg(long, value_name = "N", default_value_t = 100)]
    crashes: u64,
    /// Let leaders step down in `failover`, instead of killing them
    #[arg(long)]
    planned: bool,
    /// Directory in which to create the server's temporary directory
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    dir: PathBuf,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Fsync rate of the disk
    Fsync,
    /// Acquires in a closed loop
    Acquire,
    /// Renewals in batches
    Renew,
    /// etcd's own lease and lock, at the highest number of requests in flight
    Etcd,
    /// Time from a release to the next grant
    Handoff,
    /// Time from the death of a command under `run` to the start of its successor
    Run,
    /// Many held leases: memory and restart time
    Held,
    /// Many leases that expire in the same second: latency of concurrent renewals
    Storm,
    /// Time from the end of a leader to the next grant; implies --cluster
    Failover,
}

/// Maximum number of leases of one session.
const PER_SESSION: u64 = 100_000;
/// Parts of a measurement of renewals, so that servers are measured in turn.
const RENEW_SLICES: u32 = 4;
/// Ttl in milliseconds, longer than any measurement.
const TTL: u64 = 600_000;

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("cannot start: {error}")))?;
    let remote =
        global.addr().map(|_| Ok::<_, CommandError>((global.endpoints()?, global.variables()?))).transpose()?;
    let rows = runtime.block_on(async {
        let interrupted = crate::local_cluster::interrupt_signal("bench")?;
        // Either way, the server and its directory are dropped at the end.
        tokio::select! {
            rows = measure_all(args, remote) => rows,
            () = interrupted => Err(failed("interrupted; its server and its directory are removed")),
        }
    })?;
    let body = json!({ "rows": rows.iter().map(BenchRow::json).collect::<Vec<_>>() });
    Ok(global.output(&body, || table(&rows)))
}

async fn measure_all(args: &Args, remote: Option<RemoteServers>) -> Result<Vec<BenchRow>, CommandError> {
    let mut bench = Bench::new(args, remote).await?;
    bench.measure().await?;
    Ok(bench.rows)
}

fn failed(message: &str) -> CommandError {
    CommandError::Other(format!("bench: {message}"))
}

/// Servers that run already, and the variables that give them to other processes.
type RemoteServers = (Endpoints, Vec<(&'static str, OsString)>);

/// State of a running benchmark.
struct Bench<'a> {
    args: &'a Args,
    system: SystemUnderTest,
    endpoints: Endpoints,
    /// Servers and certificates for other processes, if the servers run already.
    variables: Vec<(&'static str, OsString)>,
    client: Client,
    /// The same system with TLS.
    tls: Option<TlsSystem>,
    rows: Vec<BenchRow>,
    progress: ProgressBar,
}

/// A server with TLS that is measured in turn with the plain one.
struct TlsSystem {
    server: LocalServer,
    endpoints: Endpoints,
}

/// One of the servers that a measurement compares.
struct ComparedServer<'a> {
    endpoints: &'a Endpoints,
    /// The process, if it runs on this machine.
    process: Option<&'a ChildProcess>,
    /// End of the names of its rows.
    suffix: &'static str,
}

impl<'a> Bench<'a> {
    async fn new(args: &'a Args, remote: Option<RemoteServers>) -> Result<Self, CommandError> {
        let mut variables = Vec::new();
        if args.tls && (remote.is_some() || args.measurements.contains(&Measurement::Failover)) {
            return Err(failed("--tls starts two servers of its own; omit --addr and `failover`"));
        }
        let (system, endpoints) = match remote {
            Some((endpoints, of_children)) => {
                variables = of_children;
                (SystemUnderTest::Remote, endpoints)
            }
            None if args.cluster || args.measurements.contains(&Measurement::Failover) => {
                let servers = LocalServers::start("bench", &args.dir, args.servers as usize).await?;
                let leader = servers.wait_caught_up().await?;
                let endpoints = leader_endpoint(&servers, leader)?;
                (SystemUnderTest::Cluster(servers, leader), endpoints)
            }
            None => {
                let mut server = LocalServer::start("bench", &args.dir)?;
                let (endpoints, _) = server.wait_ready().await?;
                (SystemUnderTest::Single(server), endpoints)
            }
        };
        let client = Client::from(endpoints.clone());
        let tls = if args.tls { Some(TlsSystem::start(args).await?) } else { None };
        let progress = ProgressBar::with_draw_target(Some(1), draw_target());
        progress.set_style(ProgressStyle::with_template("{bar:30} {elapsed} {msg}").expect("a fixed template"));
        Ok(Self { args, system, endpoints, variables, client, tls, rows: Vec::new(), progress })
    }

    /// The servers that `acquire` and `renew` measure in turn.
    fn compared(&self) -> Vec<ComparedServer<'_>> {
        let plain = ComparedServer { endpoints: &self.endpoints, process: self.system.process(), suffix: "" };
        let tls = self.tls.as_ref().map(|tls| ComparedServer {
            endpoints: &tls.endpoints,
            process: Some(tls.server.process()),
            suffix: ", TLS",
        });
        std::iter::once(plain).chain(tls).collect()
    }

    fn wants(&self, measurement: Measurement) -> bool {
        self.args.measurements.is_empty() || self.args.measurements.contains(&measurement)
    }

    async fn measure(&mut self) -> Result<(), CommandError> {
        if self.wants(Measurement::Fsync) {
            self.fsync()?;
        }
        if self.wants(Measurement::Acquire) {
            for in_flight in self.args.in_flight.clone() {
                self.acquire(in_flight).await?;
            }
        }
        if self.wants(Measurement::Etcd) {
            self.etcd_lock(self.args.in_flight.iter().copied().max().unwrap_or(1)).await?;
        }
        if self.wants(Measurement::Renew) {
            self.renew().await?;
        }
        if self.wants(Measurement::Handoff) {
            self.handoff().await?;
        }
        if self.wants(Measurement::Run) {
            self.run_latency().await?;
        }
        if self.wants(Measurement::Held) {
            self.held().await?;
        }
        if self.wants(Measurement::Storm) {
            self.storm().await?;
        }
        let several = matches!(self.system, SystemUnderTest::Cluster(..));
        if self.args.measurements.contains(&Measurement::Failover) || (several && self.wants(Measurement::Failover)) {
            self.failover().await?;
        }
        self.progress.finish_and_clear();
        Ok(())
    }

    /// Measures the disk alone, with writes like those of the journal.
    fn fsync(&mut self) -> Result<(), CommandError> {
        use std::os::unix::fs::FileExt;
        self.progress.set_message("syncing the disk");
        let io_failed = |error: std::io::Error| failed(&format!("{}: {error}", self.args.dir.display()));
        let path = self.args.dir.join(format!("leasehold-bench-{}.sync", std::process::id()));
        let file = std::fs::File::create_new(&path).map_err(io_failed)?;
        let mut sample = Sample::new();
        let written = (|| {
            file.write_all_at(&[0; 1 << 20], 0)?;
            file.sync_all()?;
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(1) {
                let at = Instant::now();
                file.write_all_at(&[1; 4_096], sample.count % 256 * 4_096)?;
                file.sync_data()?;
                sample.record(at, 1);
                sample.count += 1;
            }
            sample.elapsed = began.elapsed();
            Ok(())
        })();
        // Remove the file in any case.
        let _ = std::fs::remove_file(&path);
        written.map_err(io_failed)?;
        self.rows.push(BenchRow::from_sample("fdatasync of 4 KiB", &sample, None));
        Ok(())
    }

    /// Closed loop: each reply is followed by the next request.
    async fn acquire(&mut self, in_flight: u64) -> Result<(), CommandError> {
        self.progress.set_message(format!("acquire, {in_flight} in flight"));
        self.length(self.args.seconds * 10);
        let duration = Duration::from_secs(self.args.seconds);
        let mut loads: Vec<_> = self.compared().into_iter().map(|at| AcquireLoad::new(at, in_flight)).collect();
        while loads.iter().any(|load| load.elapsed() < duration) {
            for load in &mut loads {
                load.run_portion(self.args.sessions).await?;
            }
            let shortest = loads.iter().map(AcquireLoad::elapsed).min().unwrap_or_default();
            self.progress.set_position(shortest.as_millis() as u64 / 100);
        }
        let mut rows = Vec::new();
        for load in loads {
            rows.push(load.finish().await?);
        }
        self.rows.extend(rows);
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), CommandError> {
        self.progress.set_message("renew in batches");
        let mut rows = Vec::new();
        let mut sessions = Vec::new();
        for at in self.compared() {
            let mut session = LoadSession::open(&Client::from(at.endpoints.clone()), "bench", TTL).await?;
            let mut leases = Vec::new();
            session.acquire("bench/renew", PER_SESSION, 256, LeaseExpiry::After(TTL), &mut leases).await?;
            sessions.push((at, session, leases));
        }
        let slice = Duration::from_secs(self.args.seconds) / RENEW_SLICES;
        for (size, in_flight) in [(1_000, 4), (8_000, 4)] {
            let mut totals = vec![(Sample::new(), Duration::ZERO); sessions.len()];
            for _ in 0..RENEW_SLICES {
                for ((at, session, leases), (total, used)) in sessions.iter_mut().zip(&mut totals) {
                    let before = at.cpu_time();
                    total.add(&session.renew(leases, size, in_flight, slice).await?);
                    *used += at.cpu_time().saturating_sub(before);
                }
            }
            for ((at, ..), (total, used)) in sessions.iter().zip(totals) {
                let name = format!("renew in batches of {size}, {in_flight} in flight{}", at.suffix);
                rows.push(BenchRow::from_sample(name, &total, at.process.map(|_| used)));
            }
        }
        for (_, session, _) in sessions {
            session.close().await?;
        }
        self.rows.extend(rows);
        Ok(())
    }

    /// Two sessions pass one lease back and forth: measures from sending the release to receiving the grant.
    async fn handoff(&mut self) -> Result<(), CommandError> {
        self.progress.set_message("contended handoff");
        let mut holder = LoadSession::open(&self.client, "one", TTL).await?;
        let mut waiter = LoadSession::open(&self.client, "other", TTL).await?;
        holder.request("bench/handoff", 0).await?;
        let mut lease = holder.wait_granted().await?;
        let mut sample = Sample::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.args.seconds) {
            waiter.request("bench/handoff", 30_000).await?;
            waiter.wait_queued().await?;
            let at = Instant::now();
            holder.release(lease).await?;
            lease = waiter.wait_granted().await?;
            sample.record(at, 1);
            sample.elapsed += at.elapsed();
            sample.count += 1;
            std::mem::swap(&mut holder, &mut waiter);
        }
        self.rows.push(BenchRow::from_sample("release to next grant", &sample, None));
        holder.close().await?;
        Ok(waiter.close().await?)
    }

    fn length(&self, length: u64) {
        self.progress.set_length(length);
        self.progress.set_position(0);
    }
}

impl TlsSystem {
    async fn start(args: &Args) -> Result<Self, CommandError> {
        let mut server = LocalServer::start_with_tls("bench", &args.dir)?;
        let (endpoints, _) = server.wait_ready().await?;
        Ok(Self { server, endpoints })
    }
}

impl ComparedServer<'_> {
    /// CPU time of the process so far.
    fn cpu_time(&self) -> Duration {
        self.process.map_or(Duration::ZERO, ChildProcess::cpu_time)
    }
}

/// Shows the progress bar only on a terminal.
fn draw_target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}
