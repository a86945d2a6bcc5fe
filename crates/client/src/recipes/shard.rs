//! N shards over M workers: each shard has one owner at a time, free ones are taken, too many are shared, and work goes on
//! where the last owner's checkpoint stands.

mod plan;
mod worker;

pub use worker::Worker;

use std::fmt;
use std::future::{Future, pending};
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, join, select};
use futures::stream::FuturesUnordered;
use leasehold_core::name::Name;

use crate::look::checked;
use crate::{Client, Error, Failure, Hold, Lock, Stored};

/// How long a renewal lasts for those who do not say.
const TTL: Duration = Duration::from_secs(30);
/// How often a worker looks at who has what.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest of that: looking is a question to the grantor.
const LOOK_LEAST: Duration = Duration::from_millis(10);
/// The key of a shard's checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// The segment under which workers say that they are there.
const WORKERS: &str = "workers";
/// Most shards of one set.
const MOST: u32 = 1 << 16;

/// A set of shards by the name of what is sharded. Shard 7 of `orders` is the resource `orders/7`.
#[derive(Clone, Debug)]
pub struct Shards {
    client: Client,
    prefix: String,
    count: u32,
    ttl: Duration,
    look: Duration,
}

impl Client {
    /// So many shards of something. Every worker says the same number.
    pub fn shards(&self, prefix: impl Into<String>, count: u32) -> Shards {
        Shards { client: self.clone(), prefix: prefix.into(), count, ttl: TTL, look: LOOK }
    }
}

impl Shards {
    /// How long a renewal lasts: how long a shard stands still if its owner vanishes without a word.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often a worker looks at who has what.
    #[must_use]
    pub const fn look_every(mut self, look: Duration) -> Self {
        self.look = look;
        self
    }

    /// Says that this client works here. Shards come with [`Worker::next`].
    pub async fn join(&self) -> Result<Worker, Error> {
        checked(Name::parse(&self.prefix))?;
        if self.count == 0 || self.count > MOST {
            return Err(Error::invalid("count", format_args!("{}; from 1 to {MOST} shards", self.count)));
        }
        if self.look < LOOK_LEAST {
            return Err(Error::invalid("look_every", format_args!("{:?}; at least {LOOK_LEAST:?}", self.look)));
        }
        Worker::join(self.clone()).await
    }

    /// Works until `stop` comes: every shard that this client gets is given to the work, which is dropped when the shard
    /// cannot be kept. When a shard is to move, the work sees [`Hold::leaving`], writes its last checkpoint and returns. On
    /// `stop` all of them are told so, and are waited for.
    pub async fn run<F, W>(&self, stop: impl Future<Output = ()>, work: F) -> Result<(), Error>
    where
        F: Fn(Shard) -> W,
        W: Future<Output = ()>,
    {
        let mut stop = pin!(stop);
        let mut worker = self.join().await?;
        let mut works = FuturesUnordered::new();
        loop {
            let gained = {
                let ended = async {
                    match works.next().await {
                        Some(_) => None,
                        None => pending().await,
                    }
                };
                let next = async { Some(worker.next().await) };
                match select(stop.as_mut(), select(pin!(next), pin!(ended))).await {
                    Either::Left(_) => break,
                    Either::Right((Either::Left((gained, _)) | Either::Right((gained, _)), _)) => gained,
                }
            };
            if let Some(gained) = gained {
                let (guard, shard) = gained?;
                let work = &work;
                works.push(async move { guard.run(|_| work(shard)).await });
            }
        }
        join(worker.leave(), async { while works.next().await.is_some() {} }).await;
        Ok(())
    }

    fn name(&self, index: u32) -> String {
        format!("{}/{index}", self.prefix)
    }

    fn lock(&self, index: u32, seat: u64) -> Lock {
        self.client.lock(self.name(index)).ttl(self.ttl).metadata(seat.to_string())
    }
}

/// A shard that this client owns, as its work sees it.
#[derive(Clone)]
pub struct Shard {
    index: u32,
    hold: Hold,
    client: Client,
}

impl Shard {
    /// Which of the shards, from 0.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Where to go on: the newest checkpoint with the token it was written under, none if there never was one. Waits until a
    /// predecessor that still drains is done, so that nothing newer can follow.
    pub async fn resume(&self) -> Result<Option<Stored>, Error> {
        // The checkpoint is the only target here, and this read is the one after the claim.
        let _may_write = self.hold.may_claim().await?.claimed().read_again();
        let stored = self.client.state_of(self.hold.resource()).await?;
        Ok(stored.into_iter().find(|stored| stored.key == CHECKPOINT))
    }

    /// Puts on record how far the work is, under the token: an owner that is over writes nothing any more. Returns the
    /// revision.
    pub async fn checkpoint(&self, bytes: &[u8]) -> Result<u64, Failure<u64>> {
        self.hold.put(CHECKPOINT, bytes).await
    }
}

impl Deref for Shard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("index", &self.index).field("hold", &self.hold).finish()
    }
}

#[cfg(test)]
mod tests;
