//! Connections to the fence: HTTP/1 and HTTP/2 on one port, bounded, and ended when what they asked is answered.

use std::future::Future;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use leasehold_fence::http::{Fence, Fenced};
use leasehold_server::room::Room;
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt};

use super::upstream::{Body, Upstream};

/// By when the head of a request has come.
const HEADER: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_BYTES: u32 = 64 << 10;
/// Streams of one HTTP/2 connection.
const STREAMS: u32 = 128;
/// Says that the fence is up, whatever is behind it.
const HEALTH: &str = "/-/healthz";

/// Serves until asked to stop, and then until what was taken in is answered, within the bound.
pub async fn serve(
    listener: TcpListener,
    fence: &Fence,
    upstream: Upstream,
    connections: usize,
    asked: impl Future<Output = ()>,
    drain: Duration,
) {
    let service = fence.layer().layer(upstream);
    let (room, graceful) = (Room::new(connections), GracefulShutdown::new());
    let mut asked = std::pin::pin!(asked);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut asked => break,
        };
        match stream {
            Ok((stream, _)) => {
                // Beyond the bound nobody is talked to: a closed connection is a clear no.
                let Some(place) = room.enter() else { continue };
                let talk = talk(stream, service.clone(), &graceful);
                tokio::spawn(async move {
                    talk.await;
                    drop(place);
                });
            }
            Err(error) => {
                // A connection that broke while it was made, or no file handle left: the next one may do.
                tracing::warn!("cannot take a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still on their way after {drain:?}; they are cut off");
    }
}

/// One connection, until it ends.
fn talk(stream: TcpStream, service: Fenced<Upstream>, graceful: &GracefulShutdown) -> impl Future<Output = ()> + use<> {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(HEAD_BYTES as usize);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS).max_header_list_size(HEAD_BYTES);
    builder.http2().keep_alive_interval(HEADER).keep_alive_timeout(HEADER);
    let watcher = graceful.watcher();
    async move {
        let answer = service_fn(move |request| answer(service.clone(), request));
        let served = builder.serve_connection(TokioIo::new(stream), answer);
        // A connection ends well or breaks; either way it is over.
        let _ = watcher.watch(served).await;
    }
}

async fn answer(
    service: Fenced<Upstream>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if request.method() == Method::GET && request.uri().path() == HEALTH {
        let well = Full::new(Bytes::from_static(b"ok\n"));
        return Ok(Response::new(well.map_err(|never| match never {}).boxed_unsync()));
    }
    Ok(service.oneshot(request).await?.map(BodyExt::boxed_unsync))
}
