//! Overhead of the HTTP layer: the same service with and without the fence, alternating in one run.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http::{Request, Response};
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::FenceId;
use leasehold_fence::http::{Fence, GateTimeouts, Rules};
use tower::{Layer, Service, ServiceExt};

/// Many short rounds, so that interrupted ones do not affect the median.
const ROUNDS: usize = 5_000;
const REQUESTS: u32 = 20;
const CLUSTER: Cluster = Cluster(*b"benching");
const RESOURCE: &str = "jobs/settle";

fn main() {
    // `cargo test` only checks that the benchmark starts.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let marks = dir.path().join("marks");
    let rules = Rules::new(&FenceId::new(CLUSTER, RESOURCE).expect("a name"));
    Fence::arm(&marks, &rules).expect("armed");
    let fence = Fence::open(&marks, rules, GateTimeouts::default()).expect("it opens");
    let number = Number::new(7).expect("a number");
    let resource = resource_hash(RESOURCE);
    let token = Token { cluster: CLUSTER, incarnation: Incarnation(1), resource, scope: TokenScope::Slot(0), number };
    let token = token.to_string();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut bare = tower::service_fn(reply::<String>);
        let mut fenced = fence.layer().layer(tower::service_fn(reply));
        let (mut without_fence, mut with_fence) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without_fence.push(time(&mut bare, &token).await);
            with_fence.push(time(&mut fenced, &token).await);
        }
        let (without_fence, with_fence) = (median(without_fence), median(with_fence));
        println!("request without fence {:>8.3} µs", micros(without_fence));
        println!("request with fence    {:>8.3} µs", micros(with_fence));
        println!("overhead              {:>8.3} µs", micros(with_fence.saturating_sub(without_fence)));
    });
}

async fn reply<B>(_: Request<B>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

/// Mean time of a request.
async fn time<S, R>(service: &mut S, token: &str) -> Duration
where
    S: Service<Request<String>, Response = Response<R>, Error = Infallible>,
{
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let request = Request::post("/pay").header("lease-token", token).body(String::new()).expect("a request");
        let response = service.ready().await.expect("it cannot fail").call(request).await.expect("it cannot fail");
        assert_eq!(response.status(), 200);
    }
    began.elapsed() / REQUESTS
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
