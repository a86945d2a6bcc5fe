//! Overhead of the proxy: the same requests directly to the service and through the proxy, alternating in one run.

use std::time::{Duration, Instant};

use leasehold_fence::conformance::token;

use crate::http_client::HttpClient;
use crate::process_faults::run;
use crate::proxy::{ProxySetup, Service};

/// Argument that selects this role. It is not a test, because it asserts no time.
pub const ROLE: &str = "measure";
const ROUNDS: usize = 10;
const REQUESTS: u32 = 500;

pub fn measure() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
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

/// Time of all requests of concurrent callers, each on its own connection.
async fn time(address: &str, callers: u32) -> Duration {
    let began = Instant::now();
    let asking = (0..callers).map(|_| {
        let client = HttpClient::new(address);
        tokio::spawn(async move {
            for _ in 0..REQUESTS {
                let response = client.write(&token(7), "/echo", "a small body").await.expect("answered");
                assert_eq!(response.status, 200);
            }
        })
    });
    for one in asking.collect::<Vec<_>>() {
        one.await.expect("it ends");
    }
    began.elapsed()
}
