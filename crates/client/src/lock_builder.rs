//! The lock builder: describes the leases to acquire. Its timing is validated before anything is sent.

use std::future::Future;
use std::time::Duration;

use leasehold_core::command::AcquireOptions;
use leasehold_core::holder::{NextStep, Timing};
use leasehold_core::lease::Access;
use leasehold_core::limits::{HOLD_MAX, METADATA_BYTES, TTL_MAX_EVER, TTL_MIN, WAIT_MAX};
use leasehold_core::name::{HolderName, Name};
use leasehold_core::time::DurationText;
use leasehold_core::trace_context::TraceContext;

use crate::session_worker::{AcquireSpec, Job, PendingCall, Response};
use crate::{Client, Error, Guard, LeaseHandle, RequestError};

/// Default ttl, unless the session is shorter.
const TTL: Duration = Duration::from_secs(30);

/// Error of an acquire request.
pub type AcquireError = RequestError<Guard>;

/// A lease to acquire. Nothing is sent before [`Lock::acquire`]. It can be used again.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until `acquire`"]
pub struct Lock {
    client: Client,
    resources: Vec<String>,
    holder: Option<String>,
    access: Access,
    slots: Option<u32>,
    ttl: Option<Duration>,
    renew_every: Option<Duration>,
    wait: Duration,
    priority: u8,
    max_hold: Option<Duration>,
    progress: Option<Duration>,
    metadata: Vec<u8>,
    trace: Option<TraceContext>,
}

impl Client {
    /// A lease on a resource. Defaults: exclusive, a ttl of 30 seconds, without waiting.
    pub fn lock(&self, resource: impl Into<String>) -> Lock {
        Lock {
            client: self.clone(),
            resources: vec![resource.into()],
            holder: None,
            access: Access::Exclusive,
            slots: None,
            ttl: None,
            renew_every: None,
            wait: Duration::ZERO,
            priority: AcquireOptions::DEFAULT_PRIORITY,
            max_hold: None,
            progress: None,
            metadata: Vec::new(),
            trace: self.servers.trace,
        }
    }
}

impl Lock {
    /// Adds another resource with the same settings, for [`Lock::acquire_all`]: all or none.
    pub fn also(mut self, resource: impl Into<String>) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// Time until the lease expires unless it is renewed. At most the
    /// [session ttl](crate::ClientBuilder::session_ttl), because a lease ends with its session.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Renewal interval. Default: a third of the ttl.
    pub const fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// Time to wait for the lease while others hold it. Default: none, which fails with `BUSY`.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Names the actor that holds the lease: an actor does not acquire twice what it already holds. Without a name, every guard
    /// of a client is an actor of its own.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.holder = Some(name.into());
        self
    }

    /// Waiters with a higher priority are served first. Default: 100.
    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Longest time that the lease may be held, renewed or not.
    pub const fn max_hold(mut self, max: Duration) -> Self {
        self.max_hold = Some(max);
        self
    }

    /// The lease ends as stalled unless [`LeaseHandle::progress`] increases at least this often.
    pub const fn require_progress(mut self, every: Duration) -> Self {
        self.progress = Some(every);
        self
    }

    /// Acquires a shared (read) lease.
    pub const fn shared(mut self) -> Self {
        self.access = Access::Shared;
        self
    }

    /// Acquires one of `count` numbered slots.
    pub const fn slots(mut self, count: u32) -> Self {
        self.access = Access::Slot;
        self.slots = Some(count);
        self
    }

    /// Acquires units of the resource's capacity.
    pub const fn units(mut self, units: u32) -> Self {
        self.access = Access::Units(units);
        self
    }

    /// Metadata that queries show, at most 4,096 bytes.
    pub fn metadata(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata = bytes.into();
        self
    }

    /// The operation of a distributed trace that acquires the lease. The server keeps it in its audit log, and exports the hold as a
    /// span below that operation, if it exports spans. Default: the client's.
    pub const fn traceparent(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Acquires the lease, now or after waiting.
    ///
    /// Cancel-safe: dropping the future cancels the wait, and releases a lease whose grant is on its way.
    pub async fn acquire(&self) -> Result<Guard, AcquireError> {
        if self.resources.len() > 1 {
            return Err(Error::invalid("resource", "use `acquire_all` for several resources").into());
        }
        self.submit(|response| decode(response)?.pop().ok_or_else(|| Error::invalid_reply("an empty grant")))
            .await?
            .outcome()
            .await
    }

    /// Acquires all leases in one step, in the order in which they were added, or none. If waiting would close a cycle of waiting
    /// holders, one of them is refused with `DEADLOCK` and the cycle.
    ///
    /// Cancel-safe, like [`Lock::acquire`].
    pub async fn acquire_all(&self) -> Result<Vec<Guard>, RequestError<Vec<Guard>>> {
        self.submit(decode).await?.outcome().await
    }

    async fn submit<T>(&self, decode: fn(Response) -> Result<T, Error>) -> Result<PendingCall<T>, Error> {
        let spec = Box::new(self.spec()?);
        self.client.worker()?.call(|slot, worker| Job::Acquire { slot, spec, worker }, decode).await
    }

    /// Acquires the lease and runs the work under it, again and again until the work is finished. Reacquires a lease that expired;
    /// never one that was revoked (L6).
    pub async fn run<T, F, W>(&self, mut work: F) -> Result<T, Error>
    where
        F: FnMut(LeaseHandle) -> W,
        W: Future<Output = T>,
    {
        loop {
            match self.acquire().await?.run(&mut work).await {
                Ok(output) => return Ok(output),
                Err(stopped) if stopped.next_step() == NextStep::AcquireAgain => {}
                Err(stopped) => return Err(stopped.into()),
            }
        }
    }

    /// Like [`Lock::run`], for work that can fail: its error ends the loop and is returned.
    pub async fn run_try<T, E, F, W>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnMut(LeaseHandle) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.run(work).await?
    }

    /// Validates the settings before anything is sent.
    fn spec(&self) -> Result<AcquireSpec, Error> {
        for resource in &self.resources {
            Name::parse(resource)?;
        }
        if self.slots.is_some() && self.resources.len() > 1 {
            return Err(Error::invalid("slots", "set the capacities first; a request for several resources cannot"));
        }
        if let Some(holder) = &self.holder {
            HolderName::parse(holder)?;
        }
        let config = self.client.session_config();
        let ttl = self.ttl.unwrap_or(TTL.min(config.ttl));
        if ttl > config.ttl {
            let (ttl, max) = (millis(ttl), millis(config.ttl));
            let reason = format!(
                "{} is not allowed; a lease ends with its session, so at most {}, or a longer session_ttl",
                DurationText(ttl),
                DurationText(max)
            );
            return Err(Error::invalid("ttl", reason));
        }
        let mut timing = Timing::new(millis(ttl), config.clock_drift).map_err(|wrong| Error::invalid("ttl", wrong))?;
        if let Some(interval) = self.renew_every {
            timing = timing.with_interval(millis(interval)).map_err(|wrong| Error::invalid("renew_every", wrong))?;
        }
        let wait_ms = millis_within("wait", self.wait, 0, WAIT_MAX)?;
        let max_hold_ms = self.max_hold.map(|max| millis_within("max_hold", max, TTL_MIN, HOLD_MAX)).transpose()?;
        let progress_ms =
            self.progress.map(|every| millis_within("progress", every, TTL_MIN, TTL_MAX_EVER)).transpose()?;
        if self.metadata.len() > METADATA_BYTES {
            return Err(Error::invalid("metadata", format_args!("at most {METADATA_BYTES} bytes")));
        }
        Ok(AcquireSpec {
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
            trace: self.trace,
        })
    }
}

fn decode(response: Response) -> Result<Vec<Guard>, Error> {
    match response {
        Response::Leases(leases) => Ok(leases.into_iter().map(Guard::new).collect()),
        _ => Err(Error::invalid_reply("an answer other than a grant")),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn millis_within(field: &str, value: Duration, min: u64, max: u64) -> Result<u64, Error> {
    let ms = millis(value);
    if (min..=max).contains(&ms) {
        Ok(ms)
    } else {
        Err(Error::invalid(
            field,
            format!("{} is not allowed; from {} to {}", DurationText(ms), DurationText(min), DurationText(max)),
        ))
    }
}
