//! The accept loop and the HTTP/1 and HTTP/2 setup of connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use leasehold_wire::{Code, v1};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::body_limit::{BodyBudget, ConnectionBodies};
use super::connection_activity::GuardedBody;
use super::connection_counts::{ConnectionCounts, ConnectionRefusal, CountedRequest, CountedServer};
use super::connection_deadlines::{Connection, IdleTimeout};
use super::connection_limit::ConnectionLimit;
use super::grpc_requests::{SESSION_PATH, is_grpc, problem_response};
use super::identity_traffic::{IdentityTraffic, TrafficLimiter};
use super::limits::{CONNECTION_WINDOW, MAX_HEAD_BYTES, MAX_STREAMS, SEND_BUFFER, STREAM_WINDOW, TransportLimits};
use super::message_meter::MeteredBody;
use super::peer_network::network_of;
use super::peer_stream::PeerStream;
use super::rate_limit::{ConnectionRate, RateLimit, RequestRate};
use super::request_identity::{Confidentiality, RequestIdentities};
use super::tls::{
    HANDSHAKE_TIMEOUT, HandshakeLimit, Membership, MembershipEnd, PendingHandshake, TlsHandle, accept, read_hello,
};
use super::unix_socket::{SocketListener, peer_identity};
use crate::bearer::{BearerError, BearerVerifier, PresentedBearer};
use crate::identity::{self, Identity, Via};
use crate::metrics::Metrics;

/// Idle time of an HTTP/2 peer before it is pinged, and time for it to reply.
const PING: Duration = Duration::from_secs(20);
/// Connections above a limit that are open at the same time: for health checks, for a request of an identity that is below its own
/// limit, and for refusals. The longest silent one makes room.
const RESERVED_CONNECTIONS: usize = 64;
/// Time for such a connection to send a request and to read the reply; longer than a readiness check takes.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Paths that are served above every limit.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/readyz"];
/// Pause after a failed accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for a connection whose peer no longer belongs here to receive its outstanding replies.
const END_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Who a peer without a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainIdentity {
    /// A user of this machine, on a server without access rules.
    Local,
    /// Unknown.
    Anonymous,
}

/// What connections are accepted on.
#[derive(Clone)]
pub(super) struct Sockets {
    pub tcp: Arc<TcpListener>,
    pub unix: Option<Arc<SocketListener>>,
    pub plain: PlainIdentity,
}

/// What the accept loop needs.
pub(super) struct HttpServer {
    pub sockets: Sockets,
    pub tls: Option<Arc<TlsHandle>>,
    /// Bearer tokens that requests may present.
    pub bearers: Option<Arc<BearerVerifier>>,
    pub handshakes: Arc<HandshakeLimit>,
    pub router: Router,
    pub metrics: Arc<Metrics>,
    pub limits: TransportLimits,
    pub connection_limit: Arc<ConnectionLimit>,
    pub rate_limit: Arc<RateLimit>,
    pub idle_timeout: Arc<IdleTimeout>,
    pub body_budget: BodyBudget,
    pub traffic: Arc<TrafficLimiter>,
}

/// A new connection.
enum AcceptedStream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// A connection whose peer is known.
struct KnownPeer {
    stream: PeerStream,
    identity: Arc<Identity>,
    confidentiality: Confidentiality,
    rate: Arc<ConnectionRate>,
    /// Whether the peer of a TLS connection still belongs here.
    membership: Option<Arc<Membership>>,
    /// Whether HTTP/2 was chosen in the handshake.
    is_http2: bool,
}

/// Serves until the shutdown begins, and then until the last connection is closed. Later connections wait in the socket's backlog
/// as long as the socket exists.
pub(super) async fn serve(server: HttpServer, mut phase: watch::Receiver<ShutdownPhase>) {
    // Each connection holds a receiver: when all are gone, the last connection is closed.
    let (open, receiver) = watch::channel(());
    let counted =
        CountedServer { limit: server.connection_limit.clone(), metrics: server.metrics.clone(), log: Arc::default() };
    let server = Arc::new(Connections {
        counted,
        reserve: ConnectionLimit::new(RESERVED_CONNECTIONS),
        phase: phase.clone(),
        open: receiver,
        refusals: RefusalLog::default(),
        bearer_refusals: RefusalLog::default(),
        server,
    });
    loop {
        let accepted = tokio::select! {
            accepted = server.accept() => accepted,
            // The sender is dropped with the server; that begins the shutdown too.
            _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Draining) => break,
        };
        match accepted {
            Ok(stream) => server.identify(stream),
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(server);
    open.closed().await;
}

/// The accept loop's state, shared with the tasks of its connections.
struct Connections {
    server: HttpServer,
    counted: CountedServer,
    /// Connections above a limit.
    reserve: Arc<ConnectionLimit>,
    phase: watch::Receiver<ShutdownPhase>,
    open: watch::Receiver<()>,
    refusals: RefusalLog,
    bearer_refusals: RefusalLog,
}

impl Connections {
    async fn accept(&self) -> io::Result<AcceptedStream> {
        let Sockets { tcp, unix, .. } = &self.server.sockets;
        let unix = async {
            match unix {
                Some(unix) => unix.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = tcp.accept() => accepted.map(|(stream, peer)| AcceptedStream::Tcp(stream, peer)),
            accepted = unix => accepted.map(AcceptedStream::Unix),
        }
    }

    /// Finds out who the peer is, then serves its connection.
    fn identify(self: &Arc<Self>, stream: AcceptedStream) {
        let server = &self.server;
        let (stream, identity, confidentiality, rate) = match (stream, &server.tls) {
            (AcceptedStream::Tcp(stream, peer), Some(tls)) => {
                return match server.handshakes.register(network_of(peer.ip())) {
                    Some(pending) => {
                        tokio::spawn(self.clone().handshake(stream, peer, tls.clone(), pending));
                    }
                    None => {
                        server.metrics.tls().handshake("limit");
                        self.refusals.log(peer, "refused, because too many are unfinished");
                    }
                };
            }
            (AcceptedStream::Tcp(stream, peer), None) => {
                let identity = match server.sockets.plain {
                    PlainIdentity::Local => Identity::local(Some(peer)),
                    PlainIdentity::Anonymous => Identity::anonymous(Some(peer)),
                };
                let confidentiality = Confidentiality::of_plain(peer.ip());
                (PeerStream::Tcp(stream), identity, confidentiality, server.rate_limit.connection(peer.ip()))
            }
            (AcceptedStream::Unix(stream), _) => match peer_identity(&stream) {
                Ok((uid, identity)) => {
                    let rate = server.rate_limit.user_connection(uid);
                    (PeerStream::Unix(stream), identity, Confidentiality::Local, rate)
                }
                Err(error) => return tracing::warn!(%error, "cannot identify the peer of the unix socket"),
            },
        };
        let identity = Arc::new(identity);
        self.admit(KnownPeer { stream, identity, confidentiality, rate, membership: None, is_http2: false });
    }

    /// Performs a handshake within its limits. Only a peer that has proved its identity counts as a connection (A16), unless its
    /// requests may prove it with bearer tokens.
    async fn handshake(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        tls: Arc<TlsHandle>,
        pending: PendingHandshake,
    ) {
        let handshake = async {
            let hello = read_hello(stream).await?;
            let permits = pending.begin().await;
            let accepted = accept(hello, &tls, peer).await;
            drop(permits);
            accepted
        };
        let mut phase = self.phase.clone();
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake) => accepted,
            () = pending.displaced() => {
                self.server.metrics.tls().handshake("limit");
                return self.refusals.log(peer, "closed for a newer connection, because too many are unfinished");
            }
            _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Draining) => return,
        };
        drop(pending);
        let metrics = self.server.metrics.tls();
        match accepted {
            Ok(Ok(accepted)) => {
                metrics.handshake("ok");
                self.admit(KnownPeer {
                    stream: PeerStream::Tls(Box::new(accepted.stream)),
                    identity: Arc::new(accepted.identity),
                    confidentiality: Confidentiality::Encrypted,
                    rate: self.server.rate_limit.connection(peer.ip()),
                    membership: accepted.membership,
                    is_http2: accepted.is_http2,
                });
            }
            Ok(Err(error)) => {
                metrics.handshake(error.word());
                self.refusals.log(peer, &error.to_string());
            }
            Err(_) => {
                metrics.handshake("timeout");
                self.refusals.log(peer, "no handshake in time");
            }
        }
    }

    /// Counts and logs a request without an accepted identity.
    fn refuse_bearer(&self, connection: &Identity, error: BearerError, grpc: bool) -> Response {
        let problem = error.problem();
        self.server.metrics.rejections().problem(&problem);
        if let Some(unlogged) = self.bearer_refusals.admit() {
            let (principal, reason) = (&*connection.principal, &*problem.reason);
            tracing::info!(principal, peer = connection.peer_text(), reason, unlogged, "bearer token refused");
        }
        problem_response(problem, grpc)
    }

    /// Serves a connection. Above a limit it gets a place in the reserve for a short time.
    fn admit(self: &Arc<Self>, peer: KnownPeer) {
        let HttpServer { limits, metrics, idle_timeout, body_budget, router, traffic, bearers, .. } = &self.server;
        let KnownPeer { stream, identity, confidentiality, rate, membership, is_http2 } = peer;
        let stream = Connection::new(stream, *limits, idle_timeout.clone(), metrics.clone());
        let activity = stream.activity().clone();
        if identity.via != Via::Anonymous {
            activity.set_known();
        }
        let of_identity = traffic.of(&identity);
        let counts = ConnectionCounts::new(activity.clone(), self.counted.clone());
        let admitted = counts.admit(&identity, of_identity.as_ref());
        if let Err(refusal) = admitted {
            match self.reserve.try_acquire(&activity) {
                Some(permit) => counts.keep_in_reserve(permit),
                None => return metrics.rejections().limit(refusal.limit()),
            }
        }
        let rate = RequestRate::new(rate, traffic.clone(), identity.clone(), of_identity.clone());
        let limits = ConnectionLimits {
            rate,
            bodies: body_budget.connection(of_identity.clone()),
            traffic: of_identity,
            counts: counts.clone(),
        };
        let served = serve_connection(ServedConnection {
            stream,
            identities: RequestIdentities { connection: identity, confidentiality, bearers: bearers.clone() },
            shared: self.clone(),
            router: router.clone(),
            limits,
            membership,
            is_http2,
            phase: self.phase.clone(),
        });
        let (mut phase, open) = (self.phase.clone(), self.open.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                () = activity.closed() => {}
                () = counts.not_admitted(RESERVE_TIMEOUT), if admitted.is_err() => {}
                _ = phase.wait_for(|phase| *phase >= ShutdownPhase::Abort) => {}
            }
            counts.close();
            drop(open);
        });
    }

    /// Finds the identity of a request and what it counts for, or a refusal.
    fn prepare(
        &self,
        request: &mut Request<Incoming>,
        identities: &RequestIdentities,
        limits: &ConnectionLimits,
    ) -> Result<PreparedRequest, Box<Response>> {
        let grpc = is_grpc(request.headers());
        let identified = identities.of(request.headers_mut());
        let (identity, bearer) = identified.map_err(|error| match limits.rate.check() {
            Ok(()) => Box::new(self.refuse_bearer(&identities.connection, error, grpc)),
            // A refused request counts like any other.
            Err(problem) => Box::new(problem_response(*problem, grpc)),
        })?;
        let ConnectionLimits { rate, bodies, traffic, counts } = limits;
        let is_of_connection = Arc::ptr_eq(&identity, &identities.connection);
        let (rate, bodies, traffic) = if is_of_connection {
            (rate.clone(), bodies.clone(), traffic.clone())
        } else {
            let traffic = self.server.traffic.of(&identity);
            (rate.of_identity(identity.clone(), traffic.clone()), bodies.of_identity(traffic.clone()), traffic)
        };
        let is_health_check = HEALTH_PATHS.contains(&request.uri().path());
        let counted = if is_health_check {
            None
        } else {
            let counted = counts.begin_request(&identity, traffic.as_ref());
            Some(counted.map_err(|refusal| Box::new(self.refuse_connection(refusal, request, grpc)))?)
        };
        request.extensions_mut().insert(rate);
        request.extensions_mut().insert(bodies.clone());
        Ok(PreparedRequest { identity, bearer, bodies, counted })
    }

    /// Counts a request of a connection that is above a limit.
    fn refuse_connection(&self, refusal: ConnectionRefusal, request: &Request<Incoming>, grpc: bool) -> Response {
        let problem = refusal.problem();
        self.server.metrics.rejections().problem(&problem);
        let mut response = problem_response(problem, grpc);
        close_after(&mut response, request.version());
        response
    }
}

/// Ends an HTTP/1 connection with this response.
fn close_after(response: &mut Response, version: Version) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// A request whose identity is known and that is within the limits on connections.
struct PreparedRequest {
    identity: Arc<Identity>,
    bearer: Option<Arc<PresentedBearer>>,
    bodies: Arc<ConnectionBodies>,
    /// None for a health check, which counts for no one.
    counted: Option<CountedRequest>,
}

/// Limits lines about refused handshakes or tokens to one per second; metrics count all.
#[derive(Default)]
struct RefusalLog {
    /// Second of the last line, since 1970.
    last: AtomicU64,
    unlogged: AtomicU64,
}

impl RefusalLog {
    fn log(&self, peer: SocketAddr, reason: &str) {
        if let Some(unlogged) = self.admit() {
            tracing::info!(%peer, reason, unlogged, "tls handshake failed");
        }
    }

    /// The number of refusals that were not logged since the last line, if a line is due now.
    fn admit(&self) -> Option<u64> {
        let second = crate::clock::now().wall.0 / 1_000;
        if self.last.swap(second, Ordering::Relaxed) != second {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// The limits of one connection, for requests of the identity of its peer.
#[derive(Clone)]
struct ConnectionLimits {
    rate: RequestRate,
    bodies: Arc<ConnectionBodies>,
    traffic: Option<Arc<IdentityTraffic>>,
    counts: Arc<ConnectionCounts>,
}

/// A connection and everything that its requests need.
struct ServedConnection {
    stream: Connection,
    identities: RequestIdentities,
    shared: Arc<Connections>,
    router: Router,
    limits: ConnectionLimits,
    membership: Option<Arc<Membership>>,
    is_http2: bool,
    phase: watch::Receiver<ShutdownPhase>,
}

/// Serves one connection until it ends.
async fn serve_connection(connection: ServedConnection) {
    let ServedConnection { stream, identities, shared, router, limits, membership, is_http2, mut phase } = connection;
    let (stats, activity) = (stream.peer_stats(), stream.activity().clone());
    let (who, belongs) = (identities.connection.clone(), membership.clone());
    let handle = move |mut request: Request<Incoming>| {
        let (guard, router) = (activity.begin(), router.clone());
        let (grpc, version) = (is_grpc(request.headers()), request.version());
        let checked = membership.as_ref().map_or(Ok(()), |membership| membership.check());
        let prepared = match (&guard, checked) {
            (None, _) => Err(Box::new(problem_response(closed_as_idle(), grpc))),
            (_, Err(end)) => Err(Box::new(problem_response(end.problem(), grpc))),
            (Some(_), Ok(())) => shared.prepare(&mut request, &identities, &limits),
        };
        let (activity, membership, counts) = (activity.clone(), membership.clone(), limits.counts.clone());
        async move {
            let PreparedRequest { identity, bearer, bodies, counted } = match prepared {
                Ok(prepared) => prepared,
                Err(refusal) => return Ok(*refusal),
            };
            let request = request.map(Body::new);
            // Other bodies are read as a whole, and charged then.
            let is_session = request.uri().path() == SESSION_PATH;
            let request =
                if is_session { request.map(|body| Body::new(MeteredBody::new(body, bodies))) } else { request };
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
