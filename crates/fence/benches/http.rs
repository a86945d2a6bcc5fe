//! What the layer costs a request: the same service bare and behind the fence, turn by turn in one run.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http::{Request, Response};
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};
use leasehold_fence::http::{Bounds, Fence, Rules, Under};
use tower::{Layer, Service, ServiceExt};

/// Many short rounds: one that others interrupt falls out of the median.
const ROUNDS: usize = 5_000;
const REQUESTS: u32 = 20;
const CLUSTER: Cluster = Cluster(*b"benching");
const RESOURCE: &str = "jobs/settle";

fn main() {
    // Under `cargo test` a bench binary is only asked whether it starts.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let marks = dir.path().join("marks");
    let rules = Rules::new(Under::new(Name::parse(RESOURCE).expect("a name"), 0));
    Fence::arm(&marks, CLUSTER, &rules).expect("armed");
    let fence = Fence::open(&marks, CLUSTER, rules, Bounds::default()).expect("it opens");
    let number = Number::new(7).expect("a number");
    let resource = resource_hash(RESOURCE);
    let token = Token { cluster: CLUSTER, incarnation: Incarnation(1), resource, reach: Reach::Slot(0), number };
    let token = token.to_string();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut bare = tower::service_fn(answer::<String>);
        let mut fenced = fence.layer().layer(tower::service_fn(answer));
        let (mut alone, mut behind) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(time(&mut bare, &token).await);
            behind.push(time(&mut fenced, &token).await);
        }
        let (alone, behind) = (median(alone), median(behind));
        println!("a request, bare            {:>8.3} µs", micros(alone));
        println!("a request, behind the fence {:>7.3} µs", micros(behind));
        println!("the layer                  {:>8.3} µs", micros(behind.saturating_sub(alone)));
    });
}

async fn answer<B>(_: Request<B>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

/// One request of so many.
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

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}
