//! How a server comes to serve: what is on record is folded in two ways that must agree, and a tenure begins.

use std::rc::Rc;

use leasehold_core::grantor::{Opening, Output, Restoring, recover};
use leasehold_core::lease::Rung;
use leasehold_core::token::Incarnation;

use super::{CLUSTER, MAX_TTL, Server};
use crate::history::Event;
use crate::journal::Journal;
use crate::stage::{Stage, Step};

impl Server {
    pub(super) fn recover(&mut self, stage: &mut Stage, journal: &mut Journal) -> bool {
        let Some(batches) = journal.read(stage) else { return true };
        let cut = stage.chance.below(batches.len() as u64 + 1) as usize;
        let seed = stage.chance.draw();
        let bytes = |from: usize, to: usize| batches[from..to].iter().map(|batch| &**batch);
        // From the beginning, or from a snapshot of anywhere: the state is the same (V1).
        let state = recover(seed, None, bytes(0, cut)).and_then(|half| {
            let snapshot = half.about().is_some().then(|| half.snapshot());
            let from_snapshot = recover(!seed, snapshot.as_deref(), bytes(cut, batches.len()))?;
            let whole = recover(seed, None, bytes(0, batches.len()))?;
            Ok((from_snapshot, whole))
        });
        let now = self.clock.now(stage.at);
        let restore = journal.restored.map(|life| Restoring { incarnation: Incarnation(life), floor: None });
        let opening = Opening {
            cluster: CLUSTER,
            incarnation: Incarnation(1),
            generation: self.generation,
            rung: if journal.shared { Rung::Quorum } else { Rung::Session },
            max_ttl: MAX_TTL,
            restore,
        };
        let opened = match state {
            Err(corrupt) => Err(("V2", corrupt.to_string())),
            Ok((a, b)) if a.state_hash() != b.state_hash() => {
                Err(("V1", "a snapshot and the records before it differ".to_owned()))
            }
            Ok((state, _)) => state.open(now, &opening).map_err(|why| ("T5", why.to_string())),
        };
        let mut grantor = match opened {
            Ok(grantor) => grantor,
            Err((promise, why)) => {
                stage.note(Event::Broken { promise, why });
                return true;
            }
        };
        grantor.take_output(&mut self.output);
        self.grantor = Some(grantor);
        self.next = journal.len() as u64 + 1;
        let batch = Rc::from(&self.output.batch[..]);
        self.begin(stage, journal, Step::Append { generation: self.generation, sequence: self.next, batch });
        false
    }

    /// The opening is durable.
    pub(super) fn serve(&mut self, stage: &mut Stage) -> bool {
        let now = self.clock.now(stage.at);
        self.grantor.as_mut().expect("an opening is a grantor's").serve(now);
        self.output = Output::default();
        self.serving = true;
        self.turned = stage.at;
        self.let_in = false;
        stage.note(Event::Serving { server: self.index as u32, generation: self.generation });
        self.rest(stage);
        false
    }

    /// Now and then what serves is compared with what its records alone make (V1).
    pub(super) fn compare(&self, stage: &mut Stage, journal: &Journal) {
        let Some(grantor) = self.grantor().filter(|_| stage.chance.one_in(40)) else { return };
        // Somebody else may have written since; then the records are no longer its own.
        let Some(batches) = journal.all().filter(|batches| batches.len() as u64 + 1 == self.next) else { return };
        let folded = recover(stage.chance.draw(), None, batches.iter().map(|batch| &**batch));
        if folded.is_ok_and(|folded| folded.state_hash() != grantor.state_hash()) {
            let why = "what serves is not what its records make".to_owned();
            stage.note(Event::Broken { promise: "V1", why });
        }
    }
}
