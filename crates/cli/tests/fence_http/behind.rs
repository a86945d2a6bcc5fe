//! The service behind the fence: it does what it is asked, whoever asks, and writes down what it did in which order.
//!
//! What it has begun it ends, also if whoever asked has gone: that is what makes an outcome unknown. It keeps one promise,
//! by which the fence's bound is chosen: what it did not do within [`GIVES_UP`] it never does.

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

/// The word by which a child knows its part.
pub const PART: &str = "behind";
/// What it was asked to delay and did not do within this time it never does.
pub const GIVES_UP: Duration = Duration::from_millis(500);

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

struct Ghost {
    applied: Mutex<Vec<(u64, String)>>,
    arrived: AtomicUsize,
    /// One for each held request that may go on.
    released: Semaphore,
}

/// Serves until its parent goes away.
pub fn play() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("behind on {}", listener.local_addr().expect("an address"));
        let ghost = Arc::new(Ghost {
            applied: Mutex::new(Vec::new()),
            arrived: AtomicUsize::new(0),
            released: Semaphore::new(0),
        });
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a connection");
            let ghost = ghost.clone();
            tokio::spawn(async move {
                let serve = service_fn(move |request| serve(ghost.clone(), request));
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
}

async fn serve(ghost: Arc<Ghost>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let said = match path.as_str() {
        "/echo" => return Ok(Response::new(body.boxed_unsync())),
        "/ghost" => serde_json::to_string(&*ghost.applied.lock().expect("whole")).expect("JSON"),
        "/ghost/reset" => {
            ghost.applied.lock().expect("whole").clear();
            String::new()
        }
        "/ghost/arrived" => ghost.arrived.load(Ordering::SeqCst).to_string(),
        "/ghost/release" => {
            ghost.released.add_permits(1);
            String::new()
        }
        "/headers" => format!("{:?}", head.headers),
        _ => {
            let Ok(whole) = body.collect().await else { return Ok(told("never whole")) };
            let value = String::from_utf8(whole.to_bytes().to_vec()).expect("text");
            let shown = head.headers.get("lease-token").and_then(|shown| shown.to_str().ok());
            let number = shown.and_then(|shown| Token::parse(shown).ok()).map_or(0, |token| token.number.get());
            let late = head.uri.query().and_then(|query| query.strip_prefix("ms=")?.parse().ok()).unwrap_or(0);
            // Not cancelled with the connection.
            let done = tokio::spawn(async move {
                if path == "/held" {
                    ghost.arrived.fetch_add(1, Ordering::SeqCst);
                    ghost.released.acquire().await.expect("never closed").forget();
                } else {
                    tokio::time::sleep(Duration::from_millis(late)).await;
                }
                let mut applied = ghost.applied.lock().expect("whole");
                if late == 0 || began.elapsed() < GIVES_UP {
                    applied.push((number, value));
                    return "done";
                }
                "too late"
            });
            let said = done.await.expect("it ends");
            let mut response = told(said);
            if said != "done" {
                *response.status_mut() = hyper::StatusCode::GATEWAY_TIMEOUT;
            }
            return Ok(response);
        }
    };
    Ok(told(&said))
}

fn told(said: &str) -> Response<Body> {
    Response::new(Full::new(Bytes::from(said.to_owned())).map_err(|never| match never {}).boxed_unsync())
}
