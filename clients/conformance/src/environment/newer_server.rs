//! A server of a later version: a proxy that adds fields, enum values, events and error codes that no client knows.
//!
//! It rewrites JSON bodies, streams of server-sent events, and the messages of the gRPC session stream.

mod grpc_messages;
mod json_body;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::runtime::runtime;
use grpc_messages::MessageRewriter;

type RewrittenBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// The code that replaces `BUSY`.
pub const UNKNOWN_CODE: &str = "BUSY_ELSEWHERE";
/// A word that no version knows.
pub const UNKNOWN_WORD: &str = "from_the_future";
/// An event that no version knows.
const UNKNOWN_EVENT: &str = "event: from_the_future\ndata: {\"orbit\":7}\n\n";

/// A proxy in front of a server. It ends when it is dropped.
#[derive(Debug)]
pub struct NewerServer {
    /// Address of the proxy.
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl NewerServer {
    /// Starts a proxy to a server.
    pub fn start(upstream: &str) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _in_runtime = runtime().enter();
        let (listener, upstream) = (TcpListener::from_std(listener)?, upstream.to_owned());
        let accepting = runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let upstream = upstream.clone();
                tokio::spawn(async move {
                    let forward = service_fn(move |request| forward(upstream.clone(), request));
                    // The client decides when a connection ends.
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), forward).await;
                });
            }
        });
        Ok(Self { address, accepting })
    }
}

impl Drop for NewerServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(upstream: String, request: Request<Incoming>) -> Result<Response<RewrittenBody>, Infallible> {
    Ok(exchange(&upstream, request).await.unwrap_or_else(|error| {
        let body = Full::from(error.to_string()).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    }))
}

/// Sends a request on an upstream connection of its own, and rewrites the response.
async fn exchange(
    upstream: &str,
    request: Request<Incoming>,
) -> Result<Response<RewrittenBody>, Box<dyn std::error::Error + Send + Sync>> {
    let io = TokioIo::new(TcpStream::connect(upstream).await?);
    let is_grpc = content_type(request.headers()).starts_with("application/grpc");
    let is_session = request.uri().path().ends_with("/Session");
    let response = if is_grpc {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    let (mut head, body) = response.into_parts();
    let kind = content_type(&head.headers).to_owned();
    let body = if is_grpc {
        let mut rewriter = MessageRewriter::new(is_session);
        body.map_frame(move |frame| match frame.into_data() {
            Ok(data) => Frame::data(rewriter.rewrite(data)),
            Err(trailers) => trailers,
        })
        .boxed_unsync()
    } else if kind.contains("json") {
        head.headers.remove(CONTENT_LENGTH);
        let bytes = json_body::rewrite(&body.collect().await?.to_bytes());
        Full::from(bytes).map_err(|never| match never {}).boxed_unsync()
    } else if kind.starts_with("text/event-stream") {
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(UNKNOWN_EVENT.as_bytes())))]);
        let rest = body.into_data_stream().map(|data| data.map(Frame::data));
        StreamBody::new(first.chain(rest)).boxed_unsync()
    } else {
        body.boxed_unsync()
    };
    Ok(Response::from_parts(head, body))
}

fn content_type(headers: &http::HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
