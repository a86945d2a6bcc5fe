//! What tasks and guards ask of the holder's thread, in one order, with an end to how much may be asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::command::{Answer, Style};
use leasehold_core::holder::Timing;
use leasehold_core::lease::Access;
use leasehold_core::time::Instant;
use leasehold_wire::v1::request::Ask as Message;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Handle;
use super::cell::Cell;
use super::reply::Reply;
use super::saying::{Listen, Spoken};
use crate::Guard;

/// Requests of one client that may be without an answer, waits among them; whoever asks for more waits for room.
pub(crate) const OPEN: usize = 1 << 14;

/// What comes back for a request.
#[derive(Debug)]
pub(crate) enum Given {
    /// The leases, in the order they were asked for.
    Guards(Vec<Guard>),
    /// An answer that was given in the session, beside its leases.
    Spoken(Box<Spoken>),
    /// Any other answer.
    Answer(Answer),
}

/// One thing that is asked of the thread.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Take a lease.
    Acquire { by: By, wanted: Box<Wanted>, handle: Weak<Handle> },
    /// Ask the grantor about a lease that is held.
    Call { by: By, cell: Arc<Cell>, what: Call },
    /// Ask the grantor something in the session that is about none of its leases.
    Say { by: By, message: Box<Message>, handle: Weak<Handle> },
    /// The same, and nobody waits for the answer.
    Tell(Box<Message>),
    /// Somebody wants to hear what the session is told.
    Listen(Weak<dyn Listen>),
    /// Somebody sleeps until then.
    Alarm { at: Instant, tell: Reply<Given> },
    /// Give a lease back; a guard that was dropped waits for no answer.
    Release { key: u64, cell: Arc<Cell>, tell: Option<Reply<Given>> },
    /// There is progress to show.
    Progress { cell: Arc<Cell> },
    /// Nobody waits for this request any more.
    Dropped(u64),
    /// Somebody waits for this request again.
    Again(u64),
    /// End the session and all that it holds.
    Close(Reply<Given>),
}

/// Who asks: under which key, where the answer goes, and the room it takes.
#[derive(Debug)]
pub(crate) struct By {
    pub(crate) key: u64,
    pub(crate) tell: Reply<Given>,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// What a holder asks about its lease.
#[derive(Debug)]
pub(crate) enum Call {
    Confirm,
    Rotate,
    Pin { at: u64 },
    Put { key: String, bytes: Option<Vec<u8>>, expect: Option<u64> },
    HandOff { to: Option<String>, style: Option<Style>, drain_ms: Option<u64> },
}

/// Leases as they are wanted, checked: all or none.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) resources: Vec<Box<str>>,
    /// A declared actor; absent: one of the client's own, which nobody else in the process has.
    pub(crate) holder: Option<String>,
    pub(crate) access: Access,
    pub(crate) slots: Option<u32>,
    pub(crate) timing: Timing,
    pub(crate) wait_ms: u64,
    pub(crate) priority: u8,
    pub(crate) max_hold_ms: Option<u64>,
    pub(crate) progress_ms: Option<u64>,
    pub(crate) metadata: Vec<u8>,
}

/// Many put in, the thread takes out.
#[derive(Debug)]
pub(crate) struct Inbox {
    lane: Mutex<Lane>,
    pub(super) arrived: Notify,
    pub(crate) room: Arc<Semaphore>,
    keys: AtomicU64,
}

#[derive(Debug, Default)]
struct Lane {
    asks: Vec<Ask>,
    /// Nobody will ask any more.
    closed: bool,
    /// The thread has ended.
    over: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            lane: Mutex::default(),
            arrived: Notify::new(),
            room: Arc::new(Semaphore::new(OPEN)),
            keys: AtomicU64::new(1),
        }
    }

    /// A key for a request that somebody waits for.
    pub(crate) fn key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts something in. After the thread's end it is dropped, and whoever waits is told.
    pub(crate) fn put(&self, ask: Ask) {
        let mut lane = self.lock();
        if lane.over {
            drop(lane);
            drop(ask);
            return;
        }
        lane.asks.push(ask);
        let first = lane.asks.len() == 1;
        drop(lane);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Whether the thread has ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().over
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Takes everything; true if nothing more will come.
    pub(super) fn drain(&self, into: &mut Vec<Ask>) -> bool {
        let mut lane = self.lock();
        std::mem::swap(&mut lane.asks, into);
        lane.closed
    }

    /// The thread ends: what is left is dropped, and whoever comes later is told so.
    pub(super) fn end(&self) {
        let mut lane = self.lock();
        lane.over = true;
        let left = std::mem::take(&mut lane.asks);
        drop(lane);
        drop(left);
        self.room.close();
    }

    fn lock(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
