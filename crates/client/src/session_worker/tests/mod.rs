//! The session worker against the in-memory grantor, without real time.

mod lease_end;
mod renewal;
mod waiting;

use std::time::Duration;

use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Client, Guard, RequestError};

const TTL: Duration = Duration::from_secs(3);

fn acquire(client: &Client, name: &str) -> Result<Guard, RequestError<Guard>> {
    block_on(client.lock(name).ttl(TTL).acquire())
}

fn held(server: &TestServer, name: &str) -> usize {
    server.show(name).map_or(0, |view| view.leases.len())
}

fn waiters(server: &TestServer, name: &str) -> usize {
    server.show(name).map_or(0, |view| view.waiters)
}

/// Waits for other threads, with a generous bound.
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let timeout = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < timeout, "the condition did not become true in time");
        std::thread::yield_now();
    }
}
