//! Guards of the client library under faults, against real servers and in real processes.

#[path = "../cluster/harness.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod harness;
mod indeterminate;
mod leader;
mod lease_end;
mod processes;
mod renewal;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod suspend;
mod waiting;

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Guard};
use leasehold_testkit::tcp_proxy::TcpProxy;
use servers::Server;
use support::TEST_TIMEOUT;

/// Ttl of leases that expire or nearly expire in a test. Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(2);

fn client(server: &Server, holder: &str) -> Client {
    builder(&server.addresses).holder(holder).build()
}

/// A client whose server may restart at another address.
fn proxied_client(server: &Server) -> (Client, TcpProxy) {
    let proxy = TcpProxy::start(&server.address);
    (builder(&proxy.address().to_string()).holder("w1").build(), proxy)
}

fn builder(address: &str) -> ClientBuilder {
    Client::builder(address).expect("a valid address")
}

async fn acquire(client: &Client, name: &str) -> Guard {
    client.lock(name).acquire().await.expect("the resource is free")
}

/// Polls until the condition holds, with a generous timeout.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "the condition did not become true in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Numbers of holders and waiters of a resource.
async fn holders_and_waiters(observer: &Client, name: &str) -> (u64, u64) {
    match observer.show(name).await {
        Ok(shown) => (shown.held, shown.waiters),
        Err(error) if error.code() == Some(leasehold::Code::NotFound) => (0, 0),
        Err(error) => panic!("{error}"),
    }
}
