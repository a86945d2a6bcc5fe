//! Recovery: replays the journal in two ways that must agree, and opens a tenure.

use std::rc::Rc;

use leasehold_core::codec::Reader;
use leasehold_core::grantor::{Output, RestoreSpec, TenureOptions, recover};
use leasehold_core::journal_lineage::{self, Lineage, LineageVerdict, SeenBatch, TenureStart};
use leasehold_core::lease::Validity;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::token::Incarnation;

use super::SimServer;
use crate::history::{Batch, HistoryEvent};
use crate::journal::SimJournal;
use crate::mutants::PlantedFault;
use crate::run_constants::{CLUSTER, MAX_TTL};
use crate::scheduler::{JournalStep, Scheduler};

/// The openings of a journal.
fn lineage_of(batches: &[Batch]) -> Lineage {
    let mut lineage = Lineage::starting_at(1);
    for (sequence, batch) in (1..).zip(batches) {
        if records(batch).any(|record| matches!(record, Record::Opened { .. })) {
            lineage.opened(TenureStart { sequence, digest: journal_lineage::digest(batch) }, begins_incarnation(batch));
        }
    }
    lineage
}

fn begins_incarnation(batch: &[u8]) -> bool {
    records(batch).any(|record| matches!(record, Record::Created { .. } | Record::Restored { .. }))
}

/// The records of a batch, as far as they can be read.
fn records(batch: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut from = Reader::new(batch);
    let readable = BatchHeader::decode(&mut from).is_ok();
    std::iter::from_fn(move || {
        if !readable || from.is_empty() {
            return None;
        }
        Record::decode(&mut from).ok()
    })
}

impl SimServer {
    pub(super) fn recover(&mut self, scheduler: &mut Scheduler, journal: &mut SimJournal) -> bool {
        let Some(batches) = journal.read(scheduler) else { return true };
        if journal.shared && journal.restored.is_none() && self.refuses(scheduler, journal, &batches) {
            return true;
        }
        self.lineage = lineage_of(&batches);
        let cut = scheduler.rng.below(batches.len() as u64 + 1) as usize;
        let seed = scheduler.rng.draw();
        let bytes = |from: usize, to: usize| batches[from..to].iter().map(|batch| &**batch);
        // Replaying from the beginning or from a snapshot at any point gives the same state (V1).
        let state = recover(seed, None, bytes(0, cut)).and_then(|half| {
            let snapshot = half.info().is_some().then(|| half.snapshot());
            let from_snapshot = recover(!seed, snapshot.as_deref(), bytes(cut, batches.len()))?;
            let whole = recover(seed, None, bytes(0, batches.len()))?;
            Ok((from_snapshot, whole))
        });
        let now = self.clock.now(scheduler.now);
        let restore = journal.restored.map(|incarnation| RestoreSpec {
            incarnation: Incarnation(incarnation),
            floor: None,
            uid: None,
        });
        let opening = TenureOptions {
            cluster: CLUSTER,
            incarnation: Incarnation(1),
            generation: self.generation,
            validity: if journal.shared { Validity::Quorum } else { Validity::Session },
            max_ttl: MAX_TTL,
            restore,
        };
        let opened = match state {
            Err(corrupt) => Err(("V2", corrupt.to_string())),
            Ok((a, b)) if a.state_hash() != b.state_hash() => {
                Err(("V1", "a snapshot and the records before it differ".to_owned()))
            }
            Ok((state, _)) => state.open(now, &opening).map_err(|detail| ("T5", detail.to_string())),
        };
        let mut grantor = match opened {
            Ok(grantor) => grantor,
            Err((promise, detail)) => {
                scheduler.record(HistoryEvent::InvariantBroken { promise, detail });
                return true;
            }
        };
        grantor.take_output(&mut self.output);
        self.grantor = Some(grantor);
        self.next = journal.len() as u64 + 1;
        let batch = Rc::from(&self.output.batch[..]);
        self.submit(
            scheduler,
            journal,
            JournalStep::Append { generation: self.generation, sequence: self.next, batch },
        );
        false
    }

    /// Compares the journal with the last batch that this server has seen. If that is lost, it leaves a marker; a marker stops every
    /// server.
    fn refuses(&self, scheduler: &mut Scheduler, journal: &mut SimJournal, batches: &[Batch]) -> bool {
        let lost = self.seen.is_some_and(|seen| {
            let last = batches.len() as u64;
            if scheduler.is_planted(PlantedFault::ContentNotCompared) {
                return last < seen.sequence;
            }
            lineage_of(batches).compare(&seen, last) == LineageVerdict::Lost
        });
        if lost {
            scheduler.record(HistoryEvent::RollbackFound { server: self.index as u32 });
            journal.mark_rolled_back();
        }
        lost || journal.is_marked()
    }

    /// Remembers the batch that just became durable.
    pub(super) fn remember_batch(&mut self) {
        let Some(JournalStep::Append { sequence, batch, .. }) =
            self.in_flight.as_ref().map(|in_flight| &in_flight.step)
        else {
            return;
        };
        let (sequence, digest) = (*sequence, journal_lineage::digest(batch));
        if !self.serving {
            self.lineage.opened(TenureStart { sequence, digest }, begins_incarnation(batch));
        }
        self.seen = self.lineage.opening().map(|opening| SeenBatch {
            sequence,
            digest,
            opening,
            incarnation: self.lineage.incarnation(),
        });
    }

    /// Starts to serve, once the opening is durable.
    pub(super) fn serve(&mut self, scheduler: &mut Scheduler) -> bool {
        let now = self.clock.now(scheduler.now);
        self.grantor.as_mut().expect("the grantor was created by recovery").serve(now);
        self.output = Output::default();
        self.serving = true;
        self.last_turn_at = scheduler.now;
        self.backlog_absorbed = false;
        scheduler.record(HistoryEvent::Serving { server: self.index as u32, generation: self.generation });
        self.schedule_next_turn(scheduler);
        false
    }

    /// Sometimes compares the serving state with a replay of its records (V1).
    pub(super) fn compare_with_journal(&self, scheduler: &mut Scheduler, journal: &SimJournal) {
        let Some(grantor) = self.grantor().filter(|_| scheduler.rng.one_in(40)) else { return };
        // Another server may have appended since; then the records are no longer its own.
        let Some(batches) = journal.intact_batches().filter(|batches| batches.len() as u64 + 1 == self.next) else {
            return;
        };
        let folded = recover(scheduler.rng.draw(), None, batches.iter().map(|batch| &**batch));
        if folded.is_ok_and(|folded| folded.state_hash() != grantor.state_hash()) {
            let detail = "the serving state differs from a replay of its records".to_owned();
            scheduler.record(HistoryEvent::InvariantBroken { promise: "V1", detail });
        }
    }
}
