//! What a guard keeps to when things go wrong, against a real server over real connections and in real processes.

mod asleep;
mod ends;
#[path = "../../../server/tests/etcd_support/mod.rs"]
mod etcd_support;
mod keeps;
mod leads;
mod processes;
mod servers;
#[path = "../support/mod.rs"]
mod support;
#[path = "../cluster/trio.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod trio;
mod unknown;
mod waits;
#[path = "../support/way.rs"]
mod way;

use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints, Guard, Options};
use servers::Server;
use support::PATIENCE;
use way::Way;

/// Of leases that are to run out, or nearly; long enough for a machine that does other things too.
const TTL: Duration = Duration::from_secs(2);

fn client(server: &Server, holder: &str) -> Client {
    client_at(&server.everywhere, Options { holder: Some(holder.into()), ..Options::default() })
}

/// A client whose server may come back at another address.
async fn client_by_way(server: &Server) -> (Client, Way) {
    let way = Way::to(&server.address).await;
    (client_at(&way.address, Options { holder: Some("w1".into()), ..Options::default() }), way)
}

fn client_at(address: &str, options: Options) -> Client {
    Client::with(Endpoints::parse(address).expect("an address with a port"), options)
}

async fn acquire(client: &Client, name: &str) -> Guard {
    client.lock(name).acquire().await.expect("it is free")
}

/// Waits until it is so, with a generous bound.
async fn until(mut so: impl AsyncFnMut() -> bool) {
    let over = Instant::now() + PATIENCE;
    while !so().await {
        assert!(Instant::now() < over, "it never came to be so");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many hold a resource, and how many wait for it.
async fn crowd(looking: &Client, name: &str) -> (u64, u64) {
    match looking.show(name).await {
        Ok(shown) => (shown.held, shown.waiters),
        Err(error) if error.code() == Some(leasehold::Code::NotFound) => (0, 0),
        Err(error) => panic!("{error}"),
    }
}
