//! Sharding: N shards over M workers. Every shard has one owner at a time, workers rebalance by themselves, and a new owner
//! continues from the last checkpoint.

mod plan;
mod worker;

pub use worker::ShardWorker;

use std::fmt;
use std::future::{Future, pending};
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, join, select};
use futures::stream::FuturesUnordered;
use leasehold_core::name::Name;

use crate::{Client, Error, LeaseHandle, Lock, RequestError, StoredValue};

/// Default ttl.
const TTL: Duration = Duration::from_secs(30);
/// Default interval between rebalancing steps.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval: every step queries the grantor.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Key of a shard's checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// Segment of the resource that workers register at.
const WORKERS: &str = "workers";
/// Limit on the number of shards.
const MAX_SHARDS: u32 = 1 << 16;

/// A set of shards. Shard 7 of `orders` is the resource `orders/7`.
#[derive(Clone, Debug)]
#[must_use = "shards do nothing until `join` or `run`"]
pub struct Shards {
    client: Client,
    prefix: String,
    count: u32,
    ttl: Duration,
    poll_interval: Duration,
}

impl Client {
    /// A set of `count` shards. Every worker must use the same count.
    pub fn shards(&self, prefix: impl Into<String>, count: u32) -> Shards {
        Shards { client: self.clone(), prefix: prefix.into(), count, ttl: TTL, poll_interval: POLL_INTERVAL }
    }
}

impl Shards {
    /// Ttl of a shard's lease: how long a shard has no owner if its owner disappears.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Interval between rebalancing steps of a worker. Default: 1 s.
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Registers this client as a worker. [`ShardWorker::next_assignment`] returns its shards.
    pub async fn join(&self) -> Result<ShardWorker, Error> {
        Name::parse(&self.prefix)?;
        if self.count == 0 || self.count > MAX_SHARDS {
            return Err(Error::invalid("count", format_args!("{}; from 1 to {MAX_SHARDS} shards", self.count)));
        }
        if self.poll_interval < MIN_POLL_INTERVAL {
            let reason = format_args!("{:?}; at least {MIN_POLL_INTERVAL:?}", self.poll_interval);
            return Err(Error::invalid("poll_interval", reason));
        }
        ShardWorker::join(self.clone()).await
    }

    /// Runs the work for every shard that this client owns, until `stop` completes. The work is dropped when the shard's lease is
    /// suspended or lost. When a shard is to move, the work sees [`LeaseHandle::draining_started`], writes its last checkpoint
    /// and returns. On `stop`, all shards drain, and this waits for their work.
    pub async fn run<F, W>(&self, stop: impl Future<Output = ()>, work: F) -> Result<(), Error>
    where
        F: Fn(Shard) -> W,
        W: Future<Output = ()>,
    {
        let mut stop = pin!(stop);
        let mut worker = self.join().await?;
        let mut running = FuturesUnordered::new();
        loop {
            let assignment = {
                let finished = async {
                    match running.next().await {
                        Some(_) => None,
                        None => pending().await,
                    }
                };
                let next = async { Some(worker.next_assignment().await) };
                match select(stop.as_mut(), select(pin!(next), pin!(finished))).await {
                    Either::Left(_) => break,
                    Either::Right((Either::Left((assignment, _)) | Either::Right((assignment, _)), _)) => assignment,
                }
            };
            if let Some(assignment) = assignment {
                let (guard, shard) = assignment?;
                let work = &work;
                running.push(async move { guard.run(|_| work(shard)).await });
            }
        }
        join(worker.leave(), async { while running.next().await.is_some() {} }).await;
        Ok(())
    }

    fn name(&self, index: u32) -> String {
        format!("{}/{index}", self.prefix)
    }

    fn lock(&self, index: u32, worker: u64) -> Lock {
        self.client.lock(self.name(index)).ttl(self.ttl).metadata(worker.to_string())
    }
}

/// A shard that this client owns.
#[derive(Clone)]
pub struct Shard {
    index: u32,
    handle: LeaseHandle,
    client: Client,
}

impl Shard {
    /// Index of the shard, from 0.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The newest checkpoint with the token it was written under; none before the first. Waits until a draining predecessor is
    /// done, so that no newer checkpoint can follow.
    pub async fn resume(&self) -> Result<Option<StoredValue>, Error> {
        // The checkpoint is the only target, and this is the read after the claim.
        let _may_write = self.handle.wait_claimable().await?.claimed().read_again();
        let values = self.client.state_of(self.handle.resource()).await?;
        Ok(values.into_iter().find(|value| value.key == CHECKPOINT))
    }

    /// Writes a checkpoint under the token: a former owner cannot overwrite it. Returns the revision.
    pub async fn checkpoint(&self, bytes: &[u8]) -> Result<u64, RequestError<u64>> {
        self.handle.put(CHECKPOINT, bytes).await
    }
}

impl Deref for Shard {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("index", &self.index).field("lease", &self.handle).finish()
    }
}

#[cfg(test)]
mod tests;
