//! The keeper's work: fold, tell the trail, save, trim; wait until asked again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::fold::{Fold, Taken};
use super::{Behind, Keep, Keeping, NotKept, Task};
use crate::journal::{Kept, Shelf};
use crate::meter::KeepMeter;
use crate::trail::{Head, Writer};

/// How much lower than everybody else's the keeper's claim on a processor is.
const NICE: i32 = 15;
/// How long after a failure the next try comes.
const RETRY: Duration = Duration::from_secs(10);
/// A state of so many bytes stays in memory between two rounds.
const SMALL: u64 = 8 << 20;
/// A larger one stays so long after somebody asked about the past, because one question follows another.
const LINGER: Duration = Duration::from_secs(5);

/// Keeps the log of one journal short and its trail complete.
pub struct Keeper<S> {
    shelf: S,
    settings: Keep,
    keeping: Arc<Keeping>,
    asked: Receiver<Task>,
    meter: KeepMeter,
    /// The state as it was last folded, if it is small.
    fold: Option<Fold>,
    writer: Option<Writer>,
}

impl<S: Shelf> Keeper<S> {
    /// A keeper that has nothing to do yet.
    pub fn new(shelf: S, settings: Keep, behind: Behind, meter: KeepMeter) -> Self {
        let (keeping, asked) = Keeping::new(Arc::new(shelf.clone()), &settings, behind, meter.clone());
        Self { shelf, settings, keeping, asked, meter, fold: None, writer: None }
    }

    /// The way to it.
    pub fn keeping(&self) -> &Arc<Keeping> {
        &self.keeping
    }

    /// Does what it is asked until it is stopped.
    pub(super) fn run(mut self) {
        // Of this thread only; where it is not allowed, it works at the usual priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a thread can have a runtime");
        let mut again = None;
        while let Some(task) = self.next(again) {
            if self.keeping.is_stopping() {
                return;
            }
            match task {
                Task::Stop => return,
                Task::Look => {
                    // Rings from here on are about what this look does not see.
                    self.keeping.rung.store(false, Ordering::Relaxed);
                    let done = if self.keeping.is_due() { runtime.block_on(self.snapshot()).map(drop) } else { Ok(()) };
                    again = self.complain(&done).then_some(RETRY);
                    // After a failure turns do not ring: the keeper comes back by itself.
                    self.keeping.rung.store(again.is_some(), Ordering::Relaxed);
                    self.keeping.ring_if_due();
                }
                // Whoever asked may have gone away, before or while it is done.
                Task::Take(to, _) if to.is_closed() => {}
                Task::Take(to, place) => {
                    let done = runtime.block_on(self.snapshot());
                    self.complain(&done);
                    let _ = to.send(done.map(|taken| (taken, place)));
                }
                Task::Tell(to) if to.is_closed() => {}
                Task::Tell(to) => {
                    let done = runtime.block_on(self.tell());
                    self.complain(&done);
                    let _ = to.send(done);
                }
            }
        }
    }

    /// What to do next; a failed snapshot is tried again after a while.
    fn next(&mut self, again: Option<Duration>) -> Option<Task> {
        if self.fold.as_ref().is_some_and(|fold| !fold.is_small(SMALL)) {
            match self.asked.recv_timeout(LINGER) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) => self.fold = None,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        match again {
            None => self.asked.recv().ok(),
            Some(wait) => match self.asked.recv_timeout(wait) {
                Ok(task) => Some(task),
                Err(RecvTimeoutError::Timeout) => Some(Task::Look),
                Err(RecvTimeoutError::Disconnected) => None,
            },
        }
    }

    /// Saves the state as of now, and lets go of the log that nobody needs any more: the trail has told it.
    pub async fn snapshot(&mut self) -> Result<Arc<Taken>, NotKept> {
        let started = Instant::now();
        let (mut fold, head) = self.bring_up().await?;
        let taken = Arc::new(fold.taken(head)?);
        let bytes = taken.snapshot.len() as u64;
        if fold.batches > 0 {
            kept(self.shelf.save(taken.sequence, &taken.snapshot).await?)?;
            self.keeping.covered(fold.bytes, fold.batches, self.settings.log_bytes.max(bytes));
            (fold.bytes, fold.batches, fold.snapshot) = (0, 0, bytes);
            self.keep_if_small(fold);
            kept(self.shelf.trim(taken.sequence).await?)?;
            self.meter.saved(bytes, started.elapsed());
        } else {
            self.keep_if_small(fold);
        }
        Ok(taken)
    }

    /// Tells the trail of everything that is durable by now.
    pub async fn tell(&mut self) -> Result<Head, NotKept> {
        let (fold, head) = self.bring_up().await?;
        self.fold = Some(fold);
        Ok(head)
    }

    /// What was folded and told before is used again; after a failure it is read anew.
    async fn bring_up(&mut self) -> Result<(Fold, Head), NotKept> {
        let mut fold = match self.fold.take() {
            Some(fold) => fold,
            None => Fold::begin(&self.shelf).await?,
        };
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::open(&self.shelf, self.settings.trail)?,
        };
        fold.catch_up(&self.shelf, &self.keeping, &mut writer).await?;
        let head = writer.head();
        self.meter.told(head.entries);
        self.writer = Some(writer);
        Ok((fold, head))
    }

    /// A large state is in memory only while it is needed.
    fn keep_if_small(&mut self, fold: Fold) {
        self.fold = fold.is_small(SMALL).then_some(fold);
    }

    /// A failure ends nothing by itself: a journal that failed for good stops the turns too (V3).
    fn complain<T>(&self, done: &Result<T, NotKept>) -> bool {
        match done {
            Ok(_) | Err(NotKept::Stopping) => false,
            Err(why) => {
                self.meter.failed();
                (self.settings.note)(&format!("the log was not gathered: {why}"));
                true
            }
        }
    }
}

fn kept(kept: Kept) -> Result<(), NotKept> {
    match kept {
        Kept::Durable => Ok(()),
        Kept::Fenced => Err(NotKept::Fenced),
    }
}
