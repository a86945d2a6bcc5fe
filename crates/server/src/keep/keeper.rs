//! The keeper's work: fold, save, trim; wait until asked again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::fold::{Fold, Taken};
use super::{Behind, Keep, Keeping, NotKept, Task};
use crate::journal::{Kept, Shelf};
use crate::meter::KeepMeter;

/// How much lower than everybody else's the keeper's claim on a processor is.
const NICE: i32 = 10;
/// How long after a failure the next try comes.
const RETRY: Duration = Duration::from_secs(10);

/// Keeps the log of one journal short.
pub struct Keeper<S> {
    shelf: S,
    settings: Keep,
    keeping: Arc<Keeping>,
    asked: Receiver<Task>,
    meter: KeepMeter,
}

impl<S: Shelf> Keeper<S> {
    /// A keeper that has nothing to do yet.
    pub fn new(shelf: S, settings: Keep, behind: Behind, meter: KeepMeter) -> Self {
        let (keeping, asked) = Keeping::new(&settings, behind, meter.clone());
        Self { shelf, settings, keeping, asked, meter }
    }

    /// The way to it.
    pub fn keeping(&self) -> &Arc<Keeping> {
        &self.keeping
    }

    /// Does what it is asked until it is stopped.
    pub(super) fn run(self) {
        // Of this thread only; where it is not allowed, it works at the usual priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a thread can have a runtime");
        let mut again = None;
        while let Some(task) = next(&self.asked, again) {
            if self.keeping.is_stopping() {
                return;
            }
            match task {
                Task::Stop => return,
                Task::Look => {
                    // Rings from here on are about what this look does not see.
                    self.keeping.rung.store(false, Ordering::Relaxed);
                    let done = if self.keeping.is_due() { runtime.block_on(self.snapshot()).map(drop) } else { Ok(()) };
                    again = self.tell(&done).then_some(RETRY);
                    // After a failure turns do not ring: the keeper comes back by itself.
                    self.keeping.rung.store(again.is_some(), Ordering::Relaxed);
                    self.keeping.ring_if_due();
                }
                Task::Take(to) => {
                    let done = runtime.block_on(self.snapshot());
                    self.tell(&done);
                    // Whoever asked may have gone away.
                    let _ = to.send(done);
                }
            }
        }
    }

    /// Saves the state as of now, and lets go of the log that nobody needs any more.
    pub async fn snapshot(&self) -> Result<Arc<Taken>, NotKept> {
        let started = Instant::now();
        let mut fold = Fold::begin(&self.shelf).await?;
        fold.catch_up(&self.shelf, &self.keeping).await?;
        let taken = Arc::new(fold.taken()?);
        if fold.batches == 0 {
            return Ok(taken);
        }
        drop(fold.recovered);
        kept(self.shelf.save(taken.sequence, &taken.snapshot).await?)?;
        let bytes = taken.snapshot.len() as u64;
        self.keeping.covered(fold.bytes, fold.batches, self.settings.log_bytes.max(bytes));
        kept(self.shelf.trim(taken.sequence).await?)?;
        self.meter.saved(bytes, started.elapsed());
        Ok(taken)
    }

    /// A failure ends nothing by itself: a journal that failed for good stops the turns too (V3).
    fn tell<T>(&self, done: &Result<T, NotKept>) -> bool {
        match done {
            Ok(_) | Err(NotKept::Stopping) => false,
            Err(why) => {
                self.meter.failed();
                (self.settings.note)(&format!("no snapshot was taken: {why}"));
                true
            }
        }
    }
}

/// What to do next; a failed snapshot is tried again after a while.
fn next(asked: &Receiver<Task>, again: Option<Duration>) -> Option<Task> {
    match again {
        None => asked.recv().ok(),
        Some(wait) => match asked.recv_timeout(wait) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => Some(Task::Look),
            Err(RecvTimeoutError::Disconnected) => None,
        },
    }
}

fn kept(kept: Kept) -> Result<(), NotKept> {
    match kept {
        Kept::Durable => Ok(()),
        Kept::Fenced => Err(NotKept::Fenced),
    }
}
