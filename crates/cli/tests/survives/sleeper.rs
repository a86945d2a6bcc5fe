//! Holders that fall silent: their leases run out, never early, and once told over they stay over.

use std::time::{Duration, Instant};

use leasehold_wire::v1;

use crate::chance::Chance;
use crate::history::History;
use crate::link::{Calls, Gone, Told, connect, held, told, within};

/// One name that a silent holder and its successors share. Nobody has a session here: a lease lives by its own ttl.
pub struct Sleeper {
    resource: String,
    chance: Chance,
    history: History,
    asked: u64,
    /// A lease whose holder does nothing any more.
    last: Option<v1::Grant>,
    over: Vec<v1::Grant>,
    /// Leases that ran out.
    pub expired: usize,
}

impl Sleeper {
    /// On a name of its own.
    pub fn new(resource: String, chance: Chance, history: History) -> Self {
        Self { resource, chance, history, asked: 0, last: None, over: Vec::new(), expired: 0 }
    }

    /// What was told over is over, whatever happened since (L4).
    pub async fn recover(&mut self, address: &str) -> Result<Calls, Gone> {
        let mut calls = connect(address).await?;
        for grant in self.over.iter().rev().take(3) {
            self.is_over(&mut calls, grant).await?;
        }
        Ok(calls)
    }

    /// Waits until the last holder's lease has run out, holds, renews a little, and falls silent; again and again.
    pub async fn load(&mut self, mut calls: Calls) -> Gone {
        loop {
            if let Err(gone) = self.succeed(&mut calls).await {
                return gone;
            }
        }
    }

    async fn succeed(&mut self, calls: &mut Calls) -> Result<(), Gone> {
        let ttl_ms = 100 + self.chance.below(100);
        self.asked += 1;
        let (floor, renewed) = (self.history.floor(), Instant::now());
        let ask = v1::Acquire {
            resource: self.resource.clone(),
            holder: "sleeper".into(),
            ttl_ms: Some(ttl_ms),
            terms: Some(v1::Terms { wait_ms: 60_000, ..Default::default() }),
            ..Default::default()
        };
        let grant = match told(within(calls.acquire(ask)).await, |grant| Told::Granted(Box::new(grant)))? {
            Told::Granted(grant) => *grant,
            other => panic!("{}: {other:?}", self.resource),
        };
        let now = Instant::now();
        if let Some(last) = self.last.take() {
            self.history.ran_out(last.token_number, now);
            self.over(calls, last).await?;
        }
        let (number, ttl) = (grant.token_number, Duration::from_millis(ttl_ms));
        self.history.granted(&self.resource, &(self.resource.clone(), self.asked), number, floor);
        self.history.lasts(number, renewed, ttl);
        for _ in 0..self.chance.below(3) {
            tokio::time::sleep(Duration::from_millis(self.chance.below(30))).await;
            let renewed = Instant::now();
            let renew = v1::Renew { held: Some(held(&self.resource, &grant.token)), ..Default::default() };
            match told(within(calls.renew(renew)).await, |current| Told::Current(current.token_number)) {
                Ok(Told::Current(current)) => {
                    assert_eq!(current, number);
                    self.history.lasts(number, renewed, ttl);
                }
                // This machine was busy for longer than the ttl.
                Ok(lost) => {
                    assert_eq!(lost, Told::refused("LEASE_LOST", "ttl"));
                    self.history.ran_out(number, Instant::now());
                    return self.over(calls, grant).await;
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

    async fn over(&mut self, calls: &mut Calls, grant: v1::Grant) -> Result<(), Gone> {
        self.history.ending(&self.resource, grant.token_number);
        let number = grant.token_number;
        self.expired += 1;
        self.over.push(grant);
        self.is_over(calls, self.over.last().expect("just put there")).await?;
        self.history.ended(number, "ttl");
        Ok(())
    }

    async fn is_over(&self, calls: &mut Calls, grant: &v1::Grant) -> Result<(), Gone> {
        let renew = v1::Renew { held: Some(held(&self.resource, &grant.token)), ..Default::default() };
        let told = told(within(calls.renew(renew)).await, |current| Told::Current(current.token_number))?;
        assert_eq!(told, Told::refused("LEASE_LOST", "ttl"), "{} of {} (L4)", grant.token_number, self.resource);
        Ok(())
    }
}
