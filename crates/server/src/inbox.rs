//! What waits for the next turn, in lanes, so that a flood of new requests does not starve renewals.

mod ask;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::command::Held;
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::SessionId;
use tokio::sync::Semaphore;

pub use ask::{Ask, Body, Renewals, Seat};

/// Requests that one turn takes from the lane of everything but renewals; the rest waits for the next.
pub const TURN_ASKS: usize = 4_096;
/// Requests that may wait in all, a large one counting as several. Beyond it single callers are told to come again, and
/// from streams nothing more is read until there is room.
pub const WAITING: usize = 1 << 17;
/// Renewals that may wait in all. Beyond it nothing more is read from streams that renew, and single ones come again.
pub const RENEWALS: usize = 1 << 20;

/// A look at the state. What it returns is run when the look may be told, with the position it depends on (E1).
pub type Look = Box<dyn FnOnce(&Grantor) -> Tell + Send>;

/// What tells a look.
pub type Tell = Box<dyn FnOnce(u64) + Send>;

/// What waits for a turn.
#[derive(Default)]
pub struct Drained {
    /// Renewals, all of them.
    pub renewals: Vec<Renewals>,
    /// Requests that extend what is held: they go first, and wait for no others.
    pub first: Vec<Ask>,
    /// The other requests, as many as a turn takes.
    pub asks: VecDeque<Ask>,
    /// Looks at the state.
    pub looks: VecDeque<Look>,
    /// Marks of waits whose callers have gone, with their sessions.
    pub left: Vec<(SessionId, u64)>,
    /// Grants that nobody heard of.
    pub given_back: Vec<Held<'static>>,
    /// Nothing more will come: finish and stop.
    pub stopping: bool,
}

impl Drained {
    /// How many requests and renewals there are.
    pub fn count(&self) -> usize {
        let renewals = self.renewals.iter().map(|renewals| renewals.leases.len()).sum::<usize>();
        renewals + self.first.len() + self.asks.len()
    }

    /// Whether nobody asked for anything.
    pub fn is_empty(&self) -> bool {
        self.count() == 0 && self.looks.is_empty() && self.left.is_empty() && self.given_back.is_empty()
    }
}

/// The lanes. Many put in, one driver takes out.
pub struct Inbox {
    lanes: Mutex<Drained>,
    arrived: Condvar,
    /// Room for requests, and for renewals.
    room: Semaphore,
    renewals: Semaphore,
    /// Whether the driver sleeps; whoever puts something in wakes it only then.
    sleeps: AtomicBool,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            arrived: Condvar::new(),
            room: Semaphore::new(WAITING),
            renewals: Semaphore::new(RENEWALS),
            sleeps: AtomicBool::new(false),
        }
    }
}

/// Why something was not taken; nothing happened then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Too much waits already: come again.
    Full,
    /// The server is being stopped.
    Stopping,
}

impl Inbox {
    /// A request, unless too many wait already.
    pub fn ask(&self, ask: Ask) -> Result<(), NotTaken> {
        if ask.extends() {
            admit(&self.renewals, ask.weight_in_renewals())?;
            return self.put(|lanes| lanes.first.push(ask));
        }
        admit(&self.room, ask.weight())?;
        self.put(|lanes| lanes.asks.push_back(ask))
    }

    /// Several requests of one batch; waits until there is room for them.
    pub async fn ask_all(&self, asks: Vec<Ask>) -> Result<(), NotTaken> {
        let (first, asks): (Vec<_>, Vec<_>) = asks.into_iter().partition(Ask::extends);
        if !first.is_empty() {
            let weight = first.iter().map(Ask::weight_in_renewals).fold(0, u32::saturating_add).min(RENEWALS as u32);
            self.renewals.acquire_many(weight).await.map_err(|_| NotTaken::Stopping)?.forget();
            self.put(|lanes| lanes.first.extend(first))?;
        }
        let weight = asks.iter().map(Ask::weight).fold(0, u32::saturating_add).min(WAITING as u32);
        self.room.acquire_many(weight).await.map_err(|_| NotTaken::Stopping)?.forget();
        self.put(|lanes| lanes.asks.extend(asks))
    }

    /// Renewals; waits until there is room for them. They are never refused.
    pub async fn renew(&self, renewals: Renewals) -> Result<(), NotTaken> {
        let count = renewals.leases.len().min(RENEWALS) as u32;
        self.renewals.acquire_many(count).await.map_err(|_| NotTaken::Stopping)?.forget();
        self.put(|lanes| lanes.renewals.push(renewals))
    }

    /// A look at the state.
    pub fn look(&self, look: Look) -> Result<(), NotTaken> {
        admit(&self.room, 1)?;
        self.put(|lanes| lanes.looks.push_back(look))
    }

    /// Whoever waited under this mark has gone away.
    pub fn leave(&self, session: SessionId, mark: u64) -> Result<(), NotTaken> {
        // Each is the end of a request that was admitted: they are bounded by those.
        self.put(|lanes| lanes.left.push((session, mark)))
    }

    /// Whoever was granted this has gone away.
    pub fn give_back(&self, grants: Vec<Held<'static>>) -> Result<(), NotTaken> {
        self.put(|lanes| lanes.given_back.extend(grants))
    }

    /// Nothing more is taken; what was taken is done, and then the service ends.
    pub fn stop(&self) {
        self.room.close();
        self.renewals.close();
        let mut lanes = self.lanes();
        lanes.stopping = true;
        self.wake(lanes);
    }

    /// How much of the room for requests is taken by those that wait.
    pub fn waiting(&self) -> usize {
        WAITING.saturating_sub(self.room.available_permits())
    }

    /// Whether somebody asked it to end.
    pub fn is_stopping(&self) -> bool {
        self.lanes().stopping
    }

    /// Nothing more is taken, and what was taken comes back: nobody will do it.
    pub fn close(&self) -> Drained {
        self.stop();
        std::mem::replace(&mut *self.lanes(), Drained { stopping: true, ..Drained::default() })
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

    /// Takes what one turn takes, behind what an earlier turn left over.
    pub fn drain(&self, into: &mut Drained) {
        let mut lanes = self.lanes();
        // A turn leaves no renewal over: after a failover everybody comes at once (N1).
        std::mem::swap(&mut lanes.renewals, &mut into.renewals);
        std::mem::swap(&mut lanes.first, &mut into.first);
        into.left.append(&mut lanes.left);
        into.given_back.append(&mut lanes.given_back);
        let before = into.looks.len();
        into.looks.append(&mut lanes.looks);
        let mut weight = into.looks.len() - before;
        let asks = TURN_ASKS.saturating_sub(into.asks.len()).min(lanes.asks.len());
        if into.asks.is_empty() && asks == lanes.asks.len() {
            std::mem::swap(&mut lanes.asks, &mut into.asks);
        } else {
            into.asks.extend(lanes.asks.drain(..asks));
        }
        into.stopping = lanes.stopping && lanes.is_empty();
        drop(lanes);
        weight += into.asks.iter().rev().take(asks).map(|ask| ask.weight() as usize).sum::<usize>();
        self.room.add_permits(weight.min(WAITING));
        let renewals = into.renewals.iter().map(|renewals| renewals.leases.len().min(RENEWALS)).sum::<usize>();
        let first = into.first.iter().map(|ask| ask.weight_in_renewals() as usize).sum::<usize>();
        self.renewals.add_permits(renewals + first);
    }

    fn put(&self, put: impl FnOnce(&mut Drained)) -> Result<(), NotTaken> {
        let mut lanes = self.lanes();
        if lanes.stopping {
            return Err(NotTaken::Stopping);
        }
        put(&mut lanes);
        self.wake(lanes);
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

fn admit(room: &Semaphore, weight: u32) -> Result<(), NotTaken> {
    use tokio::sync::TryAcquireError::{Closed, NoPermits};
    match room.try_acquire_many(weight) {
        Ok(permits) => {
            permits.forget();
            Ok(())
        }
        Err(NoPermits) => Err(NotTaken::Full),
        Err(Closed) => Err(NotTaken::Stopping),
    }
}
