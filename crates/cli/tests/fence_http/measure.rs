//! What the proxy costs: the same requests straight to the service and through the fence, turn by turn in one run.

use std::time::{Duration, Instant};

use leasehold_fence::conformance::token;

use crate::proxy::{Place, Service};
use crate::stories::play;
use crate::way::Way;

/// The word by which this is asked for: it is no test, because it asserts no time.
pub const PART: &str = "measure";
const ROUNDS: usize = 10;
const REQUESTS: u32 = 500;

pub fn measure() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&[]));
        let proxy = place.start(&service.address);
        for callers in [1, 8] {
            let (mut direct, mut fenced) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                direct.push(time(&service.address, callers).await);
                fenced.push(time(&proxy.address, callers).await);
            }
            for (name, mut rounds) in [("direct", direct), ("through the fence", fenced)] {
                rounds.sort_unstable();
                let each = rounds[ROUNDS / 2] / REQUESTS;
                let rate = f64::from(callers) / each.as_secs_f64();
                println!(
                    "{callers} callers, {name}: {:.0} µs a request, {rate:.0} requests/s",
                    each.as_secs_f64() * 1e6
                );
            }
        }
    });
}

/// How long each of so many callers takes for its requests, on a connection of its own.
async fn time(address: &str, callers: u32) -> Duration {
    let began = Instant::now();
    let asking = (0..callers).map(|_| {
        let way = Way::to(address);
        tokio::spawn(async move {
            for _ in 0..REQUESTS {
                let heard = way.writes(&token(7), "/echo", "a small body").await.expect("answered");
                assert_eq!(heard.status, 200);
            }
        })
    });
    for one in asking.collect::<Vec<_>>() {
        one.await.expect("it ends");
    }
    began.elapsed()
}
