//! The client library's recipes against a real server.

mod cache;
mod credential;
mod delivery;
mod discovery;
mod leader;
mod lock;
mod pages;
mod pin;
mod reservation;
mod shard;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use leasehold::Client;
use support::{Server, TEST_TIMEOUT};

/// Ttl of leases that are to expire. Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(2);

fn client(server: &Server, holder: &str) -> Client {
    client_at(&server.address, holder)
}

/// A client of a proxy, for a server that restarts at another address.
fn client_at(address: &str, holder: &str) -> Client {
    Client::builder(address).expect("a valid address").holder(holder).build()
}

/// Awaits a future with a generous timeout.
async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("completes within the timeout")
}

/// Polls until the condition holds, with a generous timeout.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "the condition did not become true in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The number of waiters for a resource.
async fn waiters(client: &Client, name: &str) -> u64 {
    client.show(name).await.map_or(0, |resource| resource.waiters)
}
