//! The service behind the fence: requests are passed on as they come, bodies stream both ways, and what broke is told.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, Uri, Version};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use leasehold_fence::http::{Carried, Outcome, Problem};
use tokio::net::TcpStream;

/// An answer's body: the service's, or a problem told here.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// How long a connection is tried.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections are kept for less long than any service keeps them: a request on one that was just closed would have an
/// unknown outcome.
const IDLE: Duration = Duration::from_secs(1);
/// What is about one connection only, and not passed on.
const HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "proxy-authenticate", "transfer-encoding", "upgrade", "trailer"];

/// Where the service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url(Authority);

impl Url {
    /// The first address that the name leads to.
    pub fn address(&self) -> SocketAddr {
        let found = self.0.as_str().to_socket_addrs().ok().and_then(|mut all| all.next());
        found.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "not http://HOST:PORT; write it like http://127.0.0.1:8080";
        let uri: Uri = text.parse().map_err(|_| SHAPE)?;
        let parts = uri.into_parts();
        if parts.scheme == Some(Scheme::HTTPS) {
            return Err("the service is reached without TLS; put the fence beside it and write http://");
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

type Passed = Carried<Incoming>;

/// The way to the service.
#[derive(Clone)]
pub struct Upstream {
    url: Url,
    plain: Client<HttpConnector, Passed>,
    /// For gRPC, which is HTTP/2 from end to end.
    multiplexed: Client<HttpConnector, Passed>,
}

impl Upstream {
    pub fn new(url: Url) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        let plain = builder.build(connector.clone());
        let multiplexed = builder.http2_only(true).build(connector);
        Self { url, plain, multiplexed }
    }

    /// Whether somebody listens there.
    pub async fn reached(&self) -> std::io::Result<()> {
        let connecting = TcpStream::connect(self.url.0.as_str().to_owned());
        tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        Ok(())
    }

    /// Passes a request on. What cannot be answered by the service is answered here, and says what is known of it.
    async fn pass(self, mut request: Request<Passed>) -> Response<Body> {
        let grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE) {
            let told = "upgrade: a connection that becomes another protocol cannot be fenced; ask without it";
            return told_here(
                Problem::new("INVALID_ARGUMENT", told).about("upgrade", "not passed on"),
                grpc,
                Outcome::NotBegun,
            );
        }
        let version = if grpc { Version::HTTP_2 } else { Version::HTTP_11 };
        let asked = self.addressed(&mut request, version);
        if let Err(problem) = asked {
            return told_here(problem, grpc, Outcome::NotBegun);
        }
        let client = if grpc { &self.multiplexed } else { &self.plain };
        match client.request(request).await {
            Ok(mut response) => {
                strip(response.headers_mut(), false);
                *response.version_mut() = Version::HTTP_11;
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
            Err(error) if not_begun(&error) => {
                let told = format!("{} cannot be reached; nothing happened, retry later", self.url);
                told_here(Problem::new("UNAVAILABLE", told).retry_after(CONNECT), grpc, Outcome::NotBegun)
            }
            Err(error) => {
                tracing::warn!("the connection to {} broke: {}; its outcome is unknown", self.url, plainly(&error));
                let told = format!("the connection to {} broke; read there whether it was applied", self.url);
                told_here(Problem::new("INDETERMINATE", told), grpc, Outcome::Unknown)
            }
        }
    }

    /// The same request, to the service.
    fn addressed(&self, request: &mut Request<Passed>, version: Version) -> Result<(), Problem> {
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.url.0.clone()).path_and_query(path).build();
        let odd = || {
            Problem::new("INVALID_ARGUMENT", "path: it cannot be passed on; send a plain path").about("path", "shape")
        };
        *request.uri_mut() = uri.map_err(|_| odd())?;
        *request.version_mut() = version;
        let headers = request.headers_mut();
        strip(headers, version == Version::HTTP_2);
        headers.remove(EXPECT);
        match (version, host) {
            // There it stands in the address.
            (Version::HTTP_2, _) => drop(headers.remove(HOST)),
            (_, Some(host)) if !headers.contains_key(HOST) => {
                if let Ok(host) = HeaderValue::from_str(&host) {
                    headers.insert(HOST, host);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl tower::Service<Request<Passed>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Passed>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { Ok(upstream.pass(request).await) })
    }
}

fn told_here(problem: Problem, grpc: bool, outcome: Outcome) -> Response<Body> {
    let mut response =
        problem.answer::<http_body_util::Empty<Bytes>>(grpc).map(|body| body.map_err(Into::into).boxed_unsync());
    response.extensions_mut().insert(outcome);
    response
}

/// Only what never had a connection surely did nothing.
fn not_begun(error: &Error) -> bool {
    error.is_connect()
}

/// The innermost reason: the outer ones only say that there was one.
fn plainly(error: &Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Takes off what is about one connection only. `te: trailers` is what gRPC lives by.
fn strip(headers: &mut HeaderMap, trailers: bool) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).filter_map(|name| HeaderName::from_str(name.trim()).ok());
    for name in named.collect::<Vec<_>>() {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(name);
    }
    let keeps = trailers && headers.get(TE).is_some_and(|value| value == "trailers");
    if !keeps {
        headers.remove(TE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_plain_address() {
        assert_eq!(
            "http://127.0.0.1:80".parse::<Url>().map(|url| url.to_string()).as_deref(),
            Ok("http://127.0.0.1:80")
        );
        for bad in ["127.0.0.1:80", "http://host", "http://h:1/path", "ftp://h:1", "http://u@h:1", "https://h:1", ""] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_about_one_connection_is_taken_off_also_what_it_names() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, x-mine"), ("x-mine", "1"), ("te", "trailers"), ("x-other", "2")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut plain = headers.clone();
        strip(&mut plain, false);
        assert_eq!(plain.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
        strip(&mut headers, true);
        assert!(headers.contains_key("te") && !headers.contains_key("x-mine"));
    }
}
