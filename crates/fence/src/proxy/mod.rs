//! A reverse proxy that fences an HTTP or gRPC service, for services that cannot use the [`http`](crate::http) layer.
//!
//! The proxy forwards requests that the fence admits, and streams bodies in both directions. `leasehold fence http` runs it.
//! Open the [`Fence`] first, and pass it to [`serve`]:
//!
//! ```no_run
//! # async fn example(fence: leasehold_fence::http::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::proxy::{ProxyConfig, serve};
//!
//! let config = ProxyConfig::new("http://127.0.0.1:8080".parse()?);
//! let shutdown = async { tokio::signal::ctrl_c().await.expect("a signal handler") };
//! serve(fence, config, |addresses| println!("fencing on {}", addresses.proxy), shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! On the holder's side, [`TokenForwarder`] adds the token to the requests of a program that cannot.

mod connection_deadlines;
mod forwarder;
mod listener;
mod metrics;
mod peer_owner;
mod rules;
mod upstream;
mod web_origin;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::Mark;
use crate::http::Fence;
pub use forwarder::TokenForwarder;
pub use rules::{ExemptRule, PathPattern, RouteRule};
use upstream::Upstream;
pub use upstream::UpstreamUrl;

/// Configuration of the proxy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The service to which requests are forwarded.
    pub upstream: UpstreamUrl,
    /// Address on which to listen. Default: 127.0.0.1:7422.
    pub listen: SocketAddr,
    /// Address for `/metrics`, `/healthz` and `/marks`. Default: 127.0.0.1:7423.
    pub metrics: SocketAddr,
    /// Allows addresses that other machines can reach. The proxy has no TLS. Default: false.
    pub insecure_listen: bool,
    /// Host names under which the proxy is reached, besides IP addresses and `localhost`. If there are none, the main listener
    /// accepts every name and leaves the check to the service; the metrics listener accepts no name. Default: none.
    pub hosts: Vec<String>,
    /// Maximum number of open connections; others are closed immediately. It is lowered to what the limit of open files
    /// allows. Default: 10,000.
    pub max_connections: usize,
    /// Time limit for the head of a request, and for the next request of a connection. Default: 10 s.
    pub header_timeout: Duration,
    /// Time for open requests to complete at shutdown. Default: 30 s.
    pub drain_timeout: Duration,
}

impl ProxyConfig {
    /// The default configuration for a service.
    pub fn new(upstream: UpstreamUrl) -> Self {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            upstream,
            listen: local(7422),
            metrics: local(7423),
            insecure_listen: false,
            hosts: Vec::new(),
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// The addresses on which the proxy listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyAddresses {
    /// Address for requests to the service.
    pub proxy: SocketAddr,
    /// Address for metrics.
    pub metrics: SocketAddr,
}

/// Why the proxy did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProxyError {
    /// An address cannot be bound.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// Other machines can reach the address, and there is no TLS.
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The proxy would forward requests to itself.
    Loop,
    /// The text cannot be a header, so it is not a token.
    Token,
}

impl ProxyError {
    /// The stable code from the table of error codes.
    pub const fn code(&self) -> &'static str {
        "CONFIG"
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => write!(f, "cannot listen on {address}: {error}; use another address"),
            Self::Insecure { address } => {
                write!(f, "refusing to listen on {address} without TLS; use 127.0.0.1 or pass --insecure-listen")
            }
            Self::Loop => f.write_str("--upstream and --listen are the same address; set --upstream to the service"),
            Self::Token => f.write_str("the text is not a token; pass the token of the grant unchanged"),
        }
    }
}

impl std::error::Error for ProxyError {}

/// Runs the proxy until `shutdown` completes, and then until open requests are complete. It calls `on_ready` once it accepts
/// connections. At the end it records in the mark files whether all outcomes are known.
pub async fn serve(
    fence: Fence,
    config: ProxyConfig,
    on_ready: impl FnOnce(ProxyAddresses),
    shutdown: impl Future<Output = ()>,
) -> Result<(), ProxyError> {
    let reachable = [config.listen, config.metrics].into_iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = reachable.filter(|_| !config.insecure_listen) {
        return Err(ProxyError::Insecure { address });
    }
    let (listener, proxy) = bind(config.listen).await?;
    let (metrics_listener, metrics) = bind(config.metrics).await?;
    if proxy == config.upstream.address() {
        return Err(ProxyError::Loop);
    }
    let upstream = Upstream::new(config.upstream.clone());
    log_start(&config, &fence, &upstream).await;
    let metrics_task =
        tokio::spawn(metrics::serve(metrics_listener, fence.clone(), config.hosts.clone(), config.header_timeout));
    tracing::info!("fencing on {proxy}, upstream {}, metrics on {metrics}", config.upstream);
    on_ready(ProxyAddresses { proxy, metrics });
    listener::serve(listener, &fence, upstream, &config, shutdown).await;
    metrics_task.abort();
    let settle_time = fence.timeouts().settle_time;
    match fence.record_settled() {
        Ok(true) => tracing::info!("stopped"),
        Ok(false) => {
            tracing::warn!("stopped with an unknown outcome; the next start blocks higher tokens for {settle_time:?}");
        }
        Err(error) => tracing::warn!("stopped, but cannot record this in the mark file: {error}"),
    }
    Ok(())
}

/// Logs the marks, and warnings about the start.
async fn log_start(config: &ProxyConfig, fence: &Fence, upstream: &Upstream) {
    let settle_time = fence.timeouts().settle_time;
    for gate in fence.gate_statuses() {
        let mark = match gate.mark {
            Mark::Armed(mark) => format!("mark {mark}"),
            Mark::Fresh => "fresh".to_owned(),
            Mark::Lost => "mark lost, rejecting all writes until re-armed".to_owned(),
        };
        tracing::info!("{}: {mark}", gate.id);
        if !gate.closed_for.is_zero() {
            tracing::warn!(
                "{}: the previous process ended with open requests; higher tokens are blocked for {settle_time:?}",
                gate.id
            );
        }
    }
    if let Err(error) = upstream.check_reachable().await {
        tracing::warn!("upstream {} is unreachable, requests get UNAVAILABLE: {error}", config.upstream);
    }
    if !config.listen.ip().is_loopback() {
        tracing::warn!("listening on a non-loopback address without TLS");
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ProxyError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    bound.await.map_err(|error| ProxyError::Bind { address, error })
}
