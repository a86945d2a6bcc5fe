//! A forwarder for one program that knows nothing of tokens: it adds the token to each request, and passes everything else through.
//!
//! It listens on a free loopback port, and serves only processes of its own user: anyone who reaches it writes with its token. The
//! fence at the service decides; the forwarder checks nothing.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::connection_deadlines::{BODY_TIMEOUT, ClientConnection, TimedBody};
use super::listener::{accept, http_builder};
use super::upstream::{ProxyBody, Upstream, UpstreamUrl, is_grpc, problem_response};
use super::{ProxyError, bind, peer_owner, web_origin};
use crate::http::{FenceProblem, LEASE_TOKEN, RequestBody, UpstreamOutcome, spells};

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 1_000;
/// Time limit for the head of a request, and for the next request of a connection: programs keep connections in pools.
const HEADER_TIMEOUT: Duration = Duration::from_secs(300);

/// A forwarder on a loopback port.
///
/// ```no_run
/// # async fn example(token: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold_fence::proxy::TokenForwarder;
///
/// let forwarder = TokenForwarder::bind("http://127.0.0.1:7422".parse()?, token).await?;
/// println!("write to http://{}", forwarder.address());
/// forwarder.serve(std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct TokenForwarder {
    listener: TcpListener,
    address: SocketAddr,
    route: ForwardRoute,
}

/// Where requests go, and what is added to them.
#[derive(Clone)]
struct ForwardRoute {
    upstream: Upstream,
    host: HeaderValue,
    token: HeaderValue,
}

impl TokenForwarder {
    /// Listens on a free port of 127.0.0.1. A token that cannot be a header is refused.
    pub async fn bind(upstream: UpstreamUrl, token: &str) -> Result<Self, ProxyError> {
        let mut token = HeaderValue::from_str(token).map_err(|_| ProxyError::Token)?;
        token.set_sensitive(true);
        let host = HeaderValue::from_str(upstream.authority()).expect("an authority is visible ASCII");
        let (listener, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        Ok(Self { listener, address, route: ForwardRoute { upstream: Upstream::new(upstream), host, token } })
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards requests until `shutdown` completes. Open requests are aborted then.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let (stream, permit) = tokio::select! {
                accepted = accept(&self.listener, &limit) => accepted,
                () = &mut shutdown => return,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            // A connection of another user is closed without a reply.
            if is_own(&stream) {
                let route = self.route.clone();
                connections.spawn(async move {
                    let handler = service_fn(move |request| route.clone().handle(request));
                    let stream = TokioIo::new(ClientConnection::new(stream, HEADER_TIMEOUT));
                    // A client that disconnects needs no handling.
                    let _ = http_builder(HEADER_TIMEOUT).serve_connection(stream, handler).await;
                    drop(permit);
                });
            }
        }
    }
}

fn is_own(stream: &TcpStream) -> bool {
    let addresses = stream.peer_addr().ok().zip(stream.local_addr().ok());
    addresses.is_some_and(|(peer, local)| peer_owner::is_own_user(peer, local))
}

/// Fails if a request lacks the header that HTTP/1.1 requires.
fn require_host<B>(request: &Request<B>) -> Result<(), FenceProblem> {
    if request.version() != Version::HTTP_11 || request.headers().contains_key(HOST) {
        return Ok(());
    }
    let detail = "host: HTTP/1.1 requires the header; send it with the address of the forwarder";
    Err(FenceProblem::new("INVALID_ARGUMENT", detail).with_field("host", "required"))
}

impl ForwardRoute {
    async fn handle(self, mut request: Request<Incoming>) -> Result<Response<ProxyBody>, Infallible> {
        // A browser of this user may be at a page of anyone.
        let checked = require_host(&request)
            .and_then(|()| web_origin::check_host(&request, &[], false))
            .and_then(|()| web_origin::check_origin(&request));
        if let Err(problem) = checked {
            return Ok(problem_response(problem, is_grpc(request.headers()), UpstreamOutcome::NotSent));
        }
        // The program addresses the forwarder; the service gets its own name.
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        let headers = request.headers_mut();
        // A service that reads `lease_token` as `Lease-Token` would get two tokens.
        let spellings = headers.keys().filter(|name| spells(name.as_str(), LEASE_TOKEN)).cloned();
        for name in spellings.collect::<Vec<_>>() {
            headers.remove(name);
        }
        headers.insert(HOST, self.host);
        headers.insert(HeaderName::from_static(LEASE_TOKEN), self.token);
        let timeout = (request.version() < Version::HTTP_2).then_some(BODY_TIMEOUT);
        let request = request.map(|body| RequestBody::ungated(TimedBody::new(body, timeout)));
        self.upstream.oneshot(request).await
    }
}
