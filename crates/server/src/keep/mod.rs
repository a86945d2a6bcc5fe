//! What is done behind the turns: snapshots that keep the log short, on a thread that turns never wait for.

mod fold;
mod keeper;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::journal::{Fault, NotTold, Rack, Shelf};
use crate::meter::KeepMeter;
use crate::trail::{Head, Retention};

pub use fold::Taken;
pub use keeper::Keeper;

/// Backups that are sent at the same time.
const SENDING: usize = 2;
/// Questions about the trail that are answered at the same time: each has a part of it in memory.
const READING: usize = 4;

/// How much is kept, and how often it is gathered.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// A snapshot is taken when the log behind the newest has so many bytes, or as many as that snapshot, if that is more.
    pub log_bytes: u64,
    /// Or so many batches.
    pub log_batches: u64,
    /// How much of the audit trail is kept.
    pub trail: Retention,
    /// Where a line for the operator goes.
    pub note: fn(&str),
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            log_bytes: 64 << 20,
            log_batches: 1 << 20,
            trail: Retention::default(),
            note: |line| eprintln!("leasehold: {line}"),
        }
    }
}

/// Why something was not gathered. Service goes on, unless the journal itself failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The journal could not keep it.
    Fault(Fault),
    /// The journal could not tell it.
    NotTold(NotTold),
    /// The journal told what cannot be (V2).
    Corrupt {
        /// Which batch, or the snapshot of which batch.
        sequence: u64,
        /// What is wrong.
        why: String,
    },
    /// Another writer has the journal.
    Fenced,
    /// The server is being stopped.
    Stopping,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::NotTold(why) => why.fmt(f),
            Self::Corrupt { sequence, why } => write!(f, "batch {sequence} of the journal: {why}"),
            Self::Fenced => f.write_str("another server has taken the journal"),
            Self::Stopping => f.write_str("the server is being stopped"),
        }
    }
}

impl std::error::Error for NotKept {}

impl From<Fault> for NotKept {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<NotTold> for NotKept {
    fn from(why: NotTold) -> Self {
        Self::NotTold(why)
    }
}

/// What the keeper is asked to do.
enum Task {
    /// The log may have passed its bound.
    Look,
    /// Somebody wants the state as of now, as bytes.
    Take(oneshot::Sender<Result<(Arc<Taken>, Place), NotKept>>, Place),
    /// Somebody wants the audit trail to tell everything that is durable by now.
    Tell(oneshot::Sender<Result<Head, NotKept>>),
    /// Nothing more.
    Stop,
}

/// A place among those who are sent a state or a trail, given back when it is dropped.
pub type Place = OwnedSemaphorePermit;

/// The way to the keeper, for turns and doors. Nothing here waits for it.
pub struct Keeping {
    tasks: Sender<Task>,
    stopping: AtomicBool,
    /// What the log has behind the newest snapshot. A batch may be folded a moment before it is counted.
    bytes: AtomicI64,
    batches: AtomicI64,
    bound: AtomicU64,
    most_batches: u64,
    rung: AtomicBool,
    meter: KeepMeter,
    /// States that may be in memory at the same time because they are being sent.
    sending: Arc<Semaphore>,
    /// Those who read the trail at the same time; the others wait.
    reading: Arc<Semaphore>,
    rack: Mutex<Option<Arc<dyn Rack>>>,
}

/// What an open found behind the newest snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behind {
    /// The snapshot's bytes.
    pub snapshot: u64,
    /// Bytes of the batches after it.
    pub bytes: u64,
    /// How many.
    pub batches: u64,
}

/// A keeper at work.
pub struct Running {
    keeping: Arc<Keeping>,
    thread: JoinHandle<()>,
}

/// Starts a keeper on a thread of its own.
pub fn start<S: Shelf>(shelf: S, settings: Keep, behind: Behind, meter: KeepMeter) -> Running {
    let keeper = Keeper::new(shelf, settings, behind, meter);
    let keeping = keeper.keeping().clone();
    keeping.ring_if_due();
    let work = move || {
        let _missed = Missed(settings.note);
        keeper.run();
    };
    let thread = std::thread::Builder::new().name("keeper".into()).spawn(work).expect("a process can have a thread");
    Running { keeping, thread }
}

/// Says it if the keeper's thread panics: service goes on, and the log would grow without a word.
struct Missed(fn(&str));

impl Drop for Missed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)(
                "the keeper panicked: no snapshot is taken and no log is cut any more; restart the server, and report it",
            );
        }
    }
}

impl Running {
    /// The way to it.
    pub fn keeping(&self) -> &Arc<Keeping> {
        &self.keeping
    }

    /// Breaks off what it does and waits until it is gone: then nothing holds the journal any more.
    pub fn stop(self) {
        self.keeping.stopping.store(true, Ordering::Relaxed);
        // If it went away by itself, there is nobody to ask.
        let _ = self.keeping.tasks.send(Task::Stop);
        let _ = self.thread.join();
        self.keeping.rack.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Keeping {
    fn new(rack: Arc<dyn Rack>, settings: &Keep, behind: Behind, meter: KeepMeter) -> (Arc<Self>, Receiver<Task>) {
        let (tasks, asked) = channel();
        let keeping = Self {
            tasks,
            stopping: AtomicBool::new(false),
            bytes: AtomicI64::new(signed(behind.bytes)),
            batches: AtomicI64::new(signed(behind.batches)),
            bound: AtomicU64::new(settings.log_bytes.max(behind.snapshot)),
            most_batches: settings.log_batches,
            rung: AtomicBool::new(false),
            meter,
            sending: Arc::new(Semaphore::new(SENDING)),
            reading: Arc::new(Semaphore::new(READING)),
            rack: Mutex::new(Some(rack)),
        };
        keeping.meter.behind(keeping.behind());
        (Arc::new(keeping), asked)
    }

    /// Nobody keeps anything here: another server does.
    pub fn absent(meter: KeepMeter) -> Self {
        Self {
            tasks: channel().0,
            stopping: AtomicBool::new(true),
            bytes: AtomicI64::new(0),
            batches: AtomicI64::new(0),
            bound: AtomicU64::new(u64::MAX),
            most_batches: u64::MAX,
            rung: AtomicBool::new(false),
            meter,
            sending: Arc::new(Semaphore::new(0)),
            reading: Arc::new(Semaphore::new(0)),
            rack: Mutex::new(None),
        }
    }

    /// A batch of so many bytes became durable.
    pub fn appended(&self, bytes: usize) {
        self.bytes.fetch_add(signed(bytes as u64), Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.meter.behind(self.behind());
        self.ring_if_due();
    }

    /// The state as of a durable position, as bytes. It is also the newest snapshot then. The place is taken until that is
    /// done, whether somebody still waits for it or not.
    pub async fn take(&self, place: Place) -> Result<(Arc<Taken>, Place), NotKept> {
        let (to, taken) = oneshot::channel();
        self.tasks.send(Task::Take(to, place)).map_err(|_| NotKept::Stopping)?;
        taken.await.map_err(|_| NotKept::Stopping)?
    }

    /// Brings the audit trail up to what is durable by now.
    pub async fn tell(&self) -> Result<Head, NotKept> {
        let (to, told) = oneshot::channel();
        self.tasks.send(Task::Tell(to)).map_err(|_| NotKept::Stopping)?;
        told.await.map_err(|_| NotKept::Stopping)?
    }

    /// Where the audit trail lies, while the server runs. Whoever holds on to it keeps the journal's directory locked.
    pub fn rack(&self) -> Result<Arc<dyn Rack>, NotKept> {
        self.rack.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(NotKept::Stopping)
    }

    /// A place among those who are sent a state; none if there are too many.
    pub fn place(&self) -> Option<Place> {
        self.sending.clone().try_acquire_owned().ok()
    }

    /// A place among those who read the trail, when there is one.
    pub async fn reading(&self) -> Result<Place, NotKept> {
        self.reading.clone().acquire_owned().await.map_err(|_| NotKept::Stopping)
    }

    /// The bytes of the log behind the newest snapshot.
    pub fn behind(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn is_due(&self) -> bool {
        let batches = u64::try_from(self.batches.load(Ordering::Relaxed)).unwrap_or(0);
        self.behind() > self.bound.load(Ordering::Relaxed) || batches > self.most_batches
    }

    /// Wakes the keeper once each time the bound is passed.
    fn ring_if_due(&self) {
        if self.is_due() && !self.rung.swap(true, Ordering::Relaxed) {
            // If it went away, the journal has failed, and the next turn knows.
            let _ = self.tasks.send(Task::Look);
        }
    }

    /// A snapshot covers so many bytes and batches.
    fn covered(&self, bytes: u64, batches: u64, bound: u64) {
        self.bytes.fetch_sub(signed(bytes), Ordering::Relaxed);
        self.batches.fetch_sub(signed(batches), Ordering::Relaxed);
        self.bound.store(bound, Ordering::Relaxed);
        self.meter.behind(self.behind());
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
