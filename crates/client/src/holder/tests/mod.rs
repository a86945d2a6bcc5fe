//! The holder against the real grantor in memory: what is promised when things go wrong, without a real second passing.

mod ending;
mod keeping;
mod waiting;

use std::time::Duration;

use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Failure, Guard};

const TTL: Duration = Duration::from_secs(3);

fn acquire(client: &Client, name: &str) -> Result<Guard, Failure<Guard>> {
    block_on(client.lock(name).ttl(TTL).acquire())
}

fn held(grantor: &Grantor, name: &str) -> usize {
    grantor.show(name).map_or(0, |shown| shown.leases.len())
}

fn waiters(grantor: &Grantor, name: &str) -> usize {
    grantor.show(name).map_or(0, |shown| shown.waiters)
}

/// Waits for what other threads do, with a generous bound.
#[track_caller]
fn until(mut happened: impl FnMut() -> bool) {
    let over = std::time::Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < over, "it never happened");
        std::thread::yield_now();
    }
}
