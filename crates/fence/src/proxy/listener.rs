//! Connections to the proxy: HTTP/1 and HTTP/2 on one port, with a connection limit, deadlines and graceful shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, ServiceExt};

use super::ProxyConfig;
use super::connection_deadlines::{BODY_TIMEOUT, ClientConnection, TimedBody};
use super::upstream::{ProxyBody, Upstream, is_grpc, problem_response};
use super::web_origin;
use crate::http::{CLAIM_GRPC_PATH, CLAIM_PATH, Fence, FenceService, PROBE_METHOD, UpstreamOutcome};

/// Time limit for a reply to an HTTP/2 ping, and between pings.
const PING: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Maximum number of concurrent streams of an HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Health of the proxy, independent of the service.
const HEALTH_PATH: &str = "/-/healthz";
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// File descriptors that are not for connections: mark files, the metrics listener and its connections.
const RESERVED_DESCRIPTORS: u64 = 128;

/// Accepts connections until `shutdown` completes, and then waits for open requests, at most `drain_timeout`.
pub(super) async fn serve(
    listener: TcpListener,
    fence: &Fence,
    upstream: Upstream,
    config: &ProxyConfig,
    shutdown: impl Future<Output = ()>,
) {
    let service = fence.layer().layer(upstream);
    let limit = Arc::new(Semaphore::new(max_connections(config.max_connections)));
    let graceful = GracefulShutdown::new();
    let header_timeout = config.header_timeout;
    let hosts: Arc<[String]> = config.hosts.clone().into();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, permit) = tokio::select! {
            accepted = accept(&listener, &limit) => accepted,
            () = &mut shutdown => break,
        };
        let (service, hosts, watcher) = (service.clone(), hosts.clone(), graceful.watcher());
        tokio::spawn(async move {
            let handler = service_fn(move |request| handle(service.clone(), hosts.clone(), request));
            let builder = http_builder(header_timeout);
            let connection =
                builder.serve_connection(TokioIo::new(ClientConnection::new(stream, header_timeout)), handler);
            // A broken connection needs no handling: its requests are settled when they are dropped.
            let _ = watcher.watch(connection).await;
            drop(permit);
        });
    }
    drop(listener);
    let drain_timeout = config.drain_timeout;
    if tokio::time::timeout(drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("open requests did not complete within {drain_timeout:?}, aborting them");
    }
}

/// The next connection within the limit. Others are closed without a reply.
pub(super) async fn accept(listener: &TcpListener, limit: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Ok(permit) = limit.clone().try_acquire_owned() {
                    return (stream, permit);
                }
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// HTTP/1 and HTTP/2 with limits.
pub(super) fn http_builder(header_timeout: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(MAX_HEADER_BYTES as usize);
    let http2 = &mut builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEADER_BYTES);
    http2.keep_alive_interval(PING).keep_alive_timeout(PING);
    builder
}

/// The configured limit, or a lower one if the process may not open as many files: each connection may need another to the
/// service.
fn max_connections(configured: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let available = usize::try_from(descriptors.saturating_sub(RESERVED_DESCRIPTORS) / 2).unwrap_or(usize::MAX).max(1);
    if available < configured {
        tracing::info!("at most {available} connections, because the process may open {descriptors} files");
    }
    configured.min(available).min(Semaphore::MAX_PERMITS)
}

async fn handle(
    service: FenceService<Upstream>,
    hosts: Arc<[String]>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    let path = request.uri().path();
    if request.method() == Method::GET && path == HEALTH_PATH {
        let body = Full::new(Bytes::from_static(b"ok\n"));
        return Ok(Response::new(body.map_err(|never| match never {}).boxed_unsync()));
    }
    // The service has its own policy for other origins. Claims and probes are requests to the proxy itself.
    let is_own = path == CLAIM_PATH || path == CLAIM_GRPC_PATH || request.method().as_str() == PROBE_METHOD;
    let checked = web_origin::check_host(&request, &hosts, hosts.is_empty())
        .and_then(|()| if is_own { web_origin::check_origin(&request) } else { Ok(()) });
    if let Err(problem) = checked {
        return Ok(problem_response(problem, is_grpc(request.headers()), UpstreamOutcome::NotSent));
    }
    let timeout = (request.version() < Version::HTTP_2).then_some(BODY_TIMEOUT);
    let request = request.map(|body| TimedBody::new(body, timeout));
    Ok(service.oneshot(request).await?.map(BodyExt::boxed_unsync))
}
