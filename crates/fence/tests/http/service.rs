//! A service behind the fence whose requests do what their path says, and whose every effect is written down.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use leasehold_fence::Error;
use leasehold_fence::http::{Bounds, Carried, Fence, Fenced, Outcome, Rules, Under};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};

use crate::support::{CLUSTER, name, token};

/// Short enough for a clock that stands still unless everybody waits, long enough to be told apart.
pub const BOUNDS: Bounds =
    Bounds { patience: Duration::from_secs(5), longest: Duration::from_secs(60), settle: Duration::from_secs(20) };

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Inner = BoxCloneSyncService<Request<Carried<String>>, Response<Body>, Infallible>;

/// What a held request waits for.
#[derive(Debug)]
pub enum Then {
    Apply,
    /// The way to the target broke: who knows what it did.
    Break,
    NotBegun,
}

pub struct World {
    pub dir: TempDir,
    pub fence: Fence,
    service: Fenced<Inner>,
    pub applied: Arc<Mutex<Vec<String>>>,
    /// Held requests, in the order they came.
    pub held: UnboundedReceiver<oneshot::Sender<Then>>,
    /// Streamed answers, in the order they began.
    pub streams: UnboundedReceiver<UnboundedSender<&'static str>>,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: Result<Vec<u8>, String>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(self.body.as_ref().expect("whole")).expect("JSON")
    }

    /// The code of a problem; none of a yes.
    pub fn code(&self) -> Option<String> {
        if self.status.is_success() {
            return None;
        }
        self.json()["code"].as_str().map(str::to_owned)
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Rules::new(Under::new(name(), 0)))
    }

    pub fn with(rules: Rules) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        Fence::arm(&dir.path().join("marks"), CLUSTER, &rules).expect("armed");
        Self::over(dir, rules).expect("it opens")
    }

    pub fn over(dir: TempDir, rules: Rules) -> Result<Self, Error> {
        let fence = Fence::open(&dir.path().join("marks"), CLUSTER, rules, BOUNDS)?;
        let applied = Arc::new(Mutex::new(Vec::new()));
        let ((hold, held), (stream, streams)) = (unbounded_channel(), unbounded_channel());
        let target = Target { applied: applied.clone(), hold, stream };
        let inner = tower::service_fn(move |request| target.clone().serve(request));
        let service = fence.layer().layer(BoxCloneSyncService::new(inner));
        Ok(Self { dir, fence, service, applied, held, streams })
    }

    /// The same place served by another process, after this one is gone: nothing of it is left but its files.
    pub fn again(self) -> Self {
        let Self { dir, fence, service, .. } = self;
        drop((fence, service));
        Self::over(dir, Rules::new(Under::new(name(), 0))).expect("it opens again")
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    pub fn applied(&self) -> Vec<String> {
        self.applied.lock().expect("whole").clone()
    }

    pub async fn send(&self, request: http::request::Builder, body: &str) -> Answer {
        let request = request.body(body.to_owned()).expect("a request");
        let response = self.service.clone().oneshot(request).await.expect("it cannot fail");
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string());
        Answer { status: head.status, headers: head.headers, body }
    }

    /// The same beside what the test does.
    pub fn sends(&self, request: http::request::Builder, body: &str) -> JoinHandle<Answer> {
        let request = request.body(body.to_owned()).expect("a request");
        let service = self.service.clone();
        tokio::spawn(async move {
            let (head, body) = service.oneshot(request).await.expect("it cannot fail").into_parts();
            let body = body.collect().await.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string());
            Answer { status: head.status, headers: head.headers, body }
        })
    }

    pub async fn claim(&self, number: u64) -> Answer {
        self.send(shows(number, "/-/claim"), "").await
    }

    pub async fn write(&self, number: u64, what: &str) -> Answer {
        self.send(shows(number, "/now"), what).await
    }
}

/// A write that shows the token of this number.
pub fn shows(number: u64, path: &str) -> http::request::Builder {
    Request::post(path).header("lease-token", token(number))
}

#[derive(Clone)]
struct Target {
    applied: Arc<Mutex<Vec<String>>>,
    hold: UnboundedSender<oneshot::Sender<Then>>,
    stream: UnboundedSender<UnboundedSender<&'static str>>,
}

impl Target {
    async fn serve(self, request: Request<Carried<String>>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a text").to_bytes();
        let what = String::from_utf8(body.to_vec()).expect("a text");
        let answer = |text: &'static str| Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
        let apply = || self.applied.lock().expect("whole").push(what.clone());
        let mut response = answer("done");
        match head.uri.path() {
            "/held" => {
                let (then, told) = oneshot::channel();
                self.hold.send(then).expect("the test listens");
                match told.await.unwrap_or(Then::Break) {
                    Then::Apply => apply(),
                    Then::Break => drop(response.extensions_mut().insert(Outcome::Unknown)),
                    Then::NotBegun => drop(response.extensions_mut().insert(Outcome::NotBegun)),
                }
            }
            "/streams" => {
                let (say, mut says) = unbounded_channel::<&'static str>();
                self.stream.send(say).expect("the test listens");
                let applied = self.applied.clone();
                let frames = futures::stream::poll_fn(move |cx| {
                    says.poll_recv(cx).map(|said| {
                        said.map(|said| {
                            applied.lock().expect("whole").push(said.to_owned());
                            Ok(http_body::Frame::data(Bytes::from_static(said.as_bytes())))
                        })
                    })
                });
                response = Response::new(StreamBody::new(frames).boxed_unsync());
            }
            "/fails" => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
            _ => apply(),
        }
        Ok(response)
    }
}
