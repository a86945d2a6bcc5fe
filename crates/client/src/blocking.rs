//! The same without an event loop: every call waits where it is called.

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::{Error, Failure, HandOver, Loss};

/// Waits for a future on this thread. Leases are renewed from a thread of their own meanwhile, so this is right on any thread;
/// on one of an event loop it stops that loop for as long as it takes, and loses nothing.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // Inside of somebody's event loop a budget says when to yield to it; here nobody would ever renew that.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

/// A client whose calls wait.
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

/// A lease to be asked for; built as [`crate::Lock`] is.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

/// A lease that is held; dropping it gives it back.
#[derive(Debug)]
pub struct Guard(crate::Guard);

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl Client {
    /// A lease on a resource, shaped by what the builder is told: `client.lock("a", |lock| lock.wait(MINUTE))`.
    pub fn lock(&self, resource: &str, shape: impl FnOnce(crate::Lock) -> crate::Lock) -> Lock {
        Lock(shape(self.0.lock(resource)))
    }

    /// Gives everything back and ends the session.
    pub fn close(&self) -> Result<(), Error> {
        block_on(self.0.close())
    }
}

impl Lock {
    /// Takes the lease, now or after waiting.
    pub fn acquire(&self) -> Result<Guard, Failure<crate::Guard>> {
        block_on(self.0.acquire()).map(Guard)
    }
}

impl Guard {
    /// Waits until the lease is lost, by the grantor's word.
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Asks the grantor whether the lease is current.
    pub fn confirm(&self) -> Result<(), Error> {
        block_on(self.0.confirm())
    }

    /// Writes small state, only if the lease is current.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<u64, Failure<u64>> {
        block_on(self.0.put(key, bytes))
    }

    /// Begins a planned transfer.
    pub fn hand_off(&self, how: HandOver) -> Result<(), Failure<()>> {
        block_on(self.0.hand_off(how))
    }

    /// Gives the lease back and waits until that is on record.
    pub fn release(self) -> Result<(), Failure<()>> {
        block_on(self.0.release())
    }

    /// Runs work, and gives the lease back after it returned. Nothing stops a thread: the work looks at the state of its
    /// hold, and stops when it is no longer held.
    pub fn run<T>(self, work: impl FnOnce(&crate::Hold) -> T) -> T {
        let done = work(self.0.hold());
        // The work is done whatever becomes of the release; at the latest the lease ends by its ttl.
        let _ = self.release();
        done
    }
}

/// What needs no waiting: token, state, deadline, progress.
impl Deref for Guard {
    type Target = crate::Hold;

    fn deref(&self) -> &crate::Hold {
        self.0.hold()
    }
}
