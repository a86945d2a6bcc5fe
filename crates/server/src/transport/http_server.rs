//! The accept loop and the HTTP/1 and HTTP/2 setup of connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use leasehold_wire::{Code, v1};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::body_limit::{BodyBudget, ConnectionBodies};
use super::connection_activity::GuardedBody;
use super::connection_deadlines::{Connection, IdleTimeout};
use super::connection_limit::ConnectionLimit;
use super::error_layer;
use super::grpc_requests::{is_grpc, problem_response};
use super::limits::{CONNECTION_WINDOW, MAX_HEAD_BYTES, MAX_STREAMS, SEND_BUFFER, STREAM_WINDOW, TransportLimits};
use super::rate_limit::{ConnectionRate, RateLimit};
use crate::identity::{self, Identity, Via};
use crate::metrics::Metrics;

/// Idle time of an HTTP/2 peer before it is pinged, and time for it to reply.
const PING: Duration = Duration::from_secs(20);
/// Connections beyond the limit that receive a rejection at the same time; further ones are closed at once.
const MAX_REJECTIONS: usize = 64;
/// Time for such a connection to send a request and to read the rejection.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Phase of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// Connections are accepted.
    Running,
    /// No connection is accepted; open ones receive their outstanding replies.
    Draining,
    /// Open connections are closed.
    Abort,
}

/// What the accept loop needs.
pub(super) struct HttpServer {
    pub socket: Arc<TcpListener>,
    pub router: Router,
    pub metrics: Arc<Metrics>,
    pub plain_via: Via,
    pub limits: TransportLimits,
    pub connection_limit: Arc<ConnectionLimit>,
    pub rate_limit: Arc<RateLimit>,
    pub idle_timeout: Arc<IdleTimeout>,
    pub body_budget: BodyBudget,
}

/// Serves until the shutdown begins, and then until the last connection is closed. Later connections wait in the socket's backlog
/// as long as the socket exists.
pub(super) async fn serve(server: HttpServer, mut phase: watch::Receiver<ShutdownPhase>) {
    let HttpServer {
        socket,
        router,
        metrics,
        plain_via,
        limits,
        connection_limit,
        rate_limit,
        idle_timeout,
        body_budget,
    } = server;
    let rejections = Arc::new(Semaphore::new(MAX_REJECTIONS));
    let reject = error_layer::connection_limit_router(connection_limit.clone(), metrics.clone());
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            // The sender is dropped with the server; that begins the shutdown too.
            _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Draining) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let stream = Connection::new(stream, limits, idle_timeout.clone(), metrics.clone());
        let activity = stream.activity().clone();
        let identity = Arc::new(match plain_via {
            Via::Local => Identity::local(Some(peer)),
            _ => Identity::anonymous(Some(peer)),
        });
        let shared = ConnectionLimits { rate: rate_limit.connection(peer.ip()), bodies: body_budget.connection() };
        if let Some(permit) = connection_limit.try_acquire(&activity) {
            let served = serve_connection(stream, identity, router.clone(), shared, graceful.watcher());
            let gauge = metrics.connection_opened();
            let mut phase = phase.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = served => {}
                    () = activity.closed() => {}
                    _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Abort) => {}
                }
                drop((permit, gauge));
            });
        } else if let Ok(permit) = rejections.clone().try_acquire_owned() {
            let served = serve_connection(stream, identity, reject.clone(), shared, graceful.watcher());
            tokio::spawn(async move {
                // A peer that sends no request in time receives no rejection.
                let _ = tokio::time::timeout(REJECT_TIMEOUT, served).await;
                drop(permit);
            });
        } else {
            metrics.rejections().limit("connections");
        }
    }
    drop(socket);
    graceful.shutdown().await;
}

/// The limits of one connection that its requests share, as extensions of each request.
#[derive(Clone)]
struct ConnectionLimits {
    rate: Arc<ConnectionRate>,
    bodies: Arc<ConnectionBodies>,
}

/// Serves one connection until it ends.
async fn serve_connection(
    stream: Connection,
    identity: Arc<Identity>,
    router: Router,
    shared: ConnectionLimits,
    watcher: Watcher,
) {
    let (stats, activity) = (stream.peer_stats(), stream.activity().clone());
    let handle = move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(shared.rate.clone());
        request.extensions_mut().insert(shared.bodies.clone());
        let (guard, router, identity) = (activity.begin(), router.clone(), identity.clone());
        async move {
            let Some(guard) = guard else {
                return Ok(problem_response(closed_as_idle(), is_grpc(request.headers())));
            };
            let response = identity::on_behalf_of(identity, router.oneshot(request.map(Body::new))).await?;
            Ok::<_, Infallible>(response.map(|body| Body::new(GuardedBody { body, _guard: guard })))
        }
    };
    let mut builder = Builder::new(TokioExecutor::new());
    let head_buffer = 4 * MAX_HEAD_BYTES;
    // The connection has its own deadline for heads, which differs from that of an idle connection.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_buffer);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    builder.http2().max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_BYTES as u32);
    builder.http2().initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.http2().max_send_buf_size(SEND_BUFFER);
    let served = builder.serve_connection(TokioIo::new(stream), hyper::service::service_fn(handle));
    if let Err(error) = watcher.watch(served).await {
        stats.connection_failed(&*error);
    }
}

/// A request arrived on a connection that was just closed for being idle.
fn closed_as_idle() -> v1::Problem {
    v1::Problem::of(
        Code::Unavailable,
        "the connection was idle and is closed; nothing happened, retry on a new connection",
    )
}
