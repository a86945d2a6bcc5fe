//! One port for everything: gRPC, HTTP, health and figures, with a bound on all that a connection may cost.

mod body;
mod connection;
mod elsewhere;
mod paced;
mod refused;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use leasehold_wire::v1::leasehold_server::LeaseholdServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::api::{Api, Calls};
use crate::meter::Meter;
use crate::pace::{Pace, Walk};
use crate::room::Room;
use connection::Connection;

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections that are open at the same time.
    pub connections: usize,
    /// Requests a second of one connection, if they are bounded.
    pub request_rate: Option<u32>,
    /// By when the head of a request has come, and the next one's on a connection that is kept.
    pub header_timeout: Duration,
    /// By when its body has come, or the first message of a stream.
    pub body_timeout: Duration,
    /// How long a peer may leave what it is sent unread.
    pub write_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            request_rate: None,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Streams of one HTTP/2 connection.
pub const STREAMS: u32 = 128;
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// A peer on HTTP/2 that is silent for so long is asked whether it is there, and has as long to answer.
const PING: Duration = Duration::from_secs(20);
/// Connections beyond the bound that are told so at the same time; the others are closed at once.
const TOLD_TO_GO: usize = 64;
/// How long such a one may take to ask, and to hear it.
const GO: Duration = Duration::from_secs(2);

/// Whether the doors are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doors {
    /// Everybody may come in.
    Open,
    /// Nobody comes in, and whoever is inside is told what is left to tell.
    Closing,
    /// Nobody is inside any more.
    Cut,
}

/// Serves until told to close, and then until everybody has left. Whoever comes later waits at the listener, for as long as
/// somebody has it.
pub async fn serve(
    listener: Arc<TcpListener>,
    inside: Router,
    meter: Arc<Meter>,
    bounds: Bounds,
    room: Arc<Room>,
    pace: Arc<Pace>,
    mut doors: watch::Receiver<Doors>,
) {
    let anteroom = Room::new(TOLD_TO_GO);
    let outside = refused::full(room.clone(), meter.clone());
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            // The sender goes away with the server; that closes the doors too.
            _ = doors.wait_for(|doors| *doors >= Doors::Closing) => break,
        };
        let (stream, _) = match stream {
            Ok(accepted) => accepted,
            Err(error) => {
                // A connection that broke while it was made, or no file handle left: the next one may do.
                tracing::warn!("cannot take a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Some(place) = room.enter() {
            let stream = Connection::new(stream, bounds, meter.clone());
            let talk = talk(stream, inside.clone(), bounds, pace.walk(), graceful.watcher());
            let open = meter.open();
            let mut doors = doors.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = talk => {}
                    _ = doors.wait_for(|doors| *doors >= Doors::Cut) => {}
                }
                drop((place, open));
            });
        } else if let Some(place) = anteroom.enter() {
            let stream = Connection::new(stream, bounds, meter.clone());
            let talk = talk(stream, outside.clone(), bounds, pace.walk(), graceful.watcher());
            tokio::spawn(async move {
                // Whoever does not ask within it is told nothing.
                let _ = tokio::time::timeout(GO, talk).await;
                drop(place);
            });
        } else {
            meter.refused().limit("connections");
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// One connection, until it ends.
async fn talk(stream: Connection, router: Router, bounds: Bounds, walk: Arc<Walk>, watcher: Watcher) {
    let answer = move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(walk.clone());
        router.clone().oneshot(request.map(Body::new))
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(bounds.header_timeout).max_buf_size(4 * HEAD_BYTES);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    builder.http2().max_concurrent_streams(STREAMS).max_header_list_size(HEAD_BYTES as u32);
    let manners = stream.manners();
    let served = builder.serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
    // A connection ends well or breaks; either way it is over.
    if let Err(error) = watcher.watch(served).await {
        manners.missed(&*error);
    }
}

/// Everything that is served.
pub fn router(api: Api, bounds: Bounds) -> Router {
    let calls = LeaseholdServer::new(Calls(api.clone(), bounds.body_timeout))
        .max_decoding_message_size(leasehold_wire::MESSAGE_BYTES)
        .max_encoding_message_size(4 * leasehold_wire::MESSAGE_BYTES);
    let grpc = tonic::service::Routes::new(calls).into_axum_router();
    crate::api::routes()
        .with_state(api.clone())
        .merge(grpc)
        .fallback(refused::unknown)
        .layer(axum::middleware::from_fn_with_state(bounds.body_timeout, body::whole))
        .layer(axum::middleware::from_fn(paced::paced))
        .layer(axum::middleware::from_fn_with_state(api.meter, refused::typed))
}

/// What is served by whoever does not lead: it says who does, and lets look whoever asks for that.
pub fn aside(api: Api, bounds: Bounds, leader: watch::Receiver<Option<String>>) -> Router {
    elsewhere::routes(api.clone(), router(api, bounds), leader)
}
