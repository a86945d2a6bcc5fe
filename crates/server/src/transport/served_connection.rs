//! One connection: its HTTP/1 or HTTP/2 setup, its requests, and its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use leasehold_wire::{Code, v1};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::body_limit::ConnectionBodies;
use super::connection_activity::GuardedBody;
use super::connection_counts::{ConnectionCounts, CountedRequest};
use super::connection_deadlines::Connection;
use super::grpc_detection::{SESSION_PATH, is_grpc, is_streamed, problem_response};
use super::limits::{CONNECTION_WINDOW, MAX_HEAD_BYTES, MAX_REFLECTION_BYTES, MAX_STREAMS, SEND_BUFFER, STREAM_WINDOW};
use super::message_meter::MeteredBody;
use super::shutdown_phase::ShutdownPhase;
use super::tls::{Membership, MembershipEnd};
use crate::bearer::PresentedBearer;
use crate::identity::{self, Identity};

/// Idle time of an HTTP/2 peer before it is pinged, and time for it to reply.
const PING: Duration = Duration::from_secs(20);
/// Time for a connection whose peer no longer belongs here to receive its outstanding replies.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A request whose identity is known and that is within the limits on connections.
pub(super) struct PreparedRequest {
    pub identity: Arc<Identity>,
    pub bearer: Option<Arc<PresentedBearer>>,
    pub bodies: Arc<ConnectionBodies>,
    /// None for a health check, which counts for no one.
    pub counted: Option<CountedRequest>,
}

/// Finds the identity of a request and what it counts for, or a refusal.
type PrepareRequest = Box<dyn Fn(&mut Request<Incoming>) -> Result<PreparedRequest, Box<Response>> + Send + Sync>;

/// A connection and everything that its requests need.
pub(super) struct ServedConnection {
    pub stream: Connection,
    pub who: Arc<Identity>,
    pub prepare: PrepareRequest,
    pub counts: Arc<ConnectionCounts>,
    pub router: Router,
    pub membership: Option<Arc<Membership>>,
    pub is_http2: bool,
    pub phase: watch::Receiver<ShutdownPhase>,
}

/// Serves one connection until it ends.
pub(super) async fn serve_connection(connection: ServedConnection) {
    let ServedConnection { stream, who, prepare, counts, router, membership, is_http2, mut phase } = connection;
    let (stats, activity) = (stream.peer_stats(), stream.activity().clone());
    let belongs = membership.clone();
    let handle = move |mut request: Request<Incoming>| {
        let (guard, router) = (activity.begin(), router.clone());
        let (grpc, version) = (is_grpc(request.headers()), request.version());
        let checked = membership.as_ref().map_or(Ok(()), |membership| membership.check());
        let prepared = match (&guard, checked) {
            (None, _) => Err(Box::new(problem_response(closed_as_idle(), grpc))),
            (_, Err(end)) => Err(Box::new(problem_response(end.problem(), grpc))),
            (Some(_), Ok(())) => prepare(&mut request),
        };
        let (activity, membership, counts) = (activity.clone(), membership.clone(), counts.clone());
        async move {
            let PreparedRequest { identity, bearer, bodies, counted } = match prepared {
                Ok(prepared) => prepared,
                Err(refusal) => return Ok(*refusal),
            };
            let request = request.map(Body::new);
            // Other bodies are read as a whole, and charged then.
            let path = request.uri().path();
            let max = if path == SESSION_PATH { None } else { Some(MAX_REFLECTION_BYTES) };
            let request = match is_streamed(path) {
                true => request.map(|body| Body::new(MeteredBody::new(body, bodies, max))),
                false => request,
            };
            let response = Membership::scope(membership, router.oneshot(request));
            let response = PresentedBearer::scope(bearer.clone(), response);
            let response = while_bearer_counts(bearer, identity::on_behalf_of(identity, response)).await;
            let Some(response) = response else { return Ok(problem_response(bearer_ended(), grpc)) };
            let mut response = response?;
            if !counts.is_admitted() {
                close_after(&mut response, version);
            }
            // A stranger keeps no connection open with a reply that it does not read.
            let guard = guard.filter(|_| activity.is_known());
            Ok::<_, Infallible>(response.map(|body| Body::new(GuardedBody { body, _guard: (guard, counted) })))
        }
    };
    let builder = Builder::new(TokioExecutor::new());
    // Without the detection of the version the server's settings are sent at once: they show the peer that its certificate is accepted.
    let mut builder = if is_http2 { builder.http2_only() } else { builder };
    let head_buffer = 4 * MAX_HEAD_BYTES;
    // The connection has its own deadline for heads, which differs from that of an idle connection.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_buffer);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    builder.http2().max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_BYTES as u32);
    builder.http2().initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    builder.http2().max_send_buf_size(SEND_BUFFER);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), hyper::service::service_fn(handle)));
    let mut ended = pin!(membership_end(belongs));
    let mut closing = false;
    let mut deadline = None;
    let result = loop {
        tokio::select! {
            result = served.as_mut() => break result,
            _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Draining), if !closing => {
                closing = true;
                served.as_mut().graceful_shutdown();
            }
            end = ended.as_mut(), if deadline.is_none() => {
                tracing::info!(principal = %who.principal, credential = %who.credential, peer = who.peer_text(), reason = %end, "connection ended");
                closing = true;
                served.as_mut().graceful_shutdown();
                deadline = Some(Instant::now() + END_TIMEOUT);
            }
            () = sleep_until(deadline), if deadline.is_some() => return,
        }
    };
    if let Err(error) = result {
        stats.connection_failed(&*error);
    }
}

/// Waits for a response, at most until a little after the bearer token of its request ends: a request that waits for a lease ends
/// with its token (A10).
async fn while_bearer_counts<T>(bearer: Option<Arc<PresentedBearer>>, response: impl Future<Output = T>) -> Option<T> {
    let Some(bearer) = bearer else { return Some(response.await) };
    let ended = async {
        bearer.ended().await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        response = response => Some(response),
        () = ended => None,
    }
}

/// The bearer token of a request ended before its response.
fn bearer_ended() -> v1::Problem {
    let message = "the bearer token ended while the request was in progress, so its outcome is unknown; read the state with a new token";
    v1::Problem { field: "authorization".into(), ..v1::Problem::of(Code::Indeterminate, message) }
}

/// Resolves when the peer of a TLS connection no longer belongs here.
async fn membership_end(membership: Option<Arc<Membership>>) -> MembershipEnd {
    match membership {
        Some(membership) => membership.watch().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A request arrived on a connection that was just closed for being idle.
fn closed_as_idle() -> v1::Problem {
    v1::Problem::of(
        Code::Unavailable,
        "the connection was idle and is closed; nothing happened, retry on a new connection",
    )
}

/// Ends an HTTP/1 connection with this response.
pub(super) fn close_after(response: &mut Response, version: Version) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}
