//! How a lease is asked for: one builder, whose timing is checked before anything is sent.

use std::future::Future;
use std::time::Duration;

use leasehold_core::command::Terms;
use leasehold_core::holder::{NextStep, Timing};
use leasehold_core::lease::Access;
use leasehold_core::limits::{HOLD_MAX, METADATA_BYTES, TTL_MAX_EVER, TTL_MIN, WAIT_MAX};
use leasehold_core::name::{HolderName, Name};

use crate::failure::Asked;
use crate::holder::{Ask, Given, Wanted};
use crate::look::checked;
use crate::{Client, Error, Failure, Guard, Hold};

/// How long a renewal lasts for those who do not say, if their session lives that long.
const TTL: Duration = Duration::from_secs(30);

/// A lease to be asked for. Nothing happens before [`Lock::acquire`].
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for before it is acquired"]
pub struct Lock {
    client: Client,
    resources: Vec<String>,
    holder: Option<String>,
    access: Access,
    slots: Option<u32>,
    ttl: Option<Duration>,
    every: Option<Duration>,
    wait: Duration,
    priority: u8,
    max_hold: Option<Duration>,
    progress: Option<Duration>,
    metadata: Vec<u8>,
}

impl Client {
    /// A lease on a resource: exclusive, for thirty seconds a renewal, not waited for, unless said otherwise.
    pub fn lock(&self, resource: impl Into<String>) -> Lock {
        Lock {
            client: self.clone(),
            resources: vec![resource.into()],
            holder: None,
            access: Access::Exclusive,
            slots: None,
            ttl: None,
            every: None,
            wait: Duration::ZERO,
            priority: Terms::PRIORITY,
            max_hold: None,
            progress: None,
            metadata: Vec::new(),
        }
    }
}

impl Lock {
    /// And this one too, on the same terms: all or none, taken by [`Lock::acquire_all`].
    pub fn and(mut self, resource: impl Into<String>) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// How long a renewal lasts. A lease ends with its client's session, so not longer than [`crate::Options::session`].
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often it is renewed, if not after a third of the ttl.
    pub const fn renew_every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// How long to wait for it.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Who holds it, as an actor of its own: what one actor holds it does not get again. Without a name every guard of a
    /// client is an actor of its own.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Higher goes first.
    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// The longest it may be held, renewed or not.
    pub const fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// The lease ends as stalled unless [`Hold::progress`] rises at least this often.
    pub const fn progress(mut self, window: Duration) -> Self {
        self.progress = Some(window);
        self
    }

    /// As a reader among readers.
    pub const fn shared(mut self) -> Self {
        self.access = Access::Shared;
        self
    }

    /// One of so many slots.
    pub const fn slot_of(mut self, slots: u32) -> Self {
        self.access = Access::Slot;
        self.slots = Some(slots);
        self
    }

    /// So many units of the resource's capacity.
    pub const fn units(mut self, units: u32) -> Self {
        self.access = Access::Units(units);
        self
    }

    /// Bytes for people and discovery.
    pub fn metadata(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata = bytes.into();
        self
    }

    /// Takes the lease, now or after waiting. The guard that comes back holds. Dropping this future takes everything back:
    /// a wait is cancelled, and a grant that was under way is given back.
    pub async fn acquire(&self) -> Result<Guard, Failure<Guard>> {
        if self.resources.len() > 1 {
            return Err(Error::invalid("resource", "several are taken with `acquire_all`").into());
        }
        let read = |given| match given {
            Given::Guards(mut guards) => guards.pop().ok_or_else(|| Error::garbled("a grant of nothing")),
            _ => Err(Error::garbled("another answer than a grant")),
        };
        self.ask(read).await?.outcome().await
    }

    /// Takes all of them in one step, in the order they were named, or none. Where waiting for them would close a circle of
    /// holders who wait for each other, one is told so, with the circle.
    pub async fn acquire_all(&self) -> Result<Vec<Guard>, Failure<Vec<Guard>>> {
        let read = |given| match given {
            Given::Guards(guards) => Ok(guards),
            _ => Err(Error::garbled("another answer than a grant")),
        };
        self.ask(read).await?.outcome().await
    }

    async fn ask<T>(&self, read: fn(Given) -> Result<T, Error>) -> Result<Asked<T>, Error> {
        let wanted = Box::new(self.wanted()?);
        let handle = self.client.handle()?;
        handle.ask(|by, handle| Ask::Acquire { by, wanted, handle }, read).await
    }

    /// Takes the lease and runs the work under it, again and again until the work was done in one go. A lease that expired
    /// is asked for again; one that was revoked never is (L6).
    pub async fn run<T, F, W>(&self, mut work: F) -> Result<T, Error>
    where
        F: FnMut(Hold) -> W,
        W: Future<Output = T>,
    {
        loop {
            let guard = self.acquire().await.map_err(Failure::into_error)?;
            match guard.run(&mut work).await {
                Ok(done) => return Ok(done),
                Err(stopped) if stopped.next_step() == NextStep::AcquireAgain => {}
                Err(stopped) => return Err(stopped.into()),
            }
        }
    }

    /// What is asked for, if it can be: timing that must fail is refused here, before anybody is asked.
    fn wanted(&self) -> Result<Wanted, Error> {
        for resource in &self.resources {
            checked(Name::parse(resource))?;
        }
        if self.slots.is_some() && self.resources.len() > 1 {
            return Err(Error::invalid("slots", "of several the capacities are set before, not with the wish"));
        }
        if let Some(holder) = &self.holder {
            checked(HolderName::parse(holder))?;
        }
        let session = self.client.shared.options.session;
        let ttl = self.ttl.unwrap_or(TTL.min(session));
        if ttl > session {
            let (ttl, most) = (millis(ttl), millis(session));
            let reason =
                format_args!("{ttl} ms; a lease ends with its session, so at most {most} ms, or a longer session");
            return Err(Error::invalid("ttl", reason));
        }
        let mut timing = Timing::new(millis(ttl), self.client.shared.options.rate_error)
            .map_err(|wrong| Error::invalid("ttl", wrong))?;
        if let Some(every) = self.every {
            timing = timing.every(millis(every)).map_err(|wrong| Error::invalid("renew_every", wrong))?;
        }
        let wait_ms = within("wait", self.wait, 0, WAIT_MAX)?;
        let max_hold_ms = self.max_hold.map(|most| within("max_hold", most, TTL_MIN, HOLD_MAX)).transpose()?;
        let progress_ms = self.progress.map(|window| within("progress", window, TTL_MIN, TTL_MAX_EVER)).transpose()?;
        if self.metadata.len() > METADATA_BYTES {
            return Err(Error::invalid("metadata", format_args!("at most {METADATA_BYTES} bytes")));
        }
        Ok(Wanted {
            resources: self.resources.iter().map(|resource| resource.as_str().into()).collect(),
            holder: self.holder.clone(),
            access: self.access,
            slots: self.slots,
            timing,
            wait_ms,
            priority: self.priority,
            max_hold_ms,
            progress_ms,
            metadata: self.metadata.clone(),
        })
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn within(field: &str, given: Duration, least: u64, most: u64) -> Result<u64, Error> {
    let ms = millis(given);
    if (least..=most).contains(&ms) {
        Ok(ms)
    } else {
        Err(Error::invalid(field, format_args!("{ms} ms; choose from {least} ms to {most} ms")))
    }
}
