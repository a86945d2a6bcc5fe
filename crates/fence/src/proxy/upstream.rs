//! Client of the fenced service: forwards requests, streams bodies in both directions, and reports broken connections.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderMap,
    HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri, Version};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpStream;

use super::connection_deadlines::TimedBody;
use crate::http::{FenceProblem, LEASE_TOKEN, RequestBody, UpstreamOutcome};

/// The body of a response: of the service, or of an error response of the proxy.
pub(super) type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Time limit for a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long idle connections are reused. It is shorter than the idle timeout of services: a request on a connection that was
/// just closed has an unknown outcome.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Hop-by-hop headers, which are not forwarded.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "proxy-authenticate", "transfer-encoding", "upgrade", "trailer"];

/// Headers that a request cannot declare as hop-by-hop: without them the service would read another request.
const END_TO_END: [HeaderName; 7] =
    [HOST, CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, AUTHORIZATION, COOKIE, HeaderName::from_static(LEASE_TOKEN)];

/// The address of the service, written as `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl(Authority);

impl UpstreamUrl {
    /// Host and port.
    pub(super) fn authority(&self) -> &str {
        self.0.as_str()
    }

    /// The first address to which the host resolves; `0.0.0.0:0` if it does not.
    pub(super) fn address(&self) -> SocketAddr {
        let found = self.0.as_str().to_socket_addrs().ok().and_then(|mut all| all.next());
        found.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl FromStr for UpstreamUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "not http://HOST:PORT; write for example http://127.0.0.1:8080";
        let uri: Uri = text.parse().map_err(|_| SHAPE)?;
        let parts = uri.into_parts();
        if parts.scheme == Some(Scheme::HTTPS) {
            return Err("TLS to the service is not supported; run the proxy next to the service and use http://");
        }
        let bare = parts.path_and_query.is_none_or(|path| path == "/");
        let authority =
            parts.authority.filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'));
        match (parts.scheme, bare, authority) {
            (Some(scheme), true, Some(authority)) if scheme == Scheme::HTTP => Ok(Self(authority)),
            _ => Err(SHAPE),
        }
    }
}

type ForwardedBody = RequestBody<TimedBody>;

/// A client of the service.
#[derive(Clone)]
pub(super) struct Upstream {
    url: UpstreamUrl,
    http1: Client<HttpConnector, ForwardedBody>,
    /// For gRPC, which requires HTTP/2.
    http2: Client<HttpConnector, ForwardedBody>,
}

impl Upstream {
    pub(super) fn new(url: UpstreamUrl) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        let http1 = builder.build(connector.clone());
        let http2 = builder.http2_only(true).build(connector);
        Self { url, http1, http2 }
    }

    /// Connects to the service once.
    pub(super) async fn check_reachable(&self) -> std::io::Result<()> {
        let connecting = TcpStream::connect(self.url.0.as_str().to_owned());
        tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        Ok(())
    }

    /// Forwards a request. If the service does not reply, returns an error response with what is known about the outcome.
    async fn forward(self, mut request: Request<ForwardedBody>) -> Response<ProxyBody> {
        let grpc = is_grpc(request.headers());
        if request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE) {
            let detail = "upgrade: another protocol cannot be fenced; send the request without an upgrade";
            return problem_response(
                FenceProblem::new("INVALID_ARGUMENT", detail).with_field("upgrade", "not forwarded"),
                grpc,
                UpstreamOutcome::NotSent,
            );
        }
        if names_in_connection(request.headers()).any(|name| END_TO_END.contains(&name)) {
            let detail =
                "connection: it lists a header that is for the service; send the request without it in the list";
            return problem_response(
                FenceProblem::new("INVALID_ARGUMENT", detail).with_field("connection", "end-to-end header"),
                grpc,
                UpstreamOutcome::NotSent,
            );
        }
        let version = if grpc { Version::HTTP_2 } else { Version::HTTP_11 };
        if let Err(problem) = self.readdress(&mut request, version) {
            return problem_response(problem, grpc, UpstreamOutcome::NotSent);
        }
        let client = if grpc { &self.http2 } else { &self.http1 };
        match client.request(request).await {
            Ok(mut response) => {
                strip_hop_by_hop(response.headers_mut(), false);
                *response.version_mut() = Version::HTTP_11;
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
            Err(error) if was_not_sent(&error) => {
                let detail = format!("{} is unreachable; nothing changed, retry later", self.url);
                problem_response(
                    FenceProblem::new("UNAVAILABLE", detail).with_retry_after(CONNECT_TIMEOUT),
                    grpc,
                    UpstreamOutcome::NotSent,
                )
            }
            Err(error) if is_invalid_body(&error) => {
                // The service may have received a part of it, so that its outcome is unknown to the fence.
                let detail =
                    "body: it is malformed, and the service received a part of it at most; send a well-formed body";
                let problem = FenceProblem::new("INVALID_ARGUMENT", detail).with_field("body", "malformed");
                problem_response(problem, grpc, UpstreamOutcome::Unknown)
            }
            Err(error) => {
                tracing::warn!("connection to {} broke, outcome unknown: {}", self.url, root_cause(&error));
                let detail =
                    format!("the connection to {} broke; read there whether the request was applied", self.url);
                problem_response(FenceProblem::new("INDETERMINATE", detail), grpc, UpstreamOutcome::Unknown)
            }
        }
    }

    /// Changes the address and the headers of a request, for the service.
    fn readdress(&self, request: &mut Request<ForwardedBody>, version: Version) -> Result<(), FenceProblem> {
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.url.0.clone()).path_and_query(path).build();
        let invalid = || {
            FenceProblem::new("INVALID_ARGUMENT", "path: it cannot be forwarded; send a plain path")
                .with_field("path", "shape")
        };
        *request.uri_mut() = uri.map_err(|_| invalid())?;
        *request.version_mut() = version;
        // The HTTP library drops the body of a GET or HEAD whose length is unknown, unless its encoding is declared.
        let chunked = version == Version::HTTP_11
            && [Method::GET, Method::HEAD].contains(request.method())
            && !request.body().is_end_stream()
            && request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        strip_hop_by_hop(headers, version == Version::HTTP_2);
        headers.remove(EXPECT);
        if chunked {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        match (version, host) {
            // In HTTP/2 the host is part of the address.
            (Version::HTTP_2, _) => drop(headers.remove(HOST)),
            // A host in the address overrides the header, which was not checked.
            (_, Some(host)) => {
                if let Ok(host) = HeaderValue::from_str(&host) {
                    headers.insert(HOST, host);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl tower::Service<Request<ForwardedBody>> for Upstream {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ProxyBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ForwardedBody>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { Ok(upstream.forward(request).await) })
    }
}

pub(super) fn problem_response(problem: FenceProblem, grpc: bool, outcome: UpstreamOutcome) -> Response<ProxyBody> {
    let mut response =
        problem.into_response::<http_body_util::Empty<Bytes>>(grpc).map(|body| body.map_err(Into::into).boxed_unsync());
    response.extensions_mut().insert(outcome);
    response
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether the request certainly was not sent: there was no connection.
fn was_not_sent(error: &Error) -> bool {
    error.is_connect()
}

/// Whether the client's own body was malformed. A body that the proxy aborts, because of its time limits, is not.
fn is_invalid_body(error: &Error) -> bool {
    let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut is_of_body = false;
    while let Some(error) = inner {
        let http: Option<&hyper::Error> = error.downcast_ref();
        if is_of_body && http.is_some() {
            return true;
        }
        is_of_body = http.is_some_and(hyper::Error::is_user);
        inner = error.source();
    }
    false
}

/// The innermost error. The outer ones add no information.
fn root_cause(error: &Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// The headers that `Connection` declares as hop-by-hop.
fn names_in_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| HeaderName::from_str(name.trim()).ok())
}

/// Removes hop-by-hop headers. With `keep_trailers`, `te: trailers` is kept, which gRPC requires.
fn strip_hop_by_hop(headers: &mut HeaderMap, keep_trailers: bool) {
    for name in names_in_connection(headers).collect::<Vec<_>>() {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    let keep_te = keep_trailers && headers.get(TE).is_some_and(|value| value == "trailers");
    if !keep_te {
        headers.remove(TE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_url_has_a_host_and_a_port_only() {
        assert_eq!(
            "http://127.0.0.1:80".parse::<UpstreamUrl>().map(|url| url.to_string()).as_deref(),
            Ok("http://127.0.0.1:80")
        );
        for bad in ["127.0.0.1:80", "http://host", "http://h:1/path", "ftp://h:1", "http://u@h:1", "https://h:1", ""] {
            assert!(bad.parse::<UpstreamUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hop_by_hop_headers_and_those_listed_in_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, x-mine"), ("x-mine", "1"), ("te", "trailers"), ("x-other", "2")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut plain = headers.clone();
        strip_hop_by_hop(&mut plain, false);
        assert_eq!(plain.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
        strip_hop_by_hop(&mut headers, true);
        assert!(headers.contains_key("te") && !headers.contains_key("x-mine"));
    }
}
