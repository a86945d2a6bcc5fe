//! The bound address of a server, and what all of its connections share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::connection_limit::ConnectionLimit;
use super::http_server::{HttpServer, serve};
use super::limits::TransportLimits;
use super::rate_limit::RateLimit;
use crate::metrics::Metrics;

pub use super::http_server::ShutdownPhase;

/// A bound address. It outlives the routers that are served on it, one after the other.
pub struct Listener {
    /// The bound address; with its actual port if port 0 was requested.
    pub address: SocketAddr,
    /// Limit on open connections; it can be changed while serving.
    pub connection_limit: Arc<ConnectionLimit>,
    /// Limit on requests per second of one connection; it can be changed while serving.
    pub rate_limit: Arc<RateLimit>,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    socket: Arc<TcpListener>,
    limits: TransportLimits,
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
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() && !insecure_listen {
            return Err(ListenError::Insecure { address });
        }
        let failed = |error| ListenError::Bind { address, error };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            connection_limit: ConnectionLimit::new(limits.connections),
            rate_limit: RateLimit::new(limits.request_rate),
            metrics: Arc::default(),
            socket: Arc::new(socket),
            limits,
        })
    }

    /// Accepts connections and serves a router on them.
    pub fn serve(&self, router: Router) -> ServeTask {
        let (shutdown, phase) = watch::channel(ShutdownPhase::Running);
        let server = HttpServer {
            socket: self.socket.clone(),
            router,
            metrics: self.metrics.clone(),
            limits: self.limits,
            connection_limit: self.connection_limit.clone(),
            rate_limit: self.rate_limit.clone(),
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
