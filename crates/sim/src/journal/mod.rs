//! A simulated journal: a file on one machine's disk, or a store that several servers share and fence each other in.

mod frame;

use std::rc::Rc;

use crate::clock::MS;
use crate::fault::Fault;
use crate::history::{Batch, Event};
use crate::planted::Planted;
use crate::stage::{Due, Kept, Stage, Step};

/// Where facts are kept in a run.
#[derive(Debug, Default)]
pub struct Journal {
    /// Shared by several servers, like etcd; or one server's file.
    pub shared: bool,
    generation: u64,
    batches: Vec<Batch>,
    /// How many of them survive a crash: fewer after a lie.
    durable: usize,
    /// The file's bytes after the last whole frame: what a crash left of the append that was under way.
    tail: Vec<u8>,
    under_way: Option<(u64, Batch)>,
    /// A batch that was synced and lies there damaged, until an operator brings a good copy: which, and its bytes.
    rot: Option<(usize, Vec<u8>)>,
    backups: Vec<Vec<Batch>>,
    /// The disk takes nothing.
    pub full: bool,
    /// The disk says yes and does nothing.
    pub lies: bool,
    /// A restored copy begins a new incarnation at its next opening.
    pub restored: Option<u32>,
    restores: u32,
}

impl Journal {
    /// An empty one.
    pub fn new(shared: bool) -> Self {
        Self { shared, ..Self::default() }
    }

    /// Whether nobody has taken it from this generation.
    pub const fn is_of(&self, generation: u64) -> bool {
        generation == self.generation
    }

    /// Begins a step; its end comes as a [`Due::Kept`], or never.
    pub fn begin(&mut self, stage: &mut Stage, server: usize, life: u32, ticket: u64, step: Step) {
        if !self.shared
            && let Step::Append { generation, batch, .. } = &step
        {
            self.under_way = Some((*generation, batch.clone()));
        }
        if self.shared && stage.strikes(Fault::Unknown, 25) {
            if stage.chance.one_in(2) {
                stage.struck(Fault::Unknown, "a request to the store is lost");
                return;
            }
            stage.struck(Fault::Unknown, "a request to the store is late");
            let at = stage.at + stage.chance.between(100 * MS, 2_500 * MS);
            return stage.later(at, Due::Journal { server, life, ticket, step });
        }
        let at = stage.at + stage.chance.between(100, 2 * MS);
        stage.later(at, Due::Journal { server, life, ticket, step });
    }

    /// A step takes place. `lives` says whether the server that began it is still there.
    pub fn happen(&mut self, stage: &mut Stage, server: usize, life: u32, ticket: u64, step: Step, lives: bool) {
        if !self.shared && !lives {
            return;
        }
        let kept = match step {
            Step::Open => {
                self.generation += 1;
                Kept::Opened { generation: self.generation }
            }
            Step::Confirm { generation } => {
                if self.is_of(generation) {
                    Kept::StillMine
                } else {
                    Kept::Fenced
                }
            }
            Step::Append { generation, sequence, batch } if self.shared => {
                self.append_shared(stage, generation, sequence, batch)
            }
            Step::Append { generation, batch, .. } => self.append_file(stage, generation, batch),
        };
        if self.shared && stage.strikes(Fault::Unknown, 25) {
            return stage.struck(Fault::Unknown, format!("the store's answer is lost: {kept:?}"));
        }
        let at = stage.at + if self.shared { stage.chance.between(100, 2 * MS) } else { 0 };
        stage.later(at, Due::Kept { server, life, ticket, kept });
    }

    /// One transaction: the generation and the sequence are compared, and the batch is put.
    fn append_shared(&mut self, stage: &mut Stage, generation: u64, sequence: u64, batch: Batch) -> Kept {
        let last = self.batches.len() as u64;
        if generation != self.generation && !stage.is_planted(Planted::DeposedAppends) {
            return Kept::Fenced;
        }
        if sequence == last && self.batches.last().is_some_and(|kept| **kept == *batch) {
            return Kept::Durable;
        }
        if sequence != last + 1 && !stage.is_planted(Planted::DeposedAppends) {
            return Kept::Fenced;
        }
        self.land(stage, generation, batch);
        Kept::Durable
    }

    fn append_file(&mut self, stage: &mut Stage, generation: u64, batch: Batch) -> Kept {
        if self.full && !stage.healed {
            return Kept::Full;
        }
        if stage.strikes(Fault::FailedSync, 60) {
            stage.struck(Fault::FailedSync, "a sync fails");
            if stage.is_planted(Planted::SyncFailureIgnored) {
                self.under_way = None;
                return Kept::Durable;
            }
            return Kept::Failed;
        }
        self.under_way = None;
        self.land(stage, generation, batch);
        if self.lies && !stage.healed { Kept::Durable } else { self.sync() }
    }

    const fn sync(&mut self) -> Kept {
        self.durable = self.batches.len();
        Kept::Durable
    }

    fn land(&mut self, stage: &mut Stage, generation: u64, batch: Batch) {
        self.batches.push(batch.clone());
        self.restored = None;
        if self.shared {
            self.durable = self.batches.len();
        }
        stage.note(Event::Landed { generation, batch });
    }

    /// The file's server was killed, or its machine lost power: what was not synced is lost, torn, rotten, or all there.
    pub fn crash(&mut self, stage: &mut Stage) {
        if self.shared {
            return;
        }
        if self.durable < self.batches.len() {
            self.batches.truncate(self.durable);
            // What was written after a lost batch is lost with it.
            self.under_way = None;
            self.set_back(stage, Fault::LyingSync);
        }
        let Some((_, batch)) = self.under_way.take() else {
            return;
        };
        let mut bytes = frame::write(&batch);
        match stage.chance.below(4) {
            0 => bytes.clear(),
            1 if stage.faults.has(Fault::Torn) => {
                let at = stage.chance.below(bytes.len() as u64) as usize;
                bytes.truncate(at);
                stage.struck(Fault::Torn, format!("{at} bytes of the last append are left"));
            }
            2 if stage.faults.has(Fault::Rotten) => {
                let at = stage.chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << stage.chance.below(8);
                stage.struck(Fault::Rotten, format!("byte {at} of the last append is another"));
            }
            _ => {}
        }
        self.tail = bytes;
    }

    /// A byte of a batch that was synced is another from now on.
    pub fn rot(&mut self, stage: &mut Stage) {
        // The last one may be torn; damage before it is never cut.
        if self.durable < 2 || self.rot.is_some() {
            return;
        }
        let which = stage.chance.below(self.durable as u64 - 1) as usize;
        let mut bytes = frame::write(&self.batches[which]);
        let at = stage.chance.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << stage.chance.below(8);
        stage.struck(Fault::Rot, format!("byte {at} of batch {which} is another"));
        self.rot = Some((which, bytes));
    }

    /// An operator brings a good copy of what was damaged.
    pub fn repair(&mut self) {
        self.rot = None;
    }

    /// Everything that a new writer finds; none if it is damaged, and then nobody starts. The tail of a file is taken if it
    /// is whole, and cut if not.
    pub fn read(&mut self, stage: &mut Stage) -> Option<Vec<Batch>> {
        if let Some((which, bytes)) = &self.rot
            && frame::read(bytes).is_none()
        {
            if !stage.is_planted(Planted::RotCut) {
                stage.struck(Fault::Rot, format!("batch {which} is damaged: the server does not start"));
                return None;
            }
            self.batches.truncate(*which);
            self.durable = *which;
            self.rot = None;
        }
        let tail = std::mem::take(&mut self.tail);
        let found = match frame::read(&tail) {
            Some(bytes) => Some(bytes.to_vec()),
            None if tail.len() > frame::HEAD && stage.is_planted(Planted::TornTailKept) => {
                Some(tail[frame::HEAD..].to_vec())
            }
            None => None,
        };
        if let Some(bytes) = found {
            let generation = self.generation - 1;
            self.land(stage, generation, Rc::from(bytes));
            self.durable = self.batches.len();
        }
        Some(self.batches.clone())
    }

    /// Every batch as it was written; none where some of it is damaged.
    pub fn all(&self) -> Option<&[Batch]> {
        self.rot.is_none().then_some(&self.batches[..])
    }

    /// How many batches there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes a backup of what is there.
    pub fn back_up(&mut self) {
        if !self.batches.is_empty() {
            self.backups.push(self.batches.clone());
        }
    }

    /// Restores a backup. The servers are down.
    pub fn restore(&mut self, stage: &mut Stage) -> bool {
        if self.backups.is_empty() {
            return false;
        }
        self.batches = stage.chance.pick(&self.backups).clone();
        self.durable = self.batches.len();
        (self.tail, self.under_way, self.rot) = (Vec::new(), None, None);
        self.generation += 1;
        self.restores += 1;
        self.restored = Some(1 + self.restores);
        self.set_back(stage, Fault::Restore);
        true
    }

    /// Sets the journal back behind everybody's back. The servers are down.
    pub fn roll_back(&mut self, stage: &mut Stage) {
        let kept = stage.chance.between(1, self.batches.len() as u64) as usize;
        self.batches.truncate(kept);
        self.durable = kept;
        // What was on its way to the old store does not find the new one.
        self.generation += 1;
        (self.tail, self.under_way, self.rot) = (Vec::new(), None, None);
        self.set_back(stage, Fault::Rollback);
    }

    fn set_back(&self, stage: &mut Stage, why: Fault) {
        stage.struck(why, format!("the journal has {} batches", self.batches.len()));
        stage.note(Event::SetBack { why, batches: self.batches.clone() });
    }
}
