//! `leasehold fence http`: run a reverse proxy that fences an HTTP or gRPC service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold_fence::http::{Fence, GateTimeouts, Rules};
use leasehold_fence::proxy::{self, ExemptRule, ProxyConfig, RouteRule, UpstreamUrl};
use leasehold_fence::{Cluster, FenceId, SealVerifier};
use tokio::signal::unix::{SignalKind, signal};

use super::key_files::{read_seal_keys, reload};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult, error_with_code};
use crate::serve::log::{self, LogFormat, LogLevel};
use crate::serve::notify;

/// Run a reverse proxy that fences an HTTP or gRPC service
///
/// A request that can change data must carry its token in the header `Lease-Token`, and is forwarded only if the token is not
/// below the mark. A new holder claims with `POST /-/claim`. A higher token waits until all requests with lower tokens are
/// complete. The mark is stored durably in a file before any request with it is forwarded. On SIGTERM or Ctrl-C the proxy
/// completes its open requests and exits.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold fence http --upstream http://127.0.0.1:8080 --resource jobs/settle --marks settle.marks \\
      --cluster 00c0ffee00c0ffee --arm
  leasehold fence http --upstream http://127.0.0.1:8080 --resource shop --marks shop.marks \\
      --scope 'POST,PUT /orders=shop/orders' --exempt /search")]
pub struct Args {
    /// Service to which requests are forwarded: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    upstream: UpstreamUrl,
    /// Resource whose holder may change data in the service
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Slot of the resource; 0 for an exclusive lease
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// File that stores the mark; marks of other resources are stored next to it
    #[arg(long, value_name = "FILE")]
    marks: PathBuf,
    /// Cluster whose tokens are accepted, as `leasehold status` prints it [default: that of the mark file]
    #[arg(long, value_name = "ID")]
    cluster: Option<Cluster>,
    /// Create the mark files, for a service that was not written to under a lease before
    #[arg(long, requires = "cluster")]
    arm: bool,
    /// Public seal keys (`leasehold keys export`): refuse every token that none of them signed. Read again when the file changes
    #[arg(long, value_name = "FILE")]
    seal_keys: Option<PathBuf>,
    /// Address on which to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7422")]
    listen: SocketAddr,
    /// Address for metrics (/metrics), health (/healthz) and marks (/marks)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7423")]
    metrics: SocketAddr,
    /// Allow addresses that other machines can reach; the proxy has no TLS
    #[arg(long)]
    insecure_listen: bool,
    /// Host name of the proxy; other names are refused. Without it, the service decides, and metrics need an address or localhost
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Fence requests under a path by another resource: '[METHOD,METHOD... ]PATH=RESOURCE[@SLOT]'
    #[arg(long, value_name = "RULE")]
    scope: Vec<RouteRule>,
    /// Forward requests under a path without a token: '[METHOD,METHOD... ]PATH'
    #[arg(long, value_name = "RULE")]
    exempt: Vec<ExemptRule>,
    /// Require a token for read-only requests too
    #[arg(long)]
    fence_reads: bool,
    /// Time that a higher token waits for open requests with lower tokens, before it gets UNAVAILABLE
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    claim_timeout: HumanDuration,
    /// Maximum time of a request; then it is aborted, and its outcome is unknown
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    max_request_time: HumanDuration,
    /// Time that a higher token waits after an unknown outcome; the service must apply a request within it, or never
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    settle_time: HumanDuration,
    /// Time for open requests to complete at shutdown
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    drain: HumanDuration,
    /// Maximum number of open connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Time limit for the head of a request, and for the next request of a connection
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    header_timeout: HumanDuration,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    log::init(if global.format().is_document() { LogFormat::Json } else { LogFormat::Text }, args.log_level)
        .map_err(CommandError::Other)?;
    let verifier = args.seal_keys.as_deref().map(read_seal_keys).transpose()?.map(SealVerifier::new);
    let mut fence = fence(args)?;
    if let Some(verifier) = &verifier {
        fence = fence.with_seal_verifier(verifier).map_err(fence_failed)?;
    }
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| CommandError::Other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let reloading =
            args.seal_keys.clone().zip(verifier).map(|(path, verifier)| tokio::spawn(reload(path, verifier)));
        let served = serve(args, fence).await;
        if let Some(task) = reloading {
            task.abort();
        }
        served
    })
}

/// Opens the fence with its mark files.
fn fence(args: &Args) -> Result<Fence, CommandError> {
    let cluster = match args.cluster {
        Some(cluster) => cluster,
        None => Fence::cluster(&args.marks).map_err(fence_failed)?,
    };
    let rules = rules(args, cluster)?;
    if args.arm {
        Fence::arm(&args.marks, &rules).map_err(fence_failed)?;
    }
    let timeouts = GateTimeouts::default()
        .with_claim_timeout(duration(args.claim_timeout))
        .with_max_request_time(duration(args.max_request_time))
        .with_settle_time(duration(args.settle_time));
    Fence::open(&args.marks, rules, timeouts).map_err(fence_failed)
}

fn fence_failed(error: leasehold_fence::Error) -> CommandError {
    error_with_code(error.code(), &error)
}

fn rules(args: &Args, cluster: Cluster) -> Result<Rules, CommandError> {
    let main = FenceId::new(cluster, &args.resource).map_err(fence_failed)?.with_slot(args.slot);
    let rules = Rules::new(&main);
    let rules = args.scope.iter().try_fold(rules, |rules, rule| rule.apply(rules)).map_err(fence_failed)?;
    let rules = args.exempt.iter().try_fold(rules, |rules, rule| rule.apply(rules)).map_err(fence_failed)?;
    Ok(if args.fence_reads { rules.fence_reads() } else { rules })
}

async fn serve(args: &Args, fence: Fence) -> CommandResult {
    let on = |kind| signal(kind).expect("signal handlers can be installed");
    let (mut term, mut interrupt) = (on(SignalKind::terminate()), on(SignalKind::interrupt()));
    let shutdown = async {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping, completing open requests");
        notify::stopping();
    };
    let mut config = ProxyConfig::new(args.upstream.clone());
    config.listen = args.listen;
    config.metrics = args.metrics;
    config.insecure_listen = args.insecure_listen;
    config.hosts.clone_from(&args.host);
    config.max_connections = args.connections;
    config.header_timeout = duration(args.header_timeout);
    config.drain_timeout = duration(args.drain);
    let on_ready = |addresses: proxy::ProxyAddresses| notify::ready(&format!("fencing on {}", addresses.proxy));
    proxy::serve(fence, config, on_ready, shutdown).await.map_err(|error| error_with_code(error.code(), &error))?;
    Ok(CommandOutput::EMPTY)
}

const fn duration(duration: HumanDuration) -> Duration {
    Duration::from_millis(duration.millis())
}
