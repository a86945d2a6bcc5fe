//! The accept loop: who a peer is, and which connections and requests are within the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use super::body_limit::{BodyBudget, ConnectionBodies};
use super::connection_counts::{ConnectionCounts, ConnectionRefusal, CountedServer};
use super::connection_deadlines::{Connection, IdleTimeout};
use super::connection_limit::ConnectionLimit;
use super::grpc_detection::{HEALTH_CHECK_PATH, is_grpc, problem_response};
use super::identity_traffic::{IdentityTraffic, TrafficLimiter};
use super::limits::TransportLimits;
use super::peer_network::network_of;
use super::peer_stream::PeerStream;
use super::rate_limit::{ConnectionRate, RateLimit, RequestRate};
use super::request_identity::{Confidentiality, RequestIdentities};
use super::served_connection::{PreparedRequest, ServedConnection, close_after, serve_connection};
use super::shutdown_phase::ShutdownPhase;
use super::tls::{HANDSHAKE_TIMEOUT, HandshakeLimit, Membership, PendingHandshake, TlsHandle, accept, read_hello};
use super::unix_socket::{SocketListener, peer_identity};
use crate::bearer::{BearerError, BearerVerifier};
use crate::identity::{Identity, Via};
use crate::metrics::Metrics;

/// Connections above a limit that are open at the same time: for health checks, for a request of an identity that is below its own
/// limit, and for refusals. The longest silent one makes room.
const RESERVED_CONNECTIONS: usize = 64;
/// Time for such a connection to send a request and to read the reply; longer than a readiness check takes.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Paths that are served above every limit.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/readyz", HEALTH_CHECK_PATH];
/// Pause after a failed accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
        let identities = RequestIdentities { connection: identity.clone(), confidentiality, bearers: bearers.clone() };
        let shared = self.clone();
        let served = serve_connection(ServedConnection {
            stream,
            who: identity.clone(),
            prepare: Box::new(move |request| shared.prepare(request, &identities, &limits)),
            counts: counts.clone(),
            router: router.clone(),
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
struct ConnectionLimits {
    rate: RequestRate,
    bodies: Arc<ConnectionBodies>,
    traffic: Option<Arc<IdentityTraffic>>,
    counts: Arc<ConnectionCounts>,
}
