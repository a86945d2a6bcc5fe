//! Connections to the proxy: HTTP/1 and HTTP/2 on one port, with a connection limit and graceful shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt};

use super::upstream::{ProxyBody, Upstream};
use crate::http::{Fence, FenceService};

/// Time limit for the head of a request, and for a reply to an HTTP/2 ping.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Maximum number of concurrent streams of an HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Health of the proxy, independent of the service.
const HEALTH_PATH: &str = "/-/healthz";
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts connections until `shutdown` completes, and then waits for open requests, at most `drain_timeout`.
pub(super) async fn serve(
    listener: TcpListener,
    fence: &Fence,
    upstream: Upstream,
    max_connections: usize,
    shutdown: impl Future<Output = ()>,
    drain_timeout: Duration,
) {
    let service = fence.layer().layer(upstream);
    let limit = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // Above the limit the connection is closed without a reply.
                let Ok(permit) = limit.clone().try_acquire_owned() else { continue };
                let connection = serve_connection(stream, service.clone(), &graceful);
                tokio::spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("open requests did not complete within {drain_timeout:?}, aborting them");
    }
}

/// Serves one connection until it is closed.
fn serve_connection(
    stream: TcpStream,
    service: FenceService<Upstream>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES as usize);
    let http2 = &mut builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEADER_BYTES);
    http2.keep_alive_interval(HEADER_TIMEOUT).keep_alive_timeout(HEADER_TIMEOUT);
    let watcher = graceful.watcher();
    async move {
        let handler = service_fn(move |request| handle(service.clone(), request));
        let connection = builder.serve_connection(TokioIo::new(stream), handler);
        // A broken connection needs no handling: its requests are settled when they are dropped.
        let _ = watcher.watch(connection).await;
    }
}

async fn handle(
    service: FenceService<Upstream>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    if request.method() == Method::GET && request.uri().path() == HEALTH_PATH {
        let body = Full::new(Bytes::from_static(b"ok\n"));
        return Ok(Response::new(body.map_err(|never| match never {}).boxed_unsync()));
    }
    Ok(service.oneshot(request).await?.map(BodyExt::boxed_unsync))
}
