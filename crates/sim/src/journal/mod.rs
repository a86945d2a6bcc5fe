//! Simulated journal: a file on one machine's disk, or a store that several servers share and that fences old writers.

mod frame;

use std::rc::Rc;

use crate::clock::MS;
use crate::fault::Fault;
use crate::history::{Batch, HistoryEvent};
use crate::mutants::PlantedFault;
use crate::scheduler::{JournalOutcome, JournalStep, ScheduledEvent, Scheduler};

/// The journal of a run.
#[derive(Debug, Default)]
pub struct SimJournal {
    /// Whether several servers share it, like etcd; otherwise it is one server's file.
    pub shared: bool,
    generation: u64,
    batches: Vec<Batch>,
    /// Number of batches that survive a crash: fewer after a lying sync.
    durable: usize,
    /// Bytes after the last complete frame: what a crash left of the append in flight.
    tail: Vec<u8>,
    in_flight: Option<(u64, Batch)>,
    /// A synced batch that is corrupt until an operator restores a good copy: its index and bytes.
    corrupted: Option<(usize, Vec<u8>)>,
    backups: Vec<Vec<Batch>>,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether syncs report success and do nothing.
    pub lying_sync: bool,
    /// Incarnation to start at the next opening, after a restore.
    pub restored: Option<u32>,
    restores: u32,
    reverted: bool,
    /// A server found that this journal was rolled back: nothing is appended until an operator accepts it.
    marked: bool,
}

impl SimJournal {
    /// Creates an empty journal.
    pub fn new(shared: bool) -> Self {
        Self { shared, ..Self::default() }
    }

    /// Whether this generation is the latest writer.
    pub const fn is_led_by(&self, generation: u64) -> bool {
        generation == self.generation
    }

    /// Submits a step. Its outcome arrives as [`ScheduledEvent::JournalDone`], or never.
    pub fn submit(&mut self, scheduler: &mut Scheduler, server: usize, boot: u32, ticket: u64, step: JournalStep) {
        if !self.shared
            && let JournalStep::Append { generation, batch, .. } = &step
        {
            self.in_flight = Some((*generation, batch.clone()));
        }
        if self.shared && scheduler.should_inject(Fault::UnknownAppend, 25) {
            if scheduler.rng.one_in(2) {
                scheduler.record_fault(Fault::UnknownAppend, "a request to the store is lost");
                return;
            }
            scheduler.record_fault(Fault::UnknownAppend, "a request to the store is late");
            let at = scheduler.now + scheduler.rng.between(100 * MS, 2_500 * MS);
            return scheduler.schedule(at, ScheduledEvent::Journal { server, boot, ticket, step });
        }
        let at = scheduler.now + scheduler.rng.between(100, 2 * MS);
        scheduler.schedule(at, ScheduledEvent::Journal { server, boot, ticket, step });
    }

    /// Executes a step. `is_alive` says whether the server that submitted it still runs.
    pub fn execute(
        &mut self,
        scheduler: &mut Scheduler,
        server: usize,
        boot: u32,
        ticket: u64,
        step: JournalStep,
        is_alive: bool,
    ) {
        if !self.shared && !is_alive {
            return;
        }
        let outcome = match step {
            JournalStep::Open => {
                self.generation += 1;
                JournalOutcome::Opened { generation: self.generation }
            }
            JournalStep::Confirm { generation } => {
                if self.is_led_by(generation) {
                    JournalOutcome::Confirmed
                } else {
                    JournalOutcome::Fenced
                }
            }
            JournalStep::Append { generation, sequence, batch } if self.shared => {
                self.append_shared(scheduler, generation, sequence, batch)
            }
            JournalStep::Append { generation, batch, .. } => self.append_file(scheduler, generation, batch),
        };
        if self.shared && scheduler.should_inject(Fault::UnknownAppend, 25) {
            return scheduler.record_fault(Fault::UnknownAppend, format!("the store's reply is lost: {outcome:?}"));
        }
        let at = scheduler.now + if self.shared { scheduler.rng.between(100, 2 * MS) } else { 0 };
        scheduler.schedule(at, ScheduledEvent::JournalDone { server, boot, ticket, outcome });
    }

    /// One transaction: compares generation and sequence, and stores the batch.
    fn append_shared(
        &mut self,
        scheduler: &mut Scheduler,
        generation: u64,
        sequence: u64,
        batch: Batch,
    ) -> JournalOutcome {
        if self.marked {
            return JournalOutcome::Failed;
        }
        let last = self.batches.len() as u64;
        if generation != self.generation && !scheduler.is_planted(PlantedFault::DeposedAppends) {
            return JournalOutcome::Fenced;
        }
        if sequence == last && self.batches.last().is_some_and(|stored| **stored == *batch) {
            return JournalOutcome::Durable;
        }
        if sequence != last + 1 && !scheduler.is_planted(PlantedFault::DeposedAppends) {
            return JournalOutcome::Fenced;
        }
        self.store(scheduler, generation, batch);
        JournalOutcome::Durable
    }

    fn append_file(&mut self, scheduler: &mut Scheduler, generation: u64, batch: Batch) -> JournalOutcome {
        if self.full && !scheduler.healed {
            return JournalOutcome::Full;
        }
        if scheduler.should_inject(Fault::FailedSync, 60) {
            scheduler.record_fault(Fault::FailedSync, "a sync fails");
            if scheduler.is_planted(PlantedFault::SyncFailureIgnored) {
                self.in_flight = None;
                return JournalOutcome::Durable;
            }
            return JournalOutcome::Failed;
        }
        self.in_flight = None;
        self.store(scheduler, generation, batch);
        if self.lying_sync && !scheduler.healed { JournalOutcome::Durable } else { self.sync() }
    }

    const fn sync(&mut self) -> JournalOutcome {
        self.durable = self.batches.len();
        JournalOutcome::Durable
    }

    fn store(&mut self, scheduler: &mut Scheduler, generation: u64, batch: Batch) {
        self.batches.push(batch.clone());
        self.restored = None;
        if self.shared {
            self.durable = self.batches.len();
        }
        scheduler.record(HistoryEvent::BatchDurable { generation, batch });
    }

    /// Crashes the file's server or machine: unsynced data is lost, torn, corrupt or complete.
    pub fn crash(&mut self, scheduler: &mut Scheduler) {
        if self.shared {
            return;
        }
        if self.durable < self.batches.len() {
            self.batches.truncate(self.durable);
            // Data written after a lost batch is lost with it.
            self.in_flight = None;
            self.record_revert(scheduler, Fault::LyingSync);
        }
        let Some((_, batch)) = self.in_flight.take() else {
            return;
        };
        let mut bytes = frame::write(&batch);
        match scheduler.rng.below(4) {
            0 => bytes.clear(),
            1 if scheduler.faults.has(Fault::TornTail) => {
                let at = scheduler.rng.below(bytes.len() as u64) as usize;
                bytes.truncate(at);
                scheduler.record_fault(Fault::TornTail, format!("{at} bytes of the last append remain"));
            }
            2 if scheduler.faults.has(Fault::CorruptTail) => {
                let at = scheduler.rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << scheduler.rng.below(8);
                scheduler.record_fault(Fault::CorruptTail, format!("byte {at} of the last append is corrupt"));
            }
            _ => {}
        }
        self.tail = bytes;
    }

    /// Flips a bit of a synced batch.
    pub fn corrupt(&mut self, scheduler: &mut Scheduler) {
        // The last batch may be torn; damage before it is never truncated.
        if self.durable < 2 || self.corrupted.is_some() {
            return;
        }
        let which = scheduler.rng.below(self.durable as u64 - 1) as usize;
        let mut bytes = frame::write(&self.batches[which]);
        let at = scheduler.rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << scheduler.rng.below(8);
        scheduler.record_fault(Fault::BitRot, format!("byte {at} of batch {which} is corrupt"));
        self.corrupted = Some((which, bytes));
    }

    /// Restores a good copy of a corrupt batch.
    pub fn repair(&mut self) {
        self.corrupted = None;
    }

    /// Reads everything for a new writer; `None` if it is corrupt, and then no server starts. A complete tail of a file is
    /// stored, an incomplete one is truncated.
    pub fn read(&mut self, scheduler: &mut Scheduler) -> Option<Vec<Batch>> {
        if let Some((which, bytes)) = &self.corrupted
            && frame::read(bytes).is_none()
        {
            if !scheduler.is_planted(PlantedFault::CorruptionTruncated) {
                scheduler.record_fault(Fault::BitRot, format!("batch {which} is corrupt: the server does not start"));
                return None;
            }
            self.batches.truncate(*which);
            self.durable = *which;
            self.corrupted = None;
        }
        let tail = std::mem::take(&mut self.tail);
        let found = match frame::read(&tail) {
            Some(bytes) => Some(bytes.to_vec()),
            None if tail.len() > frame::HEAD && scheduler.is_planted(PlantedFault::TornTailKept) => {
                Some(tail[frame::HEAD..].to_vec())
            }
            None => None,
        };
        if let Some(bytes) = found {
            let generation = self.generation - 1;
            self.store(scheduler, generation, Rc::from(bytes));
            self.durable = self.batches.len();
        }
        Some(self.batches.clone())
    }

    /// Every batch as written; `None` if one is corrupt.
    pub fn intact_batches(&self) -> Option<&[Batch]> {
        self.corrupted.is_none().then_some(&self.batches[..])
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there are no batches.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes a backup.
    pub fn back_up(&mut self) {
        if !self.batches.is_empty() {
            self.backups.push(self.batches.clone());
        }
    }

    /// Restores a backup. The servers are down.
    pub fn restore(&mut self, scheduler: &mut Scheduler) -> bool {
        if self.backups.is_empty() {
            return false;
        }
        self.batches = scheduler.rng.pick(&self.backups).clone();
        self.durable = self.batches.len();
        (self.tail, self.in_flight, self.corrupted) = (Vec::new(), None, None);
        self.generation += 1;
        self.restores += 1;
        self.restored = Some(1 + self.restores);
        self.marked = false;
        self.record_revert(scheduler, Fault::Restore);
        true
    }

    /// Rolls the journal back without the servers' knowledge. The servers are down.
    pub fn roll_back(&mut self, scheduler: &mut Scheduler) {
        let remaining = scheduler.rng.between(1, self.batches.len() as u64) as usize;
        self.batches.truncate(remaining);
        self.durable = remaining;
        // Requests in flight to the old store do not reach the new one, and a marker was in it.
        self.generation += 1;
        self.marked = false;
        (self.tail, self.in_flight, self.corrupted) = (Vec::new(), None, None);
        self.record_revert(scheduler, Fault::Rollback);
    }

    /// Leaves a marker that this journal was rolled back.
    pub const fn mark_rolled_back(&mut self) {
        self.marked = true;
    }

    /// Whether a marker says that this journal was rolled back.
    pub const fn is_marked(&self) -> bool {
        self.marked
    }

    /// An operator accepts that this journal was rolled back: the next opening begins a new incarnation.
    pub const fn accept_rollback(&mut self) {
        self.marked = false;
        self.generation += 1;
        self.restores += 1;
        self.restored = Some(1 + self.restores);
    }

    /// Whether batches were ever lost, by a lying disk, a rollback or a restore.
    pub const fn was_reverted(&self) -> bool {
        self.reverted
    }

    fn record_revert(&mut self, scheduler: &mut Scheduler, cause: Fault) {
        self.reverted = true;
        scheduler.record_fault(cause, format!("the journal has {} batches", self.batches.len()));
        scheduler.record(HistoryEvent::JournalReverted { cause, batches: self.batches.clone() });
    }
}
