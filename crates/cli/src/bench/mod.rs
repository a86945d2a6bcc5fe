//! `leasehold bench`: how fast a server is on this machine, its own or one that is there.

mod crowd;
mod failover;
mod line;
mod peer;
pub mod report;
mod under;
mod wrapped;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Client, Endpoints};
use serde_json::json;

use crate::connection::Everywhere;
use crate::own::Own;
use crate::own::servers::Servers;
use crate::told::{Failure, Outcome};
use line::{Ends, Line, Stretch};
use report::{Row, table};
use under::{Under, leading};

/// Measure a server: one of its own on a fresh directory, or the one at --addr
///
/// Everything that is measured is durable: an answer leaves after its fsync. Load and server share this machine, and
/// machines are noisy: take the best of several runs, and read the fsync rate beside it.
///
/// With --cluster it starts an etcd of three members and servers over it, and measures beside it what etcd's own lease and
/// lock do under the same load. `failover` kills a leader again and again, or asks it to step down (--planned).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold bench acquire renew --seconds 5\n  \
                        leasehold bench acquire peer renew --cluster --in-flight 512\n  \
                        leasehold bench failover --crashes 20")]
pub struct Args {
    /// What to measure; all of it unless said, but failovers only with --cluster
    #[arg(value_enum)]
    only: Vec<What>,
    /// Requests in flight
    #[arg(long, value_delimiter = ',', default_values_t = [1_u64, 16, 64, 256])]
    in_flight: Vec<u64>,
    /// Sessions that share the requests in flight, each on a connection of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    sessions: u64,
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many leases `held` and `storm` take
    #[arg(long, default_value_t = 1_000_000)]
    leases: u64,
    /// Servers of its own over an etcd of its own, which must be installed
    #[arg(long)]
    cluster: bool,
    /// How many servers there are with --cluster
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=9))]
    servers: u64,
    /// How many leaders go for `failover`
    #[arg(long, value_name = "N", default_value_t = 100)]
    crashes: u64,
    /// For `failover`: leaders are asked to step down instead of being killed
    #[arg(long)]
    planned: bool,
    /// Where the own server keeps its directory
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    beside: PathBuf,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// How often the disk syncs
    Fsync,
    /// Acquires in a closed loop
    Acquire,
    /// Renewals in batches
    Renew,
    /// What etcd's own lease and lock do at the most requests in flight, with --cluster
    Peer,
    /// From a release to the next holder
    Handoff,
    /// From the death of a command under `run` to the start of the next one's
    Run,
    /// A million held leases: memory, and the time to start again
    Held,
    /// A million leases that end in the same second, beside renewals
    Storm,
    /// From the end of a leader to the next grant; starts servers over etcd
    Failover,
}

/// Leases that one session of a bench takes before it is closed for the next.
const PER_SESSION: u64 = 100_000;
/// Longer than any bench.
const TTL: u64 = 600_000;

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("cannot start: {error}")))?;
    let rows = runtime.block_on(async {
        let interrupted = crate::own::interrupted("bench")?;
        // Whichever way it ends, its server and its directory end with it.
        tokio::select! {
            rows = measured(args, ask.addr()) => rows,
            () = interrupted => Err(failed("interrupted; nothing is left of its server and its directory")),
        }
    })?;
    let body = json!({ "rows": rows.iter().map(Row::json).collect::<Vec<_>>() });
    Ok(ask.answer(&body, || table(&rows)))
}

async fn measured(args: &Args, addr: Option<&str>) -> Result<Vec<Row>, Failure> {
    let mut bench = Bench::new(args, addr).await?;
    bench.measure().await?;
    Ok(bench.rows)
}

fn failed(why: &str) -> Failure {
    Failure::Other(format!("bench: {why}"))
}

/// A bench under way.
struct Bench<'a> {
    args: &'a Args,
    under: Under,
    endpoints: Endpoints,
    client: Client,
    rows: Vec<Row>,
    shown: ProgressBar,
}

impl<'a> Bench<'a> {
    async fn new(args: &'a Args, addr: Option<&str>) -> Result<Self, Failure> {
        let (under, endpoints) = match addr {
            Some(addr) => (Under::Theirs, Endpoints::parse(addr)?),
            None if args.cluster || args.only.contains(&What::Failover) => {
                let servers = Servers::start("bench", &args.beside, args.servers as usize).await?;
                let leader = servers.warm().await?;
                let endpoints = leading(&servers, leader)?;
                (Under::Several(servers, leader), endpoints)
            }
            None => {
                let mut own = Own::start("bench", &args.beside)?;
                let (endpoints, _) = own.answers().await?;
                (Under::Alone(own), endpoints)
            }
        };
        let client = Client::connect(endpoints.clone());
        let shown = ProgressBar::with_draw_target(Some(1), draw_target());
        shown.set_style(ProgressStyle::with_template("{bar:30} {elapsed} {msg}").expect("a fixed template"));
        Ok(Self { args, under, endpoints, client, rows: Vec::new(), shown })
    }

    fn wants(&self, what: What) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&what)
    }

    async fn measure(&mut self) -> Result<(), Failure> {
        if self.wants(What::Fsync) {
            self.fsync()?;
        }
        if self.wants(What::Acquire) {
            for in_flight in self.args.in_flight.clone() {
                self.acquire(in_flight).await?;
            }
        }
        if self.wants(What::Peer) {
            self.peer(self.args.in_flight.iter().copied().max().unwrap_or(1)).await?;
        }
        if self.wants(What::Renew) {
            self.renew().await?;
        }
        if self.wants(What::Handoff) {
            self.handoff().await?;
        }
        if self.wants(What::Run) {
            self.wrapped().await?;
        }
        if self.wants(What::Held) {
            self.held().await?;
        }
        if self.wants(What::Storm) {
            self.storm().await?;
        }
        let several = matches!(self.under, Under::Several(..));
        if self.args.only.contains(&What::Failover) || (several && self.wants(What::Failover)) {
            self.failover().await?;
        }
        self.shown.finish_and_clear();
        Ok(())
    }

    /// What the disk does by itself, written as the journal writes.
    fn fsync(&mut self) -> Result<(), Failure> {
        use std::os::unix::fs::FileExt;
        self.shown.set_message("syncing the disk");
        let wrong = |error: std::io::Error| failed(&format!("{}: {error}", self.args.beside.display()));
        let path = self.args.beside.join(format!("leasehold-bench-{}.sync", std::process::id()));
        let file = std::fs::File::create_new(&path).map_err(wrong)?;
        let mut stretch = Stretch::new();
        let written = (|| {
            file.write_all_at(&[0; 1 << 20], 0)?;
            file.sync_all()?;
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(1) {
                let at = Instant::now();
                file.write_all_at(&[1; 4_096], stretch.count % 256 * 4_096)?;
                file.sync_data()?;
                stretch.waited(at, 1);
                stretch.count += 1;
            }
            stretch.took = began.elapsed();
            Ok(())
        })();
        // Whatever came of it, the file was only for this.
        let _ = std::fs::remove_file(&path);
        written.map_err(wrong)?;
        self.rows.push(Row::of("fdatasync of 4 KiB", &stretch, None));
        Ok(())
    }

    /// Closed loop: each answer is followed by the next request.
    async fn acquire(&mut self, in_flight: u64) -> Result<(), Failure> {
        self.shown.set_message(format!("acquire, {in_flight} in flight"));
        let mut whole = Stretch::new();
        let mut used = Duration::ZERO;
        let mut round = 0;
        self.length(self.args.seconds * 10);
        while whole.took < Duration::from_secs(self.args.seconds) {
            let mut lines = Vec::new();
            for _ in 0..self.args.sessions.min(in_flight) {
                let client = Client::connect(self.endpoints.clone());
                lines.push(Line::open(&client, "bench", TTL).await?);
            }
            let each = in_flight / lines.len() as u64;
            let mut left = PER_SESSION;
            // In portions, so that a slow disk does not make one round last for ever.
            while left > 0 && whole.took < Duration::from_secs(self.args.seconds) {
                let portion = (in_flight * 200).min(left);
                let before = self.processor();
                let part = portion / lines.len() as u64;
                let asked = lines.iter_mut().enumerate().map(|(n, line)| {
                    let prefix = format!("bench/{in_flight}/{round}-{left}-{n}");
                    async move { line.acquire(&prefix, part, each, Ends::After(TTL), &mut Vec::new()).await }
                });
                whole.beside(&futures::future::try_join_all(asked).await?);
                used += self.processor().saturating_sub(before);
                left -= portion;
                self.shown.set_position(whole.took.as_millis() as u64 / 100);
            }
            for line in lines {
                line.close().await?;
            }
            round += 1;
        }
        let used = self.under.process().map(|_| used);
        self.rows.push(Row::of(format!("acquire, {in_flight} in flight"), &whole, used));
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), Failure> {
        self.shown.set_message("renew in batches");
        let mut line = Line::open(&self.client, "bench", TTL).await?;
        let mut leases = Vec::new();
        line.acquire("bench/renew", PER_SESSION, 256, Ends::After(TTL), &mut leases).await?;
        for (size, in_flight) in [(1_000, 4), (8_000, 4)] {
            let before = self.processor();
            let stretch = line.renew(&leases, size, in_flight, Duration::from_secs(self.args.seconds)).await?;
            let used = self.under.process().map(|_| self.processor().saturating_sub(before));
            self.rows.push(Row::of(format!("renew in batches of {size}, {in_flight} in flight"), &stretch, used));
        }
        Ok(line.close().await?)
    }

    /// Two sessions pass one lease to and fro: from sending the release to hearing the grant.
    async fn handoff(&mut self) -> Result<(), Failure> {
        self.shown.set_message("contended handoff");
        let mut holder = Line::open(&self.client, "one", TTL).await?;
        let mut waiter = Line::open(&self.client, "other", TTL).await?;
        holder.want("bench/handoff", 0).await?;
        let mut lease = holder.granted().await?;
        let mut stretch = Stretch::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.args.seconds) {
            waiter.want("bench/handoff", 30_000).await?;
            waiter.waiting().await?;
            let at = Instant::now();
            holder.release(lease).await?;
            lease = waiter.granted().await?;
            stretch.waited(at, 1);
            stretch.took += at.elapsed();
            stretch.count += 1;
            std::mem::swap(&mut holder, &mut waiter);
        }
        self.rows.push(Row::of("release to the next holder", &stretch, None));
        holder.close().await?;
        Ok(waiter.close().await?)
    }

    fn processor(&self) -> Duration {
        self.under.processor()
    }

    fn length(&self, length: u64) {
        self.shown.set_length(length);
        self.shown.set_position(0);
    }
}

/// Progress goes to people, not into files.
fn draw_target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}
