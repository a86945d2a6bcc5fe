//! The bound address and unix socket of a server, and what all of its connections share.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::body_limit::BodyBudget;
use super::connection_deadlines::IdleTimeout;
use super::connection_limit::ConnectionLimit;
use super::cross_site_check::{AllowedHosts, check_host};
use super::http_server::{HttpServer, PlainIdentity, Sockets, serve};
use super::identity_traffic::TrafficLimiter;
use super::limits::{BODY_BYTES, TransportLimits};
use super::rate_limit::RateLimit;
use super::tls::{HandshakeLimit, TlsHandle};
use super::unix_socket::{SocketError, SocketListener};
use crate::bearer::BearerVerifier;
use crate::metrics::Metrics;

pub use super::shutdown_phase::ShutdownPhase;

/// Where a server listens, and under which conditions.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address.
    pub address: SocketAddr,
    /// Allow an address that other machines can reach, without TLS.
    pub insecure_listen: bool,
    /// TLS on the address; plain if there is none.
    pub tls: Option<Arc<TlsHandle>>,
    /// Bearer tokens that requests may present.
    pub bearers: Option<Arc<BearerVerifier>>,
    /// Whether access rules exist. Then a plain connection from this machine is anonymous too.
    pub is_restricted: bool,
    /// Limits and timeouts of connections.
    pub limits: TransportLimits,
    /// Limits of each identity.
    pub traffic: Arc<TrafficLimiter>,
    /// Names under which clients may address this server.
    pub allowed_hosts: AllowedHosts,
}

/// A bound address. It outlives the routers that are served on it, one after the other.
pub struct Listener {
    /// The bound address; with its actual port if port 0 was requested.
    pub address: SocketAddr,
    /// Limit on open connections; it can be changed while serving.
    pub connection_limit: Arc<ConnectionLimit>,
    /// Limit on requests per second of a connection and of a peer address; it can be changed while serving.
    pub rate_limit: Arc<RateLimit>,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    /// TLS on the address; it can be reloaded while serving.
    pub tls: Option<Arc<TlsHandle>>,
    bearers: Option<Arc<BearerVerifier>>,
    sockets: Sockets,
    limits: TransportLimits,
    allowed_hosts: Arc<AllowedHosts>,
    idle_timeout: Arc<IdleTimeout>,
    body_budget: BodyBudget,
    handshakes: Arc<HandshakeLimit>,
    traffic: Arc<TrafficLimiter>,
}

/// A router that is being served.
pub struct ServeTask {
    /// Ends when the last connection is closed.
    pub task: JoinHandle<()>,
    /// Starts the shutdown.
    pub shutdown: watch::Sender<ShutdownPhase>,
}

/// The server cannot listen on an address.
#[derive(Debug)]
pub enum ListenError {
    /// The operating system refused the address.
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
    /// The unix socket cannot be used.
    Socket(SocketError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => write!(f, "cannot listen on {address}: {error}; choose another address"),
            Self::Insecure { address } => write!(
                f,
                "refusing to listen on {address} without TLS; set tls_cert and tls_key, use 127.0.0.1, or pass --insecure-listen"
            ),
            Self::Socket(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ListenError {}

impl Listener {
    /// Binds the address. No connection is accepted before [`Listener::serve`].
    pub async fn bind(config: ListenConfig) -> Result<Self, ListenError> {
        let ListenConfig { address, insecure_listen, tls, bearers, is_restricted, limits, traffic, allowed_hosts } =
            config;
        if !address.ip().is_loopback() && !insecure_listen && tls.is_none() {
            return Err(ListenError::Insecure { address });
        }
        let failed = |error| ListenError::Bind { address, error };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        // A plain connection proves nothing. Only on an address of this machine, and without access rules, it may do everything.
        let plain = if address.ip().is_loopback() && !is_restricted && tls.is_none() {
            PlainIdentity::Local
        } else {
            PlainIdentity::Anonymous
        };
        let metrics = Arc::new(Metrics::default());
        if let Some(tls) = &tls {
            let tls = tls.clone();
            metrics.tls().follow(move || tls.seconds_left());
        }
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            connection_limit: ConnectionLimit::new(limits.connections),
            rate_limit: RateLimit::new(limits.request_rate, limits.address_request_rate),
            metrics,
            sockets: Sockets { tcp: Arc::new(socket), unix: None, plain },
            limits,
            allowed_hosts: Arc::new(allowed_hosts.with_certificate(tls.clone())),
            idle_timeout: IdleTimeout::new(limits.idle_timeout(TTL_MAX_DEFAULT)),
            body_budget: BodyBudget::new(BODY_BYTES),
            handshakes: HandshakeLimit::new(),
            traffic,
            tls,
            bearers,
        })
    }

    /// Binds the unix socket too.
    pub fn bind_socket(&mut self, path: &Path) -> Result<(), ListenError> {
        self.sockets.unix = Some(Arc::new(SocketListener::bind(path).map_err(ListenError::Socket)?));
        Ok(())
    }

    /// The path of the unix socket.
    pub fn socket_path(&self) -> Option<&Path> {
        self.sockets.unix.as_deref().map(SocketListener::path)
    }

    /// Keeps idle HTTP/1 connections open as long as holders with this ttl need them.
    pub fn set_max_ttl(&self, max_ttl_ms: u64) {
        self.idle_timeout.set(self.limits.idle_timeout(max_ttl_ms));
    }

    /// Accepts connections and serves a router on them.
    pub fn serve(&self, router: Router) -> ServeTask {
        let (shutdown, phase) = watch::channel(ShutdownPhase::Running);
        let hosts = (self.allowed_hosts.clone(), self.metrics.clone());
        let router = router.layer(from_fn_with_state(hosts, check_host));
        let server = HttpServer {
            sockets: self.sockets.clone(),
            tls: self.tls.clone(),
            bearers: self.bearers.clone(),
            handshakes: self.handshakes.clone(),
            router,
            metrics: self.metrics.clone(),
            limits: self.limits,
            connection_limit: self.connection_limit.clone(),
            rate_limit: self.rate_limit.clone(),
            idle_timeout: self.idle_timeout.clone(),
            body_budget: self.body_budget.clone(),
            traffic: self.traffic.clone(),
        };
        ServeTask { task: tokio::spawn(serve(server, phase)), shutdown }
    }
}

impl ServeTask {
    /// Shuts down: open connections have `timeout` to receive their outstanding replies, then they are aborted. False if any was
    /// aborted.
    pub async fn drain(mut self, timeout: Duration) -> bool {
        let _ = self.shutdown.send(ShutdownPhase::Draining);
        if tokio::time::timeout(timeout, &mut self.task).await.is_ok() {
            return true;
        }
        let _ = self.shutdown.send(ShutdownPhase::Abort);
        let _ = self.task.await;
        false
    }
}
