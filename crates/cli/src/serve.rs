//! `leasehold serve`: a grantor on this machine, durable in a directory.

use std::net::SocketAddr;
use std::path::PathBuf;

use leasehold_server::driver::Stopped;
use leasehold_server::journal::Place;
use leasehold_server::journal::file::Directory;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{Failed, Settings, start};
use tokio::signal::unix::{SignalKind, signal};

use crate::{EXIT_OTHER, Failure, Outcome};

/// Serve leases over gRPC and HTTP
///
/// Everything that is told is durable first. Stop it with SIGTERM or Ctrl-C; it answers what it has taken in, then ends.
#[derive(clap::Args)]
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

/// The configuration, or what stands in the data directory, stops the server from starting.
const EXIT_CONFIG: u8 = 78;
/// What is stored is damaged.
const EXIT_CORRUPT: u8 = 65;

pub fn run(args: &Args) -> Outcome {
    let settings = Settings { listen: args.listen, insecure_listen: args.insecure_listen, ..Settings::default() };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure { exit: EXIT_OTHER, text: format!("leasehold: cannot start: {error}") })?;
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
    let running = start(place, settings).await.map_err(not_started)?;
    for warning in &running.warnings {
        eprintln!("leasehold: {warning}");
    }
    eprintln!("leasehold: serving on {}, journal {kept}, cluster {}", running.address, running.issuer.cluster);
    match running.until(asked_to_stop()).await {
        Stopped::Asked => Ok("stopped".to_owned()),
        Stopped::Fenced => Err(Failure {
            exit: EXIT_OTHER,
            text: "leasehold: another server has taken the journal; this one stopped".to_owned(),
        }),
        Stopped::Failed(fault) => Err(Failure { exit: EXIT_OTHER, text: format!("leasehold: {fault}") }),
    }
}

fn not_started(why: Failed) -> Failure {
    let exit = match &why {
        Failed::Journal(error) if error.code() == "CORRUPT" => EXIT_CORRUPT,
        Failed::Journal(_) | Failed::NotOpened(_) | Failed::Listen { .. } | Failed::Insecure { .. } => EXIT_CONFIG,
        Failed::Keep(_) | Failed::Fenced => EXIT_OTHER,
    };
    Failure { exit, text: format!("leasehold: {why}") }
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
