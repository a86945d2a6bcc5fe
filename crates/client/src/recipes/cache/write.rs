//! Writes: announce the intent, wait until no reader has a valid copy, write, and publish the new version.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::holder::Loss;
use leasehold_core::lease::EndReason;
use leasehold_core::payload::cache::{CacheAnswer, CacheCommand};
use leasehold_core::time::Instant;
use leasehold_core::token::Number;
use tokio::sync::Notify;

use super::{Cache, CacheInner};
use crate::lock_builder::millis;
use crate::session_worker::{CompensateOnDrop, SessionDeadline};
use crate::{Code, Error};

/// Pause before a key that another writer holds is tried again, in milliseconds.
const PAUSE: u64 = 20;
/// How often a waiting writer asks again whether readers remain, in milliseconds: the event can be lost.
const POLL_INTERVAL: u64 = 1_000;
/// Limit on remembered events for writers that do not wait yet.
const MAX_CLEARED: usize = 1_024;

/// The right to write a key. Present its number at the target, which must reject a late writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteIntent {
    /// Token number of the intent.
    pub number: Number,
}

/// A finished write.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CacheWrite<T> {
    /// Output of the work. Whether it is a success or a failure, earlier copies are no longer valid.
    pub output: T,
    /// The new version. An error means that the intent expired before the commit, which raises the version, too.
    pub version: Result<u64, Error>,
}

/// A granted intent and its local deadline.
struct GrantedIntent {
    number: Number,
    until: Instant,
    session: Arc<SessionDeadline>,
    readers: u32,
    compensation: CompensateOnDrop,
}

impl GrantedIntent {
    /// The earlier deadline of the intent and its session.
    fn deadline(&self) -> Instant {
        self.until.min(self.session.get())
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Writes a key. The work starts when no reader has a valid copy: every reader has dropped its copy, or its time is over. The
    /// work is dropped when the intent expires. Waits up to `wait` for another writer.
    ///
    /// An error means that the work did not start, or was dropped. In the latter case its writes may still arrive; only a target
    /// that compares the number rejects them.
    pub async fn write<T, F, W>(&self, key: &str, wait: Duration, work: F) -> Result<CacheWrite<T>, Error>
    where
        F: FnOnce(WriteIntent) -> W,
        W: Future<Output = T>,
    {
        let inner = &*self.inner;
        let give_up = inner.worker.clock.now().plus_millis(millis(wait));
        let mut intent = inner.intend(key, give_up).await?;
        while intent.readers > 0 || inner.is_expired(&intent) {
            if intent.readers > 0 && inner.wait_cleared(intent.number).await {
                intent.readers = 0;
                continue;
            }
            // Aborts and announces it again: the answer contains the number of remaining readers.
            drop(intent);
            intent = inner.intend(key, give_up).await?;
        }
        let (number, mut compensation) = (intent.number, std::mem::take(&mut intent.compensation));
        let output = {
            let expired = std::pin::pin!(inner.worker.wait_deadline(|| intent.deadline()));
            // From here on something may be written, so the intent is not aborted any more.
            compensation.disarm();
            let work = std::pin::pin!(work(WriteIntent { number }));
            match select(expired, work).await {
                Either::Left(_) => return Err(Loss::Ended(EndReason::Ttl).into()),
                Either::Right((output, _)) => output,
            }
        };
        let commit = CacheCommand::Commit { key, intent: number };
        let version = inner.call(key, commit).await.and_then(|(answer, _)| match answer {
            CacheAnswer::Committed { version } => Ok(version),
            _ => Err(Error::invalid_reply("an answer other than to a commit")),
        });
        Ok(CacheWrite { output, version })
    }
}

impl<V: Send + Sync + 'static> CacheInner<V> {
    /// Announces a write. Waits for another writer.
    async fn intend(&self, key: &str, give_up: Instant) -> Result<GrantedIntent, Error> {
        // The writer would wait for a copy in its own process, too.
        self.entries.remove(key);
        loop {
            let writer = &self.worker.holder;
            let command = CacheCommand::Intend { key, session: None, writer, ttl_ms: self.ttl_ms };
            let sent = self.worker.clock.now();
            match self.call(key, command).await {
                Ok((CacheAnswer::Intended { intent, waiting_for, .. }, reply)) => {
                    let until = sent.plus_millis(self.clock_drift.shrink(self.ttl_ms));
                    let (session, compensation) = (reply.session_deadline, reply.compensation);
                    return Ok(GrantedIntent { number: intent, until, session, readers: waiting_for, compensation });
                }
                Ok(_) => return Err(Error::invalid_reply("an answer other than to an intent")),
                Err(error) if error.code() == Some(Code::Busy) && self.worker.clock.now() < give_up => {
                    self.worker.sleep_ms(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn is_expired(&self, intent: &GrantedIntent) -> bool {
        self.worker.clock.now() >= intent.deadline()
    }

    /// Waits for the event that no reader remains. Returns false when it is time to ask.
    async fn wait_cleared(&self, intent: Number) -> bool {
        let cleared = std::pin::pin!(self.clears.wait(intent.get()));
        let poll = std::pin::pin!(self.worker.sleep_ms(POLL_INTERVAL.min(self.ttl_ms / 4)));
        matches!(select(cleared, poll).await, Either::Left(_))
    }
}

/// Intents without remaining readers.
#[derive(Debug, Default)]
pub(super) struct ClearedIntents {
    intents: Mutex<BTreeSet<u64>>,
    changed: Notify,
}

impl ClearedIntents {
    pub(super) fn insert(&self, intent: u64) {
        let mut intents = self.intents.lock().unwrap_or_else(PoisonError::into_inner);
        intents.insert(intent);
        if intents.len() > MAX_CLEARED {
            intents.pop_first();
        }
        drop(intents);
        self.changed.notify_waiters();
    }

    async fn wait(&self, intent: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before it reads, so that no change in between is missed.
            changed.as_mut().enable();
            if self.intents.lock().unwrap_or_else(PoisonError::into_inner).remove(&intent) {
                return;
            }
            changed.await;
        }
    }
}
