//! Recipes of those who work (who may, who leads, who has the message, the shard, the seats), against a real server.

mod delivery;
mod leader;
mod lock;
mod reservation;
mod shard;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/way.rs"]
mod way;

use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints, Options};
use support::{PATIENCE, Server};

fn client(server: &Server, holder: &str) -> Client {
    client_at(&server.address, holder)
}

/// A client over a way, for a server that comes back at another address.
fn client_at(address: &str, holder: &str) -> Client {
    let options = Options { holder: Some(holder.into()), ..Options::default() };
    Client::with(Endpoints::parse(address).expect("an address with a port"), options)
}

/// Waits for something that comes, with a generous bound.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it never came")
}

/// Waits until it is so, with a generous bound.
async fn until(mut so: impl AsyncFnMut() -> bool) {
    let over = Instant::now() + PATIENCE;
    while !so().await {
        assert!(Instant::now() < over, "it never came to be so");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many wait for a resource.
async fn waiters(looking: &Client, name: &str) -> u64 {
    looking.show(name).await.map_or(0, |shown| shown.waiters)
}
