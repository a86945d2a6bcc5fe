//! A write: meant, waited for until nobody reads, done, and made visible.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::payload::cache;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::Number;
use tokio::sync::Notify;

use super::{Cache, Inner};
use crate::holder::{Alive, Undo};
use crate::{Code, Error};

/// The pause before a key that somebody else writes is asked for again, in milliseconds.
const PAUSE: u64 = 20;
/// How often it is asked anew whether somebody still reads, in milliseconds: the word that nobody does can get lost.
const LOOK_EVERY: u64 = 1_000;
/// Words that nobody reads any more, kept for writers who have not asked yet.
const CLEARS: usize = 1_024;

/// The right to write a key. Show its number at the target: a writer that was late must be refused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Its place in the order of all grants.
    pub number: Number,
}

/// A write whose work has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Written<T> {
    /// What the work came to. Whether it says success or failure, copies from before it are not believed any more.
    pub done: T,
    /// The version that others see; an error if its time was over before the grantor was told, which raises the version too.
    pub version: Result<u64, Error>,
}

/// An intent that stands, and until when by this clock.
struct Standing {
    number: Number,
    until: Instant,
    alive: Arc<Alive>,
    readers: u32,
    undo: Undo,
}

impl Standing {
    /// Its own, or its session's if that is nearer.
    fn deadline(&self) -> Instant {
        self.until.min(self.alive.get())
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Writes a key. The work begins when nobody has a copy that he may use: every reader dropped his, or ran out of time.
    /// It is dropped when the intent's own time is over. Another writer is waited for, for as long as is said.
    ///
    /// An error says that the work did not begin, or was dropped; then what it had sent may still arrive, and only a target
    /// that compares the number refuses it.
    pub async fn write<T, F, W>(&self, key: &str, wait: Duration, work: F) -> Result<Written<T>, Error>
    where
        F: FnOnce(Intent) -> W,
        W: Future<Output = T>,
    {
        let inner = &*self.inner;
        let give_up = inner.handle.clock.now().plus_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let mut standing = inner.intend(key, give_up).await?;
        while standing.readers > 0 || inner.is_over(&standing) {
            if standing.readers > 0 && inner.cleared(standing.number).await {
                standing.readers = 0;
                continue;
            }
            // Taken back and meant again: the answer tells how many still read.
            drop(standing);
            standing = inner.intend(key, give_up).await?;
        }
        let (number, mut undo) = (standing.number, std::mem::take(&mut standing.undo));
        let done = {
            let over = std::pin::pin!(inner.handle.over(|| standing.deadline()));
            // From here on something may have been written, so it is not taken back any more.
            undo.settled();
            let work = std::pin::pin!(work(Intent { number }));
            match select(over, work).await {
                Either::Left(_) => return Err(Error::from(&Refusal::Lost(leasehold_core::lease::Reason::Ttl))),
                Either::Right((done, _)) => done,
            }
        };
        let commit = cache::Command::Commit { key, intent: number };
        let version = inner.ask(key, commit).await.and_then(|(told, _)| match told {
            cache::Answer::Committed { version } => Ok(version),
            _ => Err(Error::garbled("another answer than to a commit")),
        });
        Ok(Written { done, version })
    }
}

impl<V: Send + Sync + 'static> Inner<V> {
    /// Means to write. Somebody else's intent is waited for.
    async fn intend(&self, key: &str, give_up: Instant) -> Result<Standing, Error> {
        // A copy of this process would be waited for like any other; it is dropped at once.
        self.copies.forget(key);
        loop {
            let command =
                cache::Command::Intend { key, session: None, writer: &self.handle.holder, ttl_ms: self.ttl_ms };
            let sent = self.handle.clock.now();
            match self.ask(key, command).await {
                Ok((cache::Answer::Intended { intent, waiting_for, .. }, spoken)) => {
                    let until = sent.plus_millis(self.rate.shorter(self.ttl_ms));
                    let (alive, undo) = (spoken.alive, spoken.undo);
                    return Ok(Standing { number: intent, until, alive, readers: waiting_for, undo });
                }
                Ok(_) => return Err(Error::garbled("another answer than to an intent")),
                Err(error) if error.code() == Some(Code::Busy) && self.handle.clock.now() < give_up => {
                    self.handle.sleep_ms(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether an intent's time is over by this clock, or its session's.
    fn is_over(&self, standing: &Standing) -> bool {
        self.handle.clock.now() >= standing.deadline()
    }

    /// Waits for the word that nobody reads any more; false if it is time to ask.
    async fn cleared(&self, intent: Number) -> bool {
        let told = std::pin::pin!(self.clears.wait(intent.get()));
        let look = std::pin::pin!(self.handle.sleep_ms(LOOK_EVERY.min(self.ttl_ms / 4)));
        matches!(select(told, look).await, Either::Left(_))
    }
}

/// Which intents nobody reads against any more.
#[derive(Debug, Default)]
pub(super) struct Clears {
    told: Mutex<BTreeSet<u64>>,
    changed: Notify,
}

impl Clears {
    pub(super) fn tell(&self, intent: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(intent);
        if told.len() > CLEARS {
            told.pop_first();
        }
        drop(told);
        self.changed.notify_waiters();
    }

    async fn wait(&self, intent: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listens before it looks, so that nothing told in between is missed.
            changed.as_mut().enable();
            if self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&intent) {
                return;
            }
            changed.await;
        }
    }
}
