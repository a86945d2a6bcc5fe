//! The client for programs without an async runtime: every call blocks its thread. Leases are renewed on a thread of their own.
//!
//! [`Client`], [`ClientBuilder`], [`Lock`] and [`Guard`] mirror the async types of the same names. Queries, recipes and
//! administration are only in the async API.
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::blocking::Client;
//!
//! # fn write(_token: &str) {}
//! # fn example() -> Result<(), leasehold::Error> {
//! let client = Client::builder("127.0.0.1:7421")?.holder("worker-1").build();
//! let guard = client.lock("jobs/settle").wait(Duration::from_secs(60)).acquire()?;
//! guard.run(|lease| write(&lease.token()));
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::types::EndReason;
use crate::{
    AcquireError, BearerTokenFile, ClockDrift, Error, FencingToken, GuardState, HandoffOptions, LeaseHandle, Loss,
    MetricsHook, RequestError, TlsOptions,
};

/// Blocks this thread until a future is ready.
///
/// It works on any thread, because leases are renewed on another one. On a thread of an async runtime it blocks that runtime, but
/// loses no lease.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // Inside of a tokio runtime, its cooperative budget would never be renewed here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// A client whose calls block. See [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

/// Builds a [`Client`] with other settings than the defaults. See [`crate::ClientBuilder`], whose settings it mirrors.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder(crate::ClientBuilder);

/// A lease to acquire. See [`crate::Lock`], whose settings it mirrors.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until `acquire`"]
pub struct Lock(crate::Lock);

/// A held lease. Dropping it releases the lease. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "dropping a guard releases its lease"]
pub struct Guard(crate::Guard);

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl Client {
    /// A client with default settings. `endpoints` is one or more `host:port`, separated by commas.
    pub fn new(endpoints: &str) -> Result<Self, Error> {
        crate::Client::new(endpoints).map(Self)
    }

    /// A builder for a client. `endpoints` is one or more `host:port`, separated by commas.
    pub fn builder(endpoints: &str) -> Result<ClientBuilder, Error> {
        crate::Client::builder(endpoints).map(ClientBuilder)
    }

    /// A lease on a resource. Defaults: exclusive, a ttl of 30 seconds, without waiting.
    pub fn lock(&self, resource: impl Into<String>) -> Lock {
        Lock(self.0.lock(resource))
    }

    /// Closes the session, which releases all leases, and waits for the confirmation.
    pub fn close(&self) -> Result<(), Error> {
        block_on(self.0.close())
    }
}

macro_rules! mirror {
    ($type:ident { $($name:ident($($argument:ident: $kind:ty),*);)+ }) => {
        impl $type {
            $(
                #[doc = concat!(
                    "See [`", stringify!($type), "::", stringify!($name),
                    "`](crate::", stringify!($type), "::", stringify!($name), ")."
                )]
                pub fn $name(self, $($argument: $kind),*) -> Self {
                    Self(self.0.$name($($argument),*))
                }
            )+
        }
    };
}

mirror! {
    ClientBuilder {
        tls(options: TlsOptions);
        bearer_file(file: BearerTokenFile);
        connect_timeout(timeout: Duration);
        request_timeout(timeout: Duration);
        holder(name: impl Into<String>);
        session_ttl(ttl: Duration);
        clock_drift(drift: ClockDrift);
        metrics(hook: Arc<dyn MetricsHook>);
    }
}

impl ClientBuilder {
    /// Makes the client. It connects with its first request.
    pub fn build(self) -> Client {
        Client(self.0.build())
    }
}

mirror! {
    Lock {
        also(resource: impl Into<String>);
        ttl(ttl: Duration);
        renew_every(interval: Duration);
        wait(wait: Duration);
        holder(name: impl Into<String>);
        priority(priority: u8);
        max_hold(max: Duration);
        require_progress(every: Duration);
        shared();
        slots(count: u32);
        units(units: u32);
        metadata(bytes: impl Into<Vec<u8>>);
    }
}

impl Lock {
    /// Acquires the lease, now or after waiting.
    pub fn acquire(&self) -> Result<Guard, AcquireError> {
        block_on(self.0.acquire()).map(Guard)
    }

    /// Acquires the lease if it is free now; none if others hold it.
    pub fn try_acquire(&self) -> Result<Option<Guard>, AcquireError> {
        block_on(self.0.try_acquire()).map(|guard| guard.map(Guard))
    }

    /// Acquires all leases in one step, or none.
    pub fn acquire_all(&self) -> Result<Vec<Guard>, RequestError<Vec<crate::Guard>>> {
        block_on(self.0.acquire_all()).map(|guards| guards.into_iter().map(Guard).collect())
    }
}

impl From<crate::Guard> for Guard {
    fn from(guard: crate::Guard) -> Self {
        Self(guard)
    }
}

impl Guard {
    /// Waits until the grantor has ended the lease.
    pub fn wait_lost(&self) -> Loss {
        block_on(self.0.wait_lost())
    }

    /// Waits until work must stop: the lease is suspended or lost.
    pub fn wait_stopped(&self) -> GuardState {
        block_on(self.0.wait_stopped())
    }

    /// Checks with the grantor whether the lease is current.
    pub fn check(&self) -> Result<(), Error> {
        block_on(self.0.check())
    }

    /// Raises the token and returns the new one.
    pub fn rotate(&self) -> Result<FencingToken, RequestError<()>> {
        block_on(self.0.rotate())
    }

    /// Writes small state, only if the lease is current. Returns the revision.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<u64, RequestError<u64>> {
        block_on(self.0.put(key, bytes))
    }

    /// Starts a planned handoff.
    pub fn handoff(&self, options: HandoffOptions) -> Result<(), RequestError<()>> {
        block_on(self.0.handoff(options))
    }

    /// Releases the lease and waits for the confirmation.
    pub fn release(self) -> Result<(), RequestError<()>> {
        block_on(self.0.release())
    }

    /// Releases the lease, and returns how it ended according to the grantor.
    pub fn release_with_reason(self) -> Result<EndReason, Error> {
        block_on(self.0.release_with_reason())
    }

    /// Runs work, and releases the lease after it has returned. Nothing can stop a thread: the work must check the state of its
    /// lease, and return when it is no longer held.
    pub fn run<T>(self, work: impl FnOnce(&LeaseHandle) -> T) -> T {
        let output = work(self.0.handle());
        // The work is finished whatever the release replies; at the latest, the lease expires by its ttl.
        let _ = self.release();
        output
    }
}

/// Everything that does not block: token, state, deadline, progress.
impl Deref for Guard {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.0.handle()
    }
}
