//! The suite that every target passes, here on a service behind the layer, and on the same service without it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use leasehold_core::token::{Incarnation, Number, Token};
use leasehold_fence::conformance::{
    Applied, BOUNDED, CLUSTER, Inside, LOST, MISSING, MISTAKES, RACE, RISING, SEQUENCES, STALE, STRICT, SURVEY,
    Subject, TOLD, Writer, check, name, race,
};
use leasehold_fence::file::Log;
use leasehold_fence::http::{Bounds, Carried, Fence, Rules, Under, heard};
use leasehold_fence::{Error, Kept, Once};
use tempfile::TempDir;
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};

/// The ghost log, and how one request is held that asks for it.
#[derive(Default)]
struct Behind {
    applied: Mutex<Vec<Applied>>,
    arrived: Notify,
    released: Notify,
}

type Applies = Arc<Behind>;
type Way = BoxCloneSyncService<Request<String>, Response<Vec<u8>>, Infallible>;

const HELD: &str = "/held";

/// What is behind the fence: it takes its time, and then does what it was asked, whoever asks.
async fn apply(ghost: Applies, request: Request<String>) -> Result<Response<String>, Infallible> {
    let shown = request.headers().get("lease-token").and_then(|shown| shown.to_str().ok());
    let number = shown.and_then(|shown| Token::parse(shown).ok()).map_or(Number::FIRST, |token| token.number);
    tokio::task::yield_now().await;
    if request.uri().path() == HELD {
        ghost.arrived.notify_one();
        ghost.released.notified().await;
    }
    ghost.applied.lock().expect("whole").push(Applied { number, value: request.into_body() });
    Ok(Response::new(String::new()))
}

struct Served {
    fenced: bool,
    now: Mutex<Option<(TempDir, Fence, Applies, Way)>>,
}

impl Served {
    const fn new(fenced: bool) -> Self {
        Self { fenced, now: Mutex::new(None) }
    }

    fn file(&self) -> PathBuf {
        self.now.lock().expect("whole").as_ref().expect("it is fresh").0.path().join("marks")
    }

    fn log(&self) -> Result<Log, Error> {
        Log::open(&self.file(), CLUSTER, name(), 0)
    }
}

impl Subject for Served {
    type Writer = Holder;

    async fn fresh(&self) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let (marks, rules) = (dir.path().join("marks"), Rules::new(Under::new(name(), 0)));
        Fence::arm(&marks, CLUSTER, &rules).expect("armed");
        // Little patience, which nobody needs here but who claims while another is inside.
        let bounds = Bounds { patience: Duration::from_millis(200), ..Bounds::default() };
        let fence = Fence::open(&marks, CLUSTER, rules, bounds).expect("it opens");
        let ghost = Applies::default();
        let (behind, bare) = (ghost.clone(), ghost.clone());
        let way = if self.fenced {
            let inner = tower::service_fn(move |request: Request<Carried<String>>| {
                let ghost = behind.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.expect("a text").to_bytes().to_vec();
                    apply(ghost, Request::from_parts(head, String::from_utf8(body).expect("a text"))).await
                }
            });
            let layered = fence.layer().layer(BoxCloneSyncService::new(inner));
            BoxCloneSyncService::new(layered.and_then(async |response: Response<_>| {
                let (head, body) = response.into_parts();
                let body = BodyExt::collect(body).await.expect("whole").to_bytes().to_vec();
                Ok(Response::from_parts(head, body))
            }))
        } else {
            let inner = tower::service_fn(move |request| apply(bare.clone(), request));
            BoxCloneSyncService::new(inner.map_response(|response| response.map(String::into_bytes)))
        };
        *self.now.lock().expect("whole") = Some((dir, fence, ghost, way));
    }

    async fn writer(&self) -> Holder {
        Holder(self.now.lock().expect("whole").as_ref().expect("it is fresh").3.clone())
    }

    async fn applied(&self) -> Vec<Applied> {
        self.now.lock().expect("whole").as_ref().expect("it is fresh").2.applied.lock().expect("whole").clone()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.log()?.strict(true).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log()?.adopt(incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        let fence = self.now.lock().expect("whole").as_ref().expect("it is fresh").1.clone();
        fence.survey().map(Some)
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<Holder>> {
        let behind = self.now.lock().expect("whole").as_ref().expect("it is fresh").2.clone();
        let (old, token, value) = (self.writer().await, token.to_owned(), value.to_owned());
        let mut asks = Box::pin(async move { old.asks(HELD, &token, None, &value).await.map(drop) });
        tokio::select! {
            early = &mut asks => panic!("it is held: {early:?}"),
            () = behind.arrived.notified() => {}
        }
        let goes_on = Box::pin(async move {
            behind.released.notify_one();
            asks.await
        });
        // Over HTTP nobody has a process id; the answer tells how many are inside.
        Some(Inside { who: None, bound: Duration::from_secs(120), successor: self.writer().await, goes_on })
    }
}

struct Holder(Way);

impl Holder {
    async fn asks(
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
        let answer = self.0.clone().oneshot(request).await.expect("it cannot fail");
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(heard(answer.body()).expect("the fence said it")),
        }
    }
}

impl Writer for Holder {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.asks("/-/claim", token, None, "").await?;
        Ok(Token::parse(token).expect("it was admitted").number)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.asks("/write", token, None, value).await.map(drop)
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let answer = self.asks("/write", token, Some(sequence), value).await?;
        let before = answer.headers().get("lease-applied").and_then(|last| last.to_str().ok()?.parse().ok());
        Ok(Some(before.map_or(Once::Applied, |last| Once::AlreadyApplied { last })))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_conforms() {
    let held = check(&Served::new(true)).await.unwrap_or_else(|violation| panic!("{violation}"));
    let all = [RISING, STALE, TOLD, MISTAKES, MISSING, LOST, SURVEY, STRICT, SEQUENCES, BOUNDED, RACE];
    assert_eq!(held, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_racing_operations_never_fall() {
    let raced = race(&Served::new(true), 8, 10_000, 3).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(raced.operations, 10_000);
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_service_without_the_layer_is_caught() {
    assert!(check(&Served::new(false)).await.is_err());
    assert!(race(&Served::new(false), 8, 1_000, 3).await.is_err());
}
