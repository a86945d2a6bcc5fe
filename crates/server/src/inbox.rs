//! What waits for the next turn, in two lanes, so that a flood of new requests does not starve renewals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::command::Request;
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_wire::{Caller, v1};

use crate::desk::{Outbox, To};

/// Requests that one turn takes from the lane of everything but renewals; the rest waits for the next.
pub const TURN_ASKS: usize = 4_096;
/// Requests that may wait in all. Beyond it callers are told to come again.
pub const WAITING: usize = 1 << 17;

/// One request on its way to a turn. It owns what its command borrows.
pub struct Ask {
    /// Its id, and the highest token that the caller has seen. The driver sets the mark.
    pub request: Request,
    /// What is asked.
    pub body: Body,
    /// Who asks.
    pub caller: Caller,
    /// Where the answer goes.
    pub to: To,
}

/// What is asked, as it came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Anything that is asked inside of a session or without one.
    Ask(Box<v1::request::Ask>),
    /// A new session, with the secret that was drawn for it.
    Open(v1::OpenSession, [u8; 32]),
    /// A session that goes on.
    Resume(v1::ResumeSession),
}

impl Body {
    /// The resources that grants would be on, in the order they were asked for.
    pub fn resource(&self, index: usize) -> &str {
        match self {
            Self::Ask(ask) => match &**ask {
                v1::request::Ask::Acquire(acquire) => &acquire.resource,
                v1::request::Ask::AcquireAll(all) => all.wanted.get(index).map_or("", |wanted| &wanted.resource),
                _ => "",
            },
            Self::Open(..) | Self::Resume(_) => "",
        }
    }
}

/// Many renewals of one connection, answered together.
pub struct Renewals {
    /// The connection.
    pub to: Arc<Outbox>,
    /// Its session, which must hold what it renews (L5).
    pub session: SessionId,
    /// The request's number on it.
    pub number: u64,
    /// The leases with the numbers of their tokens.
    pub leases: Vec<(LeaseId, u64)>,
}

/// A look at the state. What it returns is run when the look may be told, with the position it depends on (E1).
pub type Look = Box<dyn FnOnce(&Grantor) -> Tell + Send>;

/// What tells a look.
pub type Tell = Box<dyn FnOnce(u64) + Send>;

/// What one turn takes.
#[derive(Default)]
pub struct Drained {
    /// Renewals, all of them.
    pub renewals: Vec<Renewals>,
    /// The other requests, as many as a turn takes.
    pub asks: Vec<Ask>,
    /// Looks at the state.
    pub looks: Vec<Look>,
    /// Nothing more will come: finish and stop.
    pub stopping: bool,
}

impl Drained {
    /// How many requests and renewals there are.
    pub fn count(&self) -> usize {
        self.asks.len() + self.renewals.iter().map(|renewals| renewals.leases.len()).sum::<usize>()
    }

    /// Whether nobody asked for anything.
    pub fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.asks.is_empty() && self.looks.is_empty()
    }
}

/// The lanes. Many put in, one driver takes out.
#[derive(Default)]
pub struct Inbox {
    lanes: Mutex<Drained>,
    arrived: Condvar,
    waiting: AtomicUsize,
    /// Whether the driver sleeps; whoever puts something in wakes it only then.
    sleeps: AtomicBool,
}

/// The inbox is full: come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Inbox {
    /// A request, unless too many wait already.
    pub fn ask(&self, ask: Ask) -> Result<(), Full> {
        self.admit(1)?;
        let mut lanes = self.lanes();
        lanes.asks.push(ask);
        self.wake(lanes);
        Ok(())
    }

    /// Several requests of one batch.
    pub fn ask_all(&self, asks: &mut Vec<Ask>) -> Result<(), Full> {
        self.admit(asks.len())?;
        let mut lanes = self.lanes();
        lanes.asks.append(asks);
        self.wake(lanes);
        Ok(())
    }

    /// Renewals. They are never refused for want of room: the leases they extend bound them.
    pub fn renew(&self, renewals: Renewals) {
        let mut lanes = self.lanes();
        lanes.renewals.push(renewals);
        self.wake(lanes);
    }

    /// A look at the state.
    pub fn look(&self, look: Look) -> Result<(), Full> {
        self.admit(1)?;
        let mut lanes = self.lanes();
        lanes.looks.push(look);
        self.wake(lanes);
        Ok(())
    }

    /// Ends the service after the turn that takes this.
    pub fn stop(&self) {
        let mut lanes = self.lanes();
        lanes.stopping = true;
        self.wake(lanes);
    }

    /// Waits until something arrives or the time is over.
    pub fn wait(&self, wait: Duration) {
        let lanes = self.lanes();
        if lanes.is_empty() && !lanes.stopping && !wait.is_zero() {
            self.sleeps.store(true, Ordering::Relaxed);
            let lanes = self.arrived.wait_timeout(lanes, wait).unwrap_or_else(|e| e.into_inner());
            self.sleeps.store(false, Ordering::Relaxed);
            drop(lanes);
        }
    }

    /// Takes what one turn takes.
    pub fn drain(&self, into: &mut Drained) {
        let mut lanes = self.lanes();
        std::mem::swap(&mut lanes.renewals, &mut into.renewals);
        std::mem::swap(&mut lanes.looks, &mut into.looks);
        into.stopping = lanes.stopping;
        if lanes.asks.len() <= TURN_ASKS {
            std::mem::swap(&mut lanes.asks, &mut into.asks);
        } else {
            into.asks.extend(lanes.asks.drain(..TURN_ASKS));
        }
        drop(lanes);
        self.waiting.fetch_sub(into.asks.len() + into.looks.len(), Ordering::Relaxed);
    }

    fn admit(&self, more: usize) -> Result<(), Full> {
        if self.waiting.fetch_add(more, Ordering::Relaxed) + more > WAITING {
            self.waiting.fetch_sub(more, Ordering::Relaxed);
            return Err(Full);
        }
        Ok(())
    }

    fn lanes(&self) -> MutexGuard<'_, Drained> {
        // A thread that panicked with the lanes in hand left them whole: every change is one push.
        self.lanes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self, lanes: MutexGuard<'_, Drained>) {
        let sleeps = self.sleeps.load(Ordering::Relaxed);
        drop(lanes);
        if sleeps {
            self.arrived.notify_one();
        }
    }
}
