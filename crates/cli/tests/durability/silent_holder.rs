//! Holders that stop renewing: their leases expire, never early, and stay ended.

use std::time::{Duration, Instant};

use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;

use crate::history::History;
use crate::transport::{Disconnected, GrpcClient, Reply, connect, held, reply, within};

/// A resource that a silent holder and its successors share. No sessions: each lease lives by its own ttl.
pub struct SilentHolder {
    resource: String,
    rng: SplitMix64,
    history: History,
    requests: u64,
    /// The lease of the holder that went silent.
    last: Option<v1::Grant>,
    ended: Vec<v1::Grant>,
    /// Number of expired leases.
    pub expired: usize,
}

impl SilentHolder {
    pub fn new(resource: String, rng: SplitMix64, history: History) -> Self {
        Self { resource, rng, history, requests: 0, last: None, ended: Vec::new(), expired: 0 }
    }

    /// Reconnects and checks that ended leases are still ended (L4).
    pub async fn recover(&mut self, address: &str) -> Result<GrpcClient, Disconnected> {
        let mut calls = connect(address).await?;
        for grant in self.ended.iter().rev().take(3) {
            self.assert_ended(&mut calls, grant).await?;
        }
        Ok(calls)
    }

    /// Repeatedly waits until the last lease has expired, acquires, renews a few times, and goes silent.
    pub async fn load(&mut self, mut calls: GrpcClient) -> Disconnected {
        loop {
            if let Err(gone) = self.succeed(&mut calls).await {
                return gone;
            }
        }
    }

    async fn succeed(&mut self, calls: &mut GrpcClient) -> Result<(), Disconnected> {
        let ttl_ms = 100 + self.rng.below(100);
        self.requests += 1;
        let (floor, renewed) = (self.history.floor(), Instant::now());
        let request = v1::Acquire {
            resource: self.resource.clone(),
            holder: "silent".into(),
            ttl_ms: Some(ttl_ms),
            options: Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() }),
            ..Default::default()
        };
        let grant = match reply(within(calls.acquire(request)).await, |grant| Reply::Granted(Box::new(grant)))? {
            Reply::Granted(grant) => *grant,
            other => panic!("{}: {other:?}", self.resource),
        };
        let now = Instant::now();
        if let Some(last) = self.last.take() {
            self.history.expired(last.token_number, now);
            self.record_end(calls, last).await?;
        }
        let (number, ttl) = (grant.token_number, Duration::from_millis(ttl_ms));
        self.history.granted(&self.resource, &(self.resource.clone(), self.requests), number, floor);
        self.history.valid_for(number, renewed, ttl);
        for _ in 0..self.rng.below(3) {
            tokio::time::sleep(Duration::from_millis(self.rng.below(30))).await;
            let renewed = Instant::now();
            let renew = v1::Renew { lease: Some(held(&self.resource, &grant.token)), ..Default::default() };
            match reply(within(calls.renew(renew)).await, |current| Reply::Current(current.token_number)) {
                Ok(Reply::Current(current)) => {
                    assert_eq!(current, number);
                    self.history.valid_for(number, renewed, ttl);
                }
                // The machine was busy for longer than the ttl.
                Ok(lost) => {
                    assert_eq!(lost, Reply::refused("LEASE_LOST", "ttl"));
                    self.history.expired(number, Instant::now());
                    return self.record_end(calls, grant).await;
                }
                Err(gone) => {
                    self.last = Some(grant);
                    return Err(gone);
                }
            }
        }
        self.last = Some(grant);
        Ok(())
    }

    async fn record_end(&mut self, calls: &mut GrpcClient, grant: v1::Grant) -> Result<(), Disconnected> {
        self.history.ending(&self.resource, grant.token_number);
        let number = grant.token_number;
        self.expired += 1;
        self.ended.push(grant);
        self.assert_ended(calls, self.ended.last().expect("just pushed")).await?;
        self.history.ended(number, "ttl");
        Ok(())
    }

    async fn assert_ended(&self, calls: &mut GrpcClient, grant: &v1::Grant) -> Result<(), Disconnected> {
        let renew = v1::Renew { lease: Some(held(&self.resource, &grant.token)), ..Default::default() };
        let reply = reply(within(calls.renew(renew)).await, |current| Reply::Current(current.token_number))?;
        assert_eq!(reply, Reply::refused("LEASE_LOST", "ttl"), "{} of {} (L4)", grant.token_number, self.resource);
        Ok(())
    }
}
