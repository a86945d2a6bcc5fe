//! `leasehold serve`: a grantor on this machine, durable in a directory.

use std::net::SocketAddr;
use std::path::PathBuf;

use leasehold_server::driver::Stopped;
use leasehold_server::journal::Place;
use leasehold_server::journal::file::Directory;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{Failed, Settings, start};
use tokio::signal::unix::{SignalKind, signal};

use crate::told::{Failure, Outcome, coded};

/// Serve leases over gRPC and HTTP
///
/// Everything that is told is durable first. Stop it with SIGTERM or Ctrl-C; it answers what it has taken in, then ends.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold serve --listen 127.0.0.1:7421 --data /var/lib/leasehold")]
pub struct Args {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:7421", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where the journal is kept; created if its parent is there
    #[arg(long, default_value = "./leasehold-data", value_name = "DIRECTORY")]
    data: PathBuf,
    /// Keep nothing: the journal lives in memory and ends with the process
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// Listen beyond this machine although there is no TLS
    #[arg(long)]
    insecure_listen: bool,
}

pub fn run(args: &Args) -> Outcome {
    let settings = Settings { listen: args.listen, insecure_listen: args.insecure_listen, ..Settings::default() };
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| Failure::Other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        if args.ephemeral {
            serve(Memory::new(), settings, "in memory").await
        } else {
            serve(Directory::new(&args.data), settings, &args.data.display().to_string()).await
        }
    })
}

async fn serve<P>(place: P, settings: Settings, kept: &str) -> Outcome
where
    P: Place,
    P::Journal: 'static,
{
    let running = start(place, settings).await.map_err(|why| not_started(&why))?;
    for warning in &running.warnings {
        eprintln!("leasehold: {warning}");
    }
    eprintln!("leasehold: serving on {}, journal {kept}, cluster {}", running.address, running.issuer.cluster);
    match running.until(asked_to_stop()).await {
        Stopped::Asked => Ok("stopped".to_owned().into()),
        Stopped::Fenced => Err(Failure::Other("another server has taken the journal; this one stopped".to_owned())),
        Stopped::Failed(fault) => Err(coded(fault.code(), &fault)),
    }
}

fn not_started(why: &Failed) -> Failure {
    match why {
        Failed::Journal(error) => coded(error.code(), error),
        Failed::NotOpened(_) | Failed::Listen { .. } | Failed::Insecure { .. } => coded("CONFIG", why),
        Failed::Keep(fault) => coded(fault.code(), fault),
        Failed::Fenced => Failure::Other(why.to_string()),
    }
}

/// Ctrl-C, or a polite request by whoever started it.
async fn asked_to_stop() {
    let mut term = signal(SignalKind::terminate()).expect("a process can listen to SIGTERM");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a process can listen to SIGINT");
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
