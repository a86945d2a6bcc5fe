//! Copies that are read without asking, under read leases: a write waits until every copy was dropped or has run out.

mod copies;
mod fill;
mod write;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::command::{Answer, Command};
use leasehold_core::holder::Timing;
use leasehold_core::name::Name;
use leasehold_core::payload::cache;
use leasehold_core::time::Instant;

use crate::holder::{Handle, Listen, Spoken};
use crate::look::checked;
use crate::{Client, Error, Failure, RateError};
use copies::{Begun, Copies, Kept};
pub use fill::Unfilled;
pub use write::{Intent, Written};

/// How a cache is to be. Nothing happens before [`Caching::open`].
#[derive(Clone, Debug)]
#[must_use = "there is no cache before it is opened"]
pub struct Caching {
    client: Client,
    ttl: Duration,
    patience: Duration,
    most: usize,
}

/// Copies of what lies elsewhere, in this process. Cheap to clone; clones share their copies.
///
/// Every write of what is cached must go through [`Cache::write`], of this cache or another: whoever writes around it is
/// not seen.
pub struct Cache<V> {
    inner: Arc<Inner<V>>,
}

pub(super) struct Inner<V> {
    handle: Arc<Handle>,
    ttl_ms: u64,
    patience_ms: u64,
    rate: RateError,
    copies: Copies<V>,
    clears: write::Clears,
}

impl Client {
    /// A cache: copies live for thirty seconds, a grantor is waited for for one, and 10,000 copies are kept, unless said
    /// otherwise.
    pub fn cache(&self) -> Caching {
        let (ttl, patience) = (Duration::from_secs(30), Duration::from_secs(1));
        Caching { client: self.clone(), ttl, patience, most: 10_000 }
    }
}

impl Caching {
    /// How long a copy lives, and how long a write stands: for so long at most a reader that died holds a writer up.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a read waits for the grantor before it goes to the source without keeping what it finds.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How many copies are kept.
    pub const fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Opens it.
    pub fn open<V: Send + Sync + 'static>(&self) -> Result<Cache<V>, Error> {
        let options = &self.client.shared.options;
        let millis = |of: Duration| u64::try_from(of.as_millis()).unwrap_or(u64::MAX);
        let timing = Timing::new(millis(self.ttl), options.rate_error).map_err(|wrong| Error::invalid("ttl", wrong))?;
        if self.most == 0 {
            return Err(Error::invalid("most", "at least 1 copy"));
        }
        let handle = self.client.handle()?;
        let inner = Arc::new(Inner {
            ttl_ms: timing.ttl_ms(),
            patience_ms: millis(self.patience),
            rate: options.rate_error,
            copies: Copies::new(self.most),
            clears: write::Clears::default(),
            handle,
        });
        let weak = Arc::downgrade(&inner);
        inner.handle.listen(weak);
        Ok(Cache { inner })
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// What is kept of a key, if it may be used now.
    pub fn peek(&self, key: &str) -> Option<Arc<V>> {
        self.inner.copies.fresh(key, self.inner.handle.clock.now())
    }

    /// What is kept of a key; or else what `load` finds at the source, kept from then on. Tasks of this process that miss
    /// the same key together load it once. While somebody writes the key, and while no grantor can be asked, the source is
    /// asked every time and nothing is kept: a cache makes no read fail.
    pub async fn get<E, F, L>(&self, key: &str, load: F) -> Result<Arc<V>, E>
    where
        F: FnOnce() -> L,
        L: Future<Output = Result<V, E>>,
    {
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let flight = self.inner.copies.flight(key);
        let _alone = flight.alone().await;
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        // The lease comes before the look at the source: whoever writes after it waits for this copy.
        match self.inner.read(key).await {
            Some(Reading::Same(value)) => Ok(value),
            Some(Reading::New(lease)) => {
                let value = match load().await {
                    Ok(value) => Arc::new(value),
                    Err(error) => {
                        self.inner.copies.drop_copy(key, lease);
                        return Err(error);
                    }
                };
                self.inner.copies.loaded(key, lease, &value);
                Ok(value)
            }
            None => Ok(Arc::new(load().await?)),
        }
    }

    /// Drops a copy, and says so.
    pub fn forget(&self, key: &str) {
        self.inner.copies.forget(key);
    }
}

/// What a read lease is good for.
enum Reading<V> {
    /// The copy that ran out is still the newest.
    Same(Arc<V>),
    /// Look at the source, and keep what is found under this lease.
    New(u64),
}

impl<V: Send + Sync + 'static> Inner<V> {
    /// A read lease, if one is to be had now.
    async fn read(&self, key: &str) -> Option<Reading<V>> {
        let command = cache::Command::Read { key, session: None, reader: &self.handle.holder, ttl_ms: self.ttl_ms };
        let sent = self.handle.clock.now();
        let asking = std::pin::pin!(self.ask(key, command));
        let patience = std::pin::pin!(self.handle.sleep_ms(self.patience_ms));
        match select(asking, patience).await {
            Either::Left((Ok((told, spoken)), _)) => self.reading(key, sent, &told, spoken),
            Either::Left((Err(error), _)) => {
                tracing::debug!(key, "not cached: {error}");
                None
            }
            Either::Right(_) => None,
        }
    }

    fn reading(&self, key: &str, sent: Instant, told: &cache::Answer, spoken: Spoken) -> Option<Reading<V>> {
        let cache::Answer::Reading { version, lease, remaining_ms } = *told else { return None };
        let until = sent.plus_millis(self.rate.shorter(remaining_ms.min(self.ttl_ms)));
        let kept = Kept { version, lease: lease.get(), until, alive: spoken.alive, _undo: spoken.undo };
        match self.copies.begin(key, kept) {
            Begun::Same(value) => Some(Reading::Same(value)),
            Begun::Empty => Some(Reading::New(lease.get())),
            Begun::Over => None,
        }
    }

    /// Asks about a key in the client's session.
    async fn ask(&self, key: &str, command: cache::Command<'_>) -> Result<(cache::Answer, Spoken), Error> {
        checked(Name::parse(key))?;
        let spoken = self.handle.say(&Command::Cache(command)).await.map_err(Failure::into_error)?;
        match &spoken.answer {
            Answer::Cache(told) => Ok((**told, spoken)),
            _ => Err(Error::garbled("another answer than about a cached key")),
        }
    }
}

/// Copies are dropped on the thread that holds, so that a blocked event loop holds no writer up.
impl<V: Send + Sync> Listen for Inner<V> {
    fn heard(&self, event: &leasehold_core::command::Event) {
        use leasehold_core::command::Event;
        match event {
            Event::Invalidate { key, lease } => {
                let said = self.copies.invalidate(key, lease.get());
                // A copy says so itself when it goes; for one that was never taken it is said here.
                let gone = (!said).then_some(cache::Command::Invalidated { key, lease: *lease });
                gone.into_iter().for_each(|gone| self.handle.tell(&Command::Cache(gone)));
            }
            Event::Clear { intent, .. } => self.clears.tell(intent.get()),
            _ => {}
        }
    }
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<V> fmt::Debug for Inner<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("copies", &self.copies).finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("copies", &self.inner.copies).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
