//! `leasehold fence http`: a proxy before any HTTP or gRPC service, which refuses the zombie without touching the service.

mod door;
mod figures;
mod rule;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::duration::Lasting;
use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::http::{Bounds, Fence, Rules, Under};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::connection::Everywhere;
use crate::serve::log::{self, Format, Words};
use crate::serve::notify;
use crate::told::{Answer, Failure, Outcome, coded};
use rule::{FreeRule, UnderRule};
use upstream::{Upstream, Url};

/// Fence an HTTP or gRPC service with a proxy before it
///
/// Requests that can change something show their token in the header `Lease-Token` and are passed on only if it is at or
/// above the mark; a new holder claims with `POST /-/claim`. A request is inside until its answer is through: raising the
/// mark waits for all lower ones. The mark is durable in a file before anything under it passes. Stop it with SIGTERM or
/// Ctrl-C; it answers what it has taken in, then ends.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold fence http --upstream http://127.0.0.1:8080 --resource jobs/settle --marks settle.marks \\
      --cluster 00c0ffee00c0ffee --arm
  leasehold fence http --upstream http://127.0.0.1:8080 --resource shop --marks shop.marks \\
      --under 'POST,PUT /orders=shop/orders' --free /search")]
pub struct Args {
    /// The service to pass requests on to: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    upstream: Url,
    /// The resource whose holder may change something there
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Its slot; 0 under an exclusive lease
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// Where the marks are kept: a file for the resource, and one beside it for each further one
    #[arg(long, value_name = "FILE")]
    marks: PathBuf,
    /// Whose tokens are taken, as `leasehold status` prints it; left out, the mark file says it
    #[arg(long, value_name = "ID")]
    cluster: Option<Cluster>,
    /// Make the mark files first, as fresh: for a service that nobody wrote to under a lease yet
    #[arg(long, requires = "cluster")]
    arm: bool,
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7422")]
    listen: SocketAddr,
    /// Where to tell figures (/metrics), health (/healthz) and marks (/marks)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7423")]
    metrics: SocketAddr,
    /// Requests below a path fall under another resource: '[METHOD,METHOD... ]PATH=RESOURCE[@SLOT]'
    #[arg(long, value_name = "RULE")]
    under: Vec<UnderRule>,
    /// Requests below a path pass without a token: '[METHOD,METHOD... ]PATH'
    #[arg(long, value_name = "RULE")]
    free: Vec<FreeRule>,
    /// Requests that only read show a token too
    #[arg(long)]
    fence_reads: bool,
    /// How long one who raises the mark waits for those inside, before it is told UNAVAILABLE
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    patience: Lasting,
    /// How long a request may be inside; then it is cut off, and its outcome is unknown
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    longest: Lasting,
    /// For how long nothing higher comes in after an unknown outcome: within it the service applies a request, or never
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    settle: Lasting,
    /// How long requests may take to end when it is stopped
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    drain: Lasting,
    /// Connections that are open at the same time
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// How much to say: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Words,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    log::begin(if ask.json { Format::Json } else { Format::Text }, args.log_level).map_err(Failure::Other)?;
    let fence = fence(args)?;
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| Failure::Other(format!("cannot start: {error}")))?;
    runtime.block_on(serve(args, fence))
}

/// The fence over its mark files.
fn fence(args: &Args) -> Result<Fence, Failure> {
    let told = |error: leasehold_fence::Error| coded(error.code(), &error);
    let rules = rules(args)?;
    let cluster = match args.cluster {
        Some(cluster) => cluster,
        None => Fence::cluster(&args.marks).map_err(told)?,
    };
    if args.arm {
        Fence::arm(&args.marks, cluster, &rules).map_err(told)?;
    }
    let bounds = Bounds { patience: span(args.patience), longest: span(args.longest), settle: span(args.settle) };
    Fence::open(&args.marks, cluster, rules, bounds).map_err(told)
}

fn rules(args: &Args) -> Result<Rules, Failure> {
    let told = |error: leasehold_fence::Error| coded(error.code(), &error);
    let name = Name::parse(&args.resource).map_err(|error| coded(error.code(), &error))?;
    let mut rules = Rules::new(Under::new(name, args.slot));
    for UnderRule(way, place) in &args.under {
        rules = rules.under(&way.path, &way.methods, place.clone()).map_err(told)?;
    }
    for FreeRule(way) in &args.free {
        rules = rules.free(&way.path, &way.methods).map_err(told)?;
    }
    Ok(if args.fence_reads { rules.reads_too() } else { rules })
}

async fn serve(args: &Args, fence: Fence) -> Outcome {
    let of = |kind| signal(kind).expect("a process can listen to its signals");
    let (mut term, mut interrupt) = (of(SignalKind::terminate()), of(SignalKind::interrupt()));
    let (listener, aside) = (bound(args.listen).await?, bound(args.metrics).await?);
    let (here, figures) = (address(&listener)?, address(&aside)?);
    if here == args.upstream.address() {
        return Err(coded("CONFIG", &"--upstream leads back to --listen; name the service behind the fence"));
    }
    let upstream = Upstream::new(args.upstream.clone());
    tell(args, &fence, &upstream).await;
    let telling = tokio::spawn(figures::tell(aside, fence.clone()));
    tracing::info!("fencing on {here}, before {}, figures on {figures}", args.upstream);
    notify::ready(&format!("fencing on {here}"));
    let asked = async {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping: what was taken in is answered first");
        notify::stopping();
    };
    door::serve(listener, &fence, upstream, args.connections, asked, span(args.drain)).await;
    telling.abort();
    match fence.settle() {
        Ok(true) => tracing::info!("stopped"),
        Ok(false) => {
            tracing::warn!("stopped with an outcome unknown: the next start lets nothing higher in for {}", args.settle)
        }
        Err(error) => tracing::warn!("stopped, and could not say so in the mark file: {error}"),
    }
    Ok(Answer::WRITTEN)
}

/// What an operator should know about a start.
async fn tell(args: &Args, fence: &Fence, upstream: &Upstream) {
    for crowd in fence.crowds() {
        let mark = match crowd.mark {
            leasehold_fence::Mark::Armed(mark) => format!("mark {mark}"),
            leasehold_fence::Mark::Fresh => "fresh".to_owned(),
            leasehold_fence::Mark::Lost => "mark lost: it refuses until it is armed again".to_owned(),
        };
        tracing::info!("{}: {mark}", crowd.under);
        if !crowd.shut_for.is_zero() {
            tracing::warn!(
                "{}: the process before ended with requests on their way; nothing higher comes in for {}",
                crowd.under,
                args.settle
            );
        }
    }
    if let Err(error) = upstream.reached().await {
        tracing::warn!("{} cannot be reached yet: {error}; requests are told UNAVAILABLE until it is", args.upstream);
    }
    if !args.listen.ip().is_loopback() {
        tracing::warn!("reachable from other machines without TLS");
    }
}

async fn bound(to: SocketAddr) -> Result<TcpListener, Failure> {
    let listening = TcpListener::bind(to).await;
    listening.map_err(|error| coded("CONFIG", &format!("cannot listen on {to}: {error}; choose another address")))
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::Other(format!("cannot listen: {error}")))
}

const fn span(lasting: Lasting) -> Duration {
    Duration::from_millis(lasting.millis())
}
