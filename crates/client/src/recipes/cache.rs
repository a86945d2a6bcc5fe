//! Consistent caches: copies under read leases are read without a request, and a write waits until every copy is dropped or has
//! expired.

mod entries;
mod fill;
mod write;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::command::{Answer, Command, SessionEvent};
use leasehold_core::holder::{ClockDrift, Timing};
use leasehold_core::name::Name;
use leasehold_core::payload::cache::{CacheAnswer, CacheCommand};
use leasehold_core::time::Instant;

use crate::lock_builder::millis;
use crate::session_worker::{SessionListener, SessionReply, WorkerHandle};
use crate::{Client, Error};
use entries::{CacheEntries, Inserted, ReadLease};
pub use fill::FillError;
pub use write::{CacheWrite, WriteIntent};

/// Settings of a cache. Nothing happens before [`CacheBuilder::build`].
#[derive(Clone, Debug)]
#[must_use = "a cache builder does nothing until `build`"]
pub struct CacheBuilder {
    client: Client,
    ttl: Duration,
    timeout: Duration,
    capacity: usize,
}

/// A cache of values from elsewhere, in this process. Cheap to clone; clones share their entries.
///
/// Every write of a cached value must go through [`Cache::write`] of this or another cache: readers do not see other writes.
pub struct Cache<V> {
    inner: Arc<CacheInner<V>>,
}

struct CacheInner<V> {
    worker: Arc<WorkerHandle>,
    ttl_ms: u64,
    timeout_ms: u64,
    clock_drift: ClockDrift,
    entries: CacheEntries<V>,
    clears: write::ClearedIntents,
}

impl Client {
    /// A cache. Defaults: a ttl of 30 s, a timeout of 1 s, and 10,000 entries.
    pub fn cache(&self) -> CacheBuilder {
        let (ttl, timeout) = (Duration::from_secs(30), Duration::from_secs(1));
        CacheBuilder { client: self.clone(), ttl, timeout, capacity: 10_000 }
    }
}

impl CacheBuilder {
    /// Ttl of an entry and of a write intent: how long a reader that died delays a writer at most.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a read waits for the grantor, before it loads the value without caching it.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limit on the number of entries.
    pub const fn capacity(mut self, limit: usize) -> Self {
        self.capacity = limit;
        self
    }

    /// Makes the cache.
    pub fn build<V: Send + Sync + 'static>(&self) -> Result<Cache<V>, Error> {
        let clock_drift = self.client.session_config().clock_drift;
        let timing = Timing::new(millis(self.ttl), clock_drift).map_err(|wrong| Error::invalid("ttl", wrong))?;
        if self.capacity == 0 {
            return Err(Error::invalid("capacity", "at least 1 entry"));
        }
        let inner = Arc::new(CacheInner {
            worker: self.client.worker()?,
            ttl_ms: timing.ttl_ms(),
            timeout_ms: millis(self.timeout),
            clock_drift,
            entries: CacheEntries::new(self.capacity),
            clears: write::ClearedIntents::default(),
        });
        let weak = Arc::downgrade(&inner);
        inner.worker.add_listener(weak);
        Ok(Cache { inner })
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// The cached value of a key, if it may be used now.
    pub fn peek(&self, key: &str) -> Option<Arc<V>> {
        self.inner.entries.get(key, self.inner.worker.clock.now())
    }

    /// The cached value of a key; otherwise loads it with `load` and caches it. Concurrent misses of one key in this process load
    /// it once. While a write of the key is in progress, or no grantor is reachable, every call loads the value and caches
    /// nothing: the cache never makes a read fail.
    pub async fn get<E, F, L>(&self, key: &str, load: F) -> Result<Arc<V>, E>
    where
        F: FnOnce() -> L,
        L: Future<Output = Result<V, E>>,
    {
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let flight = self.inner.entries.flight(key);
        let _single = flight.lock().await;
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        // The read lease precedes the load: a later writer waits for this entry.
        match self.inner.read(key).await {
            Some(ReadOutcome::Unchanged(value)) => Ok(value),
            Some(ReadOutcome::Load(lease)) => {
                let value = match load().await {
                    Ok(value) => Arc::new(value),
                    Err(error) => {
                        self.inner.entries.remove_lease(key, lease);
                        return Err(error);
                    }
                };
                self.inner.entries.set_value(key, lease, &value);
                Ok(value)
            }
            None => Ok(Arc::new(load().await?)),
        }
    }

    /// Removes an entry and ends its read lease.
    pub fn remove(&self, key: &str) {
        self.inner.entries.remove(key);
    }
}

/// What a new read lease allows.
enum ReadOutcome<V> {
    /// The expired entry is still the newest version.
    Unchanged(Arc<V>),
    /// Load the value and cache it under this lease.
    Load(u64),
}

impl<V: Send + Sync + 'static> CacheInner<V> {
    /// Requests a read lease; none if it is not granted now.
    async fn read(&self, key: &str) -> Option<ReadOutcome<V>> {
        let reader = &self.worker.holder;
        let command = CacheCommand::Read { key, session: None, reader, ttl_ms: self.ttl_ms };
        let sent = self.worker.clock.now();
        let request = std::pin::pin!(self.call(key, command));
        let timeout = std::pin::pin!(self.worker.sleep_ms(self.timeout_ms));
        match select(request, timeout).await {
            Either::Left((Ok((answer, reply)), _)) => self.insert(key, sent, &answer, reply),
            Either::Left((Err(error), _)) => {
                tracing::debug!(key, %error, "value not cached");
                None
            }
            Either::Right(_) => None,
        }
    }

    fn insert(&self, key: &str, sent: Instant, answer: &CacheAnswer, reply: SessionReply) -> Option<ReadOutcome<V>> {
        let CacheAnswer::Reading { version, lease, remaining_ms } = *answer else { return None };
        let until = sent.plus_millis(self.clock_drift.shrink(remaining_ms.min(self.ttl_ms)));
        let read_lease = ReadLease {
            version,
            lease: lease.get(),
            until,
            session: reply.session_deadline,
            _compensation: reply.compensation,
        };
        match self.entries.insert(key, read_lease) {
            Inserted::Unchanged(value) => Some(ReadOutcome::Unchanged(value)),
            Inserted::Empty => Some(ReadOutcome::Load(lease.get())),
            Inserted::Invalidated => None,
        }
    }

    /// Calls the grantor about a key in the client's session.
    async fn call(&self, key: &str, command: CacheCommand<'_>) -> Result<(CacheAnswer, SessionReply), Error> {
        Name::parse(key)?;
        let reply = self.worker.session_call(&Command::Cache(command)).await?;
        match &reply.answer {
            Answer::Cache(answer) => Ok((**answer, reply)),
            _ => Err(Error::invalid_reply("an answer other than about a cached key")),
        }
    }
}

/// Entries are dropped on the worker's thread, so that a blocked async runtime delays no writer.
impl<V: Send + Sync> SessionListener for CacheInner<V> {
    fn on_event(&self, event: &SessionEvent) {
        match event {
            // A dropped entry ends its lease itself; a lease without an entry is ended here.
            SessionEvent::Invalidate { key, lease } if !self.entries.invalidate(key, lease.get()) => {
                let invalidated = CacheCommand::Invalidated { key, lease: *lease };
                self.worker.send_command(&Command::Cache(invalidated));
            }
            SessionEvent::Clear { intent, .. } => self.clears.insert(intent.get()),
            _ => {}
        }
    }
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<V> fmt::Debug for CacheInner<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheInner").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("entries", &self.inner.entries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
