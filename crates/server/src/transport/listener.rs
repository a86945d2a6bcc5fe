//! The bound address of a server, and what all of its connections share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::allowed_hosts::{AllowedHosts, check_host};
use super::body_limit::BodyBudget;
use super::connection_deadlines::IdleTimeout;
use super::connection_limit::ConnectionLimit;
use super::http_server::{HttpServer, serve};
use super::limits::{BODY_BYTES, TransportLimits};
use super::rate_limit::RateLimit;
use crate::identity::Via;
use crate::metrics::Metrics;

pub use super::http_server::ShutdownPhase;

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
    /// What a plain connection is: local or anonymous.
    pub plain_via: Via,
    socket: Arc<TcpListener>,
    limits: TransportLimits,
    allowed_hosts: Arc<AllowedHosts>,
    idle_timeout: Arc<IdleTimeout>,
    body_budget: BodyBudget,
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
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => write!(f, "cannot listen on {address}: {error}; choose another address"),
            Self::Insecure { address } => {
                write!(f, "refusing to listen on {address} without TLS; use 127.0.0.1 or pass --insecure-listen")
            }
        }
    }
}

impl std::error::Error for ListenError {}

impl Listener {
    /// Binds the address. No connection is accepted before [`Listener::serve`].
    pub async fn bind(
        address: SocketAddr,
        insecure_listen: bool,
        limits: TransportLimits,
        allowed_hosts: AllowedHosts,
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() && !insecure_listen {
            return Err(ListenError::Insecure { address });
        }
        let failed = |error| ListenError::Bind { address, error };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            connection_limit: ConnectionLimit::new(limits.connections),
            rate_limit: RateLimit::new(limits.request_rate, limits.address_request_rate),
            metrics: Arc::default(),
            plain_via: if address.ip().is_loopback() { Via::Local } else { Via::Anonymous },
            socket: Arc::new(socket),
            limits,
            allowed_hosts: Arc::new(allowed_hosts),
            idle_timeout: IdleTimeout::new(limits.idle_timeout(TTL_MAX_DEFAULT)),
            body_budget: BodyBudget::new(BODY_BYTES),
        })
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
            socket: self.socket.clone(),
            router,
            metrics: self.metrics.clone(),
            plain_via: self.plain_via,
            limits: self.limits,
            connection_limit: self.connection_limit.clone(),
            rate_limit: self.rate_limit.clone(),
            idle_timeout: self.idle_timeout.clone(),
            body_budget: self.body_budget.clone(),
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
