//! The service behind the proxy: applies every request without any check, and records the order.
//!
//! It completes a request even if the client has disconnected, so that the outcome is unknown. It guarantees one bound, from
//! which `--settle-time` is chosen: a request that it has not applied within [`MAX_DELAY`] is never applied.

use std::convert::Infallible;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use leasehold_core::token::Token;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Argument that selects this role.
pub const ROLE: &str = "upstream";
/// A delayed request that is not applied within this time is never applied.
pub const MAX_DELAY: Duration = Duration::from_millis(500);

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

struct AppliedLog {
    applied: Mutex<Vec<(u64, String)>>,
    arrived: AtomicUsize,
    /// One permit for each held request that may continue.
    released: Semaphore,
}

/// Serves until its parent exits.
pub fn run() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("upstream on {}", listener.local_addr().expect("an address"));
        let applied_log = Arc::new(AppliedLog {
            applied: Mutex::new(Vec::new()),
            arrived: AtomicUsize::new(0),
            released: Semaphore::new(0),
        });
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a connection");
            let applied_log = applied_log.clone();
            tokio::spawn(async move {
                let serve = service_fn(move |request| serve(applied_log.clone(), request));
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
}

async fn serve(applied_log: Arc<AppliedLog>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if !path.starts_with("/ghost") && head.headers.get("host").is_some_and(|host| host == "service") {
        return Ok(reading(&head));
    }
    let text = match path.as_str() {
        "/echo" => return Ok(Response::new(body.boxed_unsync())),
        "/ghost" => serde_json::to_string(&*applied_log.applied.lock().expect("whole")).expect("JSON"),
        "/ghost/reset" => {
            applied_log.applied.lock().expect("whole").clear();
            String::new()
        }
        "/ghost/arrived" => applied_log.arrived.load(Ordering::SeqCst).to_string(),
        "/ghost/release" => {
            applied_log.released.add_permits(1);
            String::new()
        }
        "/headers" => format!("{:?}", head.headers),
        _ => {
            let Ok(whole) = body.collect().await else { return Ok(response("never whole")) };
            let value = String::from_utf8(whole.to_bytes().to_vec()).expect("text");
            let shown = head.headers.get("lease-token").and_then(|shown| shown.to_str().ok());
            let number = shown.and_then(|shown| Token::parse(shown).ok()).map_or(0, |token| token.number.get());
            let late = head.uri.query().and_then(|query| query.strip_prefix("ms=")?.parse().ok()).unwrap_or(0);
            // In its own task, so that it is not canceled with the connection.
            let done = tokio::spawn(async move {
                if path == "/held" {
                    applied_log.arrived.fetch_add(1, Ordering::SeqCst);
                    applied_log.released.acquire().await.expect("never closed").forget();
                } else {
                    tokio::time::sleep(Duration::from_millis(late)).await;
                }
                let mut applied = applied_log.applied.lock().expect("whole");
                if late == 0 || began.elapsed() < MAX_DELAY {
                    applied.push((number, value));
                    return "done";
                }
                "too late"
            });
            let text = done.await.expect("it ends");
            let mut response = response(text);
            if text != "done" {
                *response.status_mut() = hyper::StatusCode::GATEWAY_TIMEOUT;
            }
            return Ok(response);
        }
    };
    Ok(response(&text))
}

/// How this service reads a request: path and method as they were sent.
fn reading(head: &hyper::http::request::Parts) -> Response<Body> {
    let target = head.uri.path_and_query().map_or("*", |target| target.as_str());
    let mut response = response("");
    for (name, value) in [("x-method", head.method.as_str()), ("x-path", head.uri.path()), ("x-target", target)] {
        let value = hyper::header::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        response.headers_mut().insert(name, value);
    }
    response
}

fn response(text: &str) -> Response<Body> {
    Response::new(Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync())
}
