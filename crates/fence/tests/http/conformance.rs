//! Conformance suite for a service with the fence layer, and for the same service without it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use leasehold_core::token::{Incarnation, Number, Token};
use leasehold_fence::conformance::{
    AppliedEntry, BOUNDED_CLAIM, FenceWriter, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RISING, SEALED,
    SEALED_TEXTS, SEQUENCES, STALE, STALE_DETAIL, STRICT, StuckHolder, Subject, UNARMED, check, fence_id, race,
};
use leasehold_fence::file::FencedLog;
use leasehold_fence::http::{Fence, GateTimeouts, RequestBody, Rules, parse_refusal};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use tempfile::TempDir;
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};

/// The applied writes, and signals to hold one request.
#[derive(Default)]
struct ServiceState {
    applied: Mutex<Vec<AppliedEntry>>,
    arrived: Notify,
    released: Notify,
}

type SharedState = Arc<ServiceState>;
type Client = BoxCloneSyncService<Request<String>, Response<Vec<u8>>, Infallible>;

const HELD_PATH: &str = "/held";

/// The service: applies every request.
async fn apply(state: SharedState, request: Request<String>) -> Result<Response<String>, Infallible> {
    let token = request.headers().get("lease-token").and_then(|value| value.to_str().ok());
    let number = token.and_then(|token| Token::parse(token).ok()).map_or(Number::FIRST, |token| token.number);
    tokio::task::yield_now().await;
    if request.uri().path() == HELD_PATH {
        state.arrived.notify_one();
        state.released.notified().await;
    }
    state.applied.lock().expect("whole").push(AppliedEntry { number, value: request.into_body() });
    Ok(Response::new(String::new()))
}

struct HttpSubject {
    fenced: bool,
    now: Mutex<Option<(TempDir, Fence, SharedState, Client)>>,
}

impl HttpSubject {
    const fn new(fenced: bool) -> Self {
        Self { fenced, now: Mutex::new(None) }
    }

    fn file(&self) -> PathBuf {
        self.now.lock().expect("whole").as_ref().expect("fresh was called").0.path().join("marks")
    }

    fn log(&self) -> Result<FencedLog, Error> {
        FencedLog::open(&self.file(), &fence_id())
    }
}

impl HttpSubject {
    /// Starts a service with fresh marks, whose fence has these keys.
    fn start(&self, verifier: Option<&SealVerifier>) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let (marks, rules) = (dir.path().join("marks"), Rules::new(&fence_id()));
        Fence::arm(&marks, &rules).expect("armed");
        // A short claim timeout, for the test of a blocked claim.
        let timeouts = GateTimeouts::default().with_claim_timeout(Duration::from_millis(200));
        let mut fence = Fence::open(&marks, rules, timeouts).expect("it opens");
        if let Some(verifier) = verifier {
            fence = fence.with_seal_verifier(verifier).expect("not in use");
        }
        let state = SharedState::default();
        let (fenced_state, bare_state) = (state.clone(), state.clone());
        let client = if self.fenced {
            let inner = tower::service_fn(move |request: Request<RequestBody<String>>| {
                let state = fenced_state.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.expect("a text").to_bytes().to_vec();
                    apply(state, Request::from_parts(head, String::from_utf8(body).expect("a text"))).await
                }
            });
            let layered = fence.layer().layer(BoxCloneSyncService::new(inner));
            BoxCloneSyncService::new(layered.and_then(async |response: Response<_>| {
                let (head, body) = response.into_parts();
                let body = BodyExt::collect(body).await.expect("whole").to_bytes().to_vec();
                Ok(Response::from_parts(head, body))
            }))
        } else {
            let inner = tower::service_fn(move |request| apply(bare_state.clone(), request));
            BoxCloneSyncService::new(inner.map_response(|response| response.map(String::into_bytes)))
        };
        *self.now.lock().expect("whole") = Some((dir, fence, state, client));
    }
}

impl Subject for HttpSubject {
    type Writer = HttpWriter;

    async fn fresh(&self) {
        self.start(None);
    }

    async fn writer(&self) -> HttpWriter {
        HttpWriter(self.now.lock().expect("whole").as_ref().expect("fresh was called").3.clone())
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        self.now.lock().expect("whole").as_ref().expect("fresh was called").2.applied.lock().expect("whole").clone()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.log()?.mark()
    }

    async fn unarmed(&self) -> bool {
        self.fresh().await;
        std::fs::remove_file(self.file()).is_ok()
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.log()?.declare_lost().map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.log()?.rearm(floor).map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.log()?.strict(enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log()?.adopt(incarnation).map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        // As `leasehold fence seal` does it, while the service runs.
        self.log()?.seal().map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<HttpWriter> {
        self.start(Some(verifier));
        Some(self.writer().await)
    }

    fn keys_in_target(&self) -> bool {
        true
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        let fence = self.now.lock().expect("whole").as_ref().expect("fresh was called").1.clone();
        fence.list_marks().map(Some)
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<HttpWriter>> {
        let state = self.now.lock().expect("whole").as_ref().expect("fresh was called").2.clone();
        let (old, token, value) = (self.writer().await, token.to_owned(), value.to_owned());
        let mut request = Box::pin(async move { old.post(HELD_PATH, &token, None, &value).await.map(drop) });
        tokio::select! {
            early = &mut request => panic!("it is held: {early:?}"),
            () = state.arrived.notified() => {}
        }
        let resume = Box::pin(async move {
            state.released.notify_one();
            request.await
        });
        // Over HTTP there is no process id; the response contains the number of requests in flight.
        Some(StuckHolder {
            blocker: None,
            max_claim_time: Duration::from_secs(120),
            successor: self.writer().await,
            resume,
        })
    }
}

struct HttpWriter(Client);

impl HttpWriter {
    async fn post(
        &self,
        path: &str,
        token: &str,
        sequence: Option<u64>,
        body: &str,
    ) -> Result<Response<Vec<u8>>, Error> {
        let mut request = Request::post(path).header("lease-token", token);
        if let Some(sequence) = sequence {
            request = request.header("lease-sequence", sequence.to_string());
        }
        let request = request.body(body.to_owned()).expect("a request");
        let response = self.0.clone().oneshot(request).await.expect("it cannot fail");
        match response.status().is_success() {
            true => Ok(response),
            false => Err(parse_refusal(response.body()).expect("a response of the fence")),
        }
    }
}

impl FenceWriter for HttpWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.post("/-/claim", token, None, "").await?;
        Ok(Token::parse(token).expect("it was admitted").number)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.post("/write", token, None, value).await.map(drop)
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let response = self.post("/write", token, Some(sequence), value).await?;
        let last = response.headers().get("lease-applied").and_then(|last| last.to_str().ok()?.parse().ok());
        Ok(Some(last.map_or(ApplyOnce::Applied, |last| ApplyOnce::AlreadyApplied { last })))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&HttpSubject::new(true)).await.unwrap_or_else(|error| panic!("{error}"));
    let all = [
        RISING,
        STALE,
        STALE_DETAIL,
        INVALID_TOKENS,
        SEALED_TEXTS,
        SEALED,
        UNARMED,
        LOST_MARK,
        LIST_MARKS,
        STRICT,
        SEQUENCES,
        BOUNDED_CLAIM,
        RACE,
    ];
    assert_eq!(obligations, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&HttpSubject::new(true), 8, 10_000, 3).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.operations, 10_000);
    assert!(report.refused > 0, "no zombie was rejected: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_layer_the_suite_fails() {
    assert!(check(&HttpSubject::new(false)).await.is_err());
    assert!(race(&HttpSubject::new(false), 8, 1_000, 3).await.is_err());
}
