//! A fenced test service. The path of a request selects its behavior, and every applied request is recorded.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use leasehold_fence::Error;
use leasehold_fence::http::{Fence, FenceService, GateTimeouts, RequestBody, Rules, UpstreamOutcome};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};

use crate::support::{fence_id, token};

/// Distinct time limits. The clock of the tests is paused.
pub const TIMEOUTS: GateTimeouts = GateTimeouts::DEFAULT
    .with_claim_timeout(Duration::from_secs(5))
    .with_max_request_time(Duration::from_secs(60))
    .with_settle_time(Duration::from_secs(20));

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Inner = BoxCloneSyncService<Request<RequestBody<String>>, Response<Body>, Infallible>;

/// What a held request does when it is released.
#[derive(Debug)]
pub enum HeldAction {
    Apply,
    /// The connection to the target broke: the outcome is unknown.
    Break,
    NotSent,
}

pub struct TestService {
    pub dir: TempDir,
    pub fence: Fence,
    service: FenceService<Inner>,
    pub applied: Arc<Mutex<Vec<String>>>,
    /// Held requests, in the order of their arrival.
    pub held: UnboundedReceiver<oneshot::Sender<HeldAction>>,
    /// Streamed responses, in the order of their start.
    pub streams: UnboundedReceiver<UnboundedSender<&'static str>>,
}

/// A complete response.
#[derive(Debug)]
pub struct TestResponse {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: Result<Vec<u8>, String>,
}

impl TestResponse {
    pub fn json(&self) -> Value {
        serde_json::from_slice(self.body.as_ref().expect("whole")).expect("JSON")
    }

    /// The error code; `None` for a success.
    pub fn code(&self) -> Option<String> {
        if self.status.is_success() {
            return None;
        }
        self.json()["code"].as_str().map(str::to_owned)
    }
}

impl TestService {
    pub fn new() -> Self {
        Self::with(Rules::new(&fence_id()))
    }

    pub fn with(rules: Rules) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        Fence::arm(&dir.path().join("marks"), &rules).expect("armed");
        Self::open(dir, rules).expect("it opens")
    }

    pub fn open(dir: TempDir, rules: Rules) -> Result<Self, Error> {
        let fence = Fence::open(&dir.path().join("marks"), rules, TIMEOUTS)?;
        let applied = Arc::new(Mutex::new(Vec::new()));
        let ((hold, held), (stream, streams)) = (unbounded_channel(), unbounded_channel());
        let target = RecordingTarget { applied: applied.clone(), hold, stream };
        let inner = tower::service_fn(move |request| target.clone().serve(request));
        let service = fence.layer().layer(BoxCloneSyncService::new(inner));
        Ok(Self { dir, fence, service, applied, held, streams })
    }

    /// Restarts the fence, as another process: only the files remain.
    pub fn restart(self) -> Self {
        let Self { dir, fence, service, .. } = self;
        drop((fence, service));
        Self::open(dir, Rules::new(&fence_id())).expect("it opens again")
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    pub fn applied(&self) -> Vec<String> {
        self.applied.lock().expect("whole").clone()
    }

    pub async fn send(&self, request: http::request::Builder, body: &str) -> TestResponse {
        let request = request.body(body.to_owned()).expect("a request");
        let response = self.service.clone().oneshot(request).await.expect("it cannot fail");
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string());
        TestResponse { status: head.status, headers: head.headers, body }
    }

    /// Sends a request concurrently with the test.
    pub fn spawn_send(&self, request: http::request::Builder, body: &str) -> JoinHandle<TestResponse> {
        let request = request.body(body.to_owned()).expect("a request");
        let service = self.service.clone();
        tokio::spawn(async move {
            let (head, body) = service.oneshot(request).await.expect("it cannot fail").into_parts();
            let body = body.collect().await.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string());
            TestResponse { status: head.status, headers: head.headers, body }
        })
    }

    pub async fn claim(&self, number: u64) -> TestResponse {
        self.send(with_token(number, "/-/claim"), "").await
    }

    pub async fn write(&self, number: u64, body: &str) -> TestResponse {
        self.send(with_token(number, "/now"), body).await
    }
}

/// A request with the token of this number.
pub fn with_token(number: u64, path: &str) -> http::request::Builder {
    Request::post(path).header("lease-token", token(number))
}

#[derive(Clone)]
struct RecordingTarget {
    applied: Arc<Mutex<Vec<String>>>,
    hold: UnboundedSender<oneshot::Sender<HeldAction>>,
    stream: UnboundedSender<UnboundedSender<&'static str>>,
}

impl RecordingTarget {
    async fn serve(self, request: Request<RequestBody<String>>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a text").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("a text");
        let reply = |text: &'static str| Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
        let apply = || self.applied.lock().expect("whole").push(text.clone());
        let mut response = reply("done");
        match head.uri.path() {
            "/held" => {
                let (release, released) = oneshot::channel();
                self.hold.send(release).expect("the test receives");
                match released.await.unwrap_or(HeldAction::Break) {
                    HeldAction::Apply => apply(),
                    HeldAction::Break => drop(response.extensions_mut().insert(UpstreamOutcome::Unknown)),
                    HeldAction::NotSent => drop(response.extensions_mut().insert(UpstreamOutcome::NotSent)),
                }
            }
            "/streams" => {
                let (sender, mut receiver) = unbounded_channel::<&'static str>();
                self.stream.send(sender).expect("the test receives");
                let applied = self.applied.clone();
                let frames = futures::stream::poll_fn(move |cx| {
                    receiver.poll_recv(cx).map(|text| {
                        text.map(|text| {
                            applied.lock().expect("whole").push(text.to_owned());
                            Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
                        })
                    })
                });
                response = Response::new(StreamBody::new(frames).boxed_unsync());
            }
            "/fails" => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
            path if path.starts_with("/status/") => {
                apply();
                *response.status_mut() = path["/status/".len()..].parse().expect("a status");
            }
            path if path.starts_with("/grpc-status/") => {
                apply();
                let status = path["/grpc-status/".len()..].parse().expect("a status");
                response = reply("");
                response.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
                response.headers_mut().insert("grpc-status", status);
            }
            _ => apply(),
        }
        Ok(response)
    }
}
