//! `leasehold serve`: a grantor on this machine, durable in a directory, or one of several over etcd.

mod cluster;
mod kept;
pub mod log;
mod memory;
pub mod notify;
mod reload;
pub mod settings;
mod size;
mod spelled;

use std::path::PathBuf;

use leasehold_server::door::Bounds;
use leasehold_server::driver::Stopped;
use leasehold_server::journal::OpenError;
use leasehold_server::journal::Place;
use leasehold_server::journal::file::{Directory, Options, SEGMENT_BYTES};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{Failed, Running, Settings, start};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::table::lasting;
use crate::told::{Answer, Failure, Outcome, coded};
use kept::Kept;
use log::Level;
use reload::Reload;
use settings::{Chosen, Given};
use size::Size;
use spelled::segment_size;

/// Serve leases over gRPC and HTTP
///
/// Everything that is told is durable first. Stop it with SIGTERM or Ctrl-C; it answers what it has taken in, then ends.
/// Every option can stand in a file (--config), under its name with `_` for `-`; what is given here goes before the file.
/// SIGHUP reads the file again.
///
/// With --journal etcd://… several servers share a journal: one leads, the others stand by, and one of them leads when the
/// leader is gone. SIGTERM hands over first.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold serve --listen 127.0.0.1:7421 --data /var/lib/leasehold\n  \
                        leasehold serve --journal etcd://h1:2379,h2:2379,h3:2379/leasehold --advertise lease-1:7421")]
pub struct Args {
    /// A file with settings, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep nothing: the same as --journal memory
    #[arg(long, conflicts_with_all = ["data", "journal"])]
    ephemeral: bool,
    /// How long a segment of the log is. Short ones are for tests: what is ready for a full disk is shorter with them
    #[arg(long, value_name = "SIZE", hide = true, value_parser = segment_size)]
    segment_bytes: Option<Size>,
    /// How long the leader key outlives its server, in seconds. Long ones are for tests on busy machines
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 1)]
    etcd_lease: u32,
    #[command(flatten)]
    given: Given,
}

pub fn run(args: &Args) -> Outcome {
    memory::give_back();
    let mut flags = args.given.clone();
    if args.ephemeral {
        flags.journal = Some(Kept::Memory);
    }
    let chosen = Chosen::from(&flags, args.config.as_deref())?;
    let level = log::begin(chosen.log, chosen.log_level).map_err(Failure::Other)?;
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| Failure::Other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match &chosen.journal {
            Kept::File => {
                let segment_bytes = args.segment_bytes.map_or(SEGMENT_BYTES, |size| size.0);
                let options = Options { accept_copy: chosen.accept_copy, segment_bytes, ..Options::default() };
                let place = Directory { path: chosen.data.clone(), options };
                serve(place, flags, args.config.clone(), chosen, level).await
            }
            Kept::Memory => serve(Memory::new(), flags, args.config.clone(), chosen, level).await,
            Kept::Etcd { .. } => cluster::serve(flags, args.config.clone(), chosen, level, args.etcd_lease).await,
        }
    })
}

async fn serve<P>(place: P, flags: Given, config: Option<PathBuf>, chosen: Chosen, level: Level) -> Outcome
where
    P: Place,
    P::Journal: 'static,
{
    // Before anybody is told that it serves: a signal that nobody listens to ends a process.
    let signals = Signals::listen();
    let running = start(place, settings(&chosen)).await.map_err(|why| not_started(&why))?;
    tell(&running, &chosen);
    let reload = Reload { flags, config, chosen, level, room: running.room.clone(), pace: running.pace.clone() };
    notify::ready(&format!("serving on {}", running.address));
    ended(running.until(signals.asked_to_stop(reload)).await)
}

/// How a server ended.
fn ended(stopped: Stopped) -> Outcome {
    match stopped {
        Stopped::Asked => {
            tracing::info!("stopped");
            Ok(Answer::WRITTEN)
        }
        Stopped::Fenced | Stopped::SteppedDown => {
            Err(Failure::Other("another server has taken the journal; this one stopped".to_owned()))
        }
        Stopped::Failed(fault) => Err(coded(fault.code(), &fault)),
    }
}

fn settings(chosen: &Chosen) -> Settings {
    Settings {
        listen: chosen.listen,
        insecure_listen: chosen.insecure_listen,
        max_ttl_ms: chosen.max_ttl.millis(),
        bounds: Bounds {
            connections: chosen.connections as usize,
            request_rate: chosen.request_rate,
            ..Bounds::default()
        },
        keep: chosen.keep(),
        ..Settings::default()
    }
}

/// What an operator should know about a start.
fn tell(running: &Running, chosen: &Chosen) {
    for warning in &running.warnings {
        tracing::warn!("{warning}");
    }
    // Every lease was granted under the longest ttl of the first start, so a later one cannot change it. To stop here
    // would make an outage of a line in a file.
    if chosen.max_ttl_given && running.max_ttl_ms != chosen.max_ttl.millis() {
        tracing::warn!(
            "max_ttl stays {}: it is fixed at a cluster's first start; take it out of the settings, or begin a new cluster",
            lasting(running.max_ttl_ms)
        );
    }
    if chosen.insecure_listen && !chosen.listen.ip().is_loopback() {
        tracing::warn!("reachable from other machines without TLS");
    }
    let kept = match &chosen.journal {
        Kept::File => chosen.data.display().to_string(),
        Kept::Memory => "in memory".to_owned(),
        etcd @ Kept::Etcd { .. } => etcd.to_string(),
    };
    let reached = chosen.advertise.as_ref().map(|address| format!(", advertised as {address}")).unwrap_or_default();
    tracing::info!("serving on {}, journal {kept}, cluster {}{reached}", running.address, running.issuer.cluster);
}

/// What a library calls a choice is a flag here.
fn not_started(why: &Failed) -> Failure {
    let flagged = |flag: &str| coded("CONFIG", &format!("{why} ({flag})"));
    match why {
        Failed::Journal(OpenError::Copied { .. }) => flagged("--accept-copy"),
        Failed::Listen { .. } => flagged("--listen"),
        Failed::Insecure { .. } => flagged("--insecure-listen"),
        Failed::Journal(error) => coded(error.code(), error),
        Failed::NotOpened(_) => coded("CONFIG", why),
        Failed::Keep(fault) => coded(fault.code(), fault),
        Failed::Fenced => Failure::Other(why.to_string()),
    }
}

/// What reaches a process from outside.
struct Signals {
    term: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Self {
        let of = |kind| signal(kind).expect("a process can listen to its signals");
        Self {
            term: of(SignalKind::terminate()),
            interrupt: of(SignalKind::interrupt()),
            hang_up: of(SignalKind::hangup()),
        }
    }

    /// Ctrl-C, or a polite request by whoever started it. Until then, SIGHUP reads the settings again.
    async fn asked_to_stop(mut self, mut reload: Reload) {
        loop {
            tokio::select! {
                _ = self.term.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.hang_up.recv() => reload.now(),
            }
        }
        tracing::info!("stopping: what was taken in is answered first");
        notify::stopping();
    }
}
