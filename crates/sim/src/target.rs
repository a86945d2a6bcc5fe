//! A target with a fence: check, write and mark are one step, durable together, and a crash loses them together.

use std::collections::VecDeque;

use leasehold_core::fence::{Follow, Sequenced, admit_sequenced, follow};
use leasehold_core::name::Name;
use leasehold_core::token::{Guarded, Incarnation, Number, Token, plausible};
use leasehold_fence::{Mark, Verdict as Ruling, admit};

use crate::ask::EXCLUSIVE;
use crate::clock::{At, Clock, MS};
use crate::history::{Event, Shown, Verdict};
use crate::planted::Planted;
use crate::server::CLUSTER;
use crate::stage::{Actor, Due, Mail, Stage};

/// After so long without a write a fence with [`Planted::MarkExpires`] forgets its mark.
const FORGETS: At = 1_500 * MS;

/// The target that counts the writes under each token: what comes again is told so, and not applied again.
pub const COUNTS: usize = 1;
/// The target that follows one life of the cluster, until it is told of another.
pub const STRICT: usize = 2;

/// What a target keeps beside its data.
#[derive(Clone, Copy)]
struct Kept {
    mark: Mark,
    last: Option<u64>,
    incarnation: Option<Incarnation>,
}

/// One target.
pub struct Target {
    index: usize,
    clock: Clock,
    guarded: Guarded,
    life: u32,
    kept: Kept,
    /// How many entries its log has, and how many of them a crash keeps with which mark.
    length: usize,
    durable: (usize, Kept),
    /// Answers that wait until so much is durable.
    unanswered: VecDeque<(usize, Actor, u64)>,
    flushing: bool,
    written: At,
    /// The last token that it refused as stale, with the mark, until somebody asks for it.
    pub refused: Option<(Number, Number)>,
}

impl Target {
    /// A new target, armed as fresh.
    pub fn new(index: usize) -> Self {
        let name = Name::parse(EXCLUSIVE[index]).expect("a resource of this world has a good name");
        let kept = Kept { mark: Mark::Fresh, last: None, incarnation: None };
        Self {
            index,
            clock: Clock::new(0, 1_000_000),
            guarded: Guarded::new(CLUSTER, name, 0),
            life: 0,
            kept,
            length: 0,
            durable: (0, kept),
            unanswered: VecDeque::new(),
            flushing: false,
            written: 0,
            refused: None,
        }
    }

    /// A write or a claim arrives: it is checked and applied in one step.
    pub fn receive(&mut self, stage: &mut Stage, id: u64, from: Actor, text: &str, sequence: u64, value: Option<u64>) {
        let Ok(token) = Token::parse(text) else {
            return self.answer(stage, from, id, false);
        };
        // What the guard itself knows, not what the core's rule says of it: the two are compared.
        let right = token.cluster == self.guarded.cluster
            && token.resource == self.guarded.resource
            && token.number.get() < (1 << 62);
        let shown = Shown { number: token.number, incarnation: token.incarnation.0, right };
        if stage.is_planted(Planted::MarkExpires) && stage.at > self.written + FORGETS {
            self.kept.mark = Mark::Fresh;
        }
        match self.rule(stage, &token, sequence, value) {
            Err(why) => {
                let (target, who) = (self.index as u32, from.place() as u32);
                stage.note(Event::Wrote { target, id, who, shown, value, verdict: Verdict::Refused(why) });
                if let ("stale", Mark::Armed(mark)) = (why, self.kept.mark) {
                    self.refused = Some((token.number, mark));
                }
                self.answer(stage, from, id, false);
            }
            Ok(_) if stage.is_planted(Planted::CheckThenAct) => {
                let at = stage.at + stage.chance.between(MS, 400 * MS);
                stage.later(at, Due::Apply { target: self.index, id, from, shown, value });
            }
            Ok(kept) => self.apply(stage, id, from, shown, kept, value),
        }
    }

    /// What is kept if this is let in, or why it is not.
    fn rule(&self, stage: &Stage, token: &Token, sequence: u64, value: Option<u64>) -> Result<Kept, &'static str> {
        let raised = |number, last| Kept { mark: Mark::Armed(number), last, incarnation: Some(token.incarnation) };
        let one_path = value.is_some_and(|value| value.is_multiple_of(4));
        if stage.is_planted(Planted::FenceOff) || (stage.is_planted(Planted::OnePathUnchecked) && one_path) {
            return Ok(raised(token.number, self.kept.last));
        }
        let number = token.for_target(&self.guarded).map_err(|wrong| wrong.why())?;
        if !plausible(number, self.clock.now(stage.at).wall) {
            return Err("implausible");
        }
        let strict = self.index == STRICT && !stage.is_planted(Planted::AnyIncarnation);
        if follow(self.kept.incarnation, strict, token.incarnation) == Follow::NotAdopted {
            return Err("another incarnation");
        }
        if self.index == COUNTS && !stage.is_planted(Planted::SequenceIgnored) {
            return match admit_sequenced(self.kept.mark, self.kept.last, number, sequence) {
                Sequenced::Admitted { mark, last } => Ok(raised(mark, Some(last))),
                Sequenced::AlreadyApplied { .. } => Err("already applied"),
                Sequenced::Stale { .. } => Err("stale"),
                Sequenced::Lost => Err("lost"),
            };
        }
        match admit(self.kept.mark, number) {
            Ruling::Admitted { mark } => Ok(raised(mark, None)),
            Ruling::Stale { .. } => Err("stale"),
            Ruling::Lost => Err("lost"),
        }
    }

    /// What was checked a while ago is written now: only a target with [`Planted::CheckThenAct`] does so.
    pub fn apply_late(&mut self, stage: &mut Stage, id: u64, from: Actor, shown: Shown, value: Option<u64>) {
        let mark = match self.kept.mark {
            Mark::Armed(mark) => mark.max(shown.number),
            Mark::Fresh | Mark::Lost => shown.number,
        };
        self.apply(stage, id, from, shown, Kept { mark: Mark::Armed(mark), ..self.kept }, value);
    }

    fn apply(&mut self, stage: &mut Stage, id: u64, from: Actor, shown: Shown, kept: Kept, value: Option<u64>) {
        self.kept = kept;
        self.length += 1;
        self.written = stage.at;
        let (target, who) = (self.index as u32, from.place() as u32);
        stage.note(Event::Wrote { target, id, who, shown, value, verdict: Verdict::Applied });
        self.unanswered.push_back((self.length, from, id));
        if !self.flushing {
            self.flushing = true;
            let at = stage.at + stage.chance.between(MS / 2, 10 * MS);
            stage.later(at, Due::Flush { target: self.index, life: self.life });
        }
    }

    /// What was written is durable, and only now it is answered.
    pub fn flush(&mut self, stage: &mut Stage, life: u32) {
        if life != self.life {
            return;
        }
        self.flushing = false;
        self.durable = (self.length, self.kept);
        while let Some((length, from, id)) = self.unanswered.front().copied() {
            if length > self.durable.0 {
                break;
            }
            self.unanswered.pop_front();
            self.answer(stage, from, id, true);
        }
    }

    fn answer(&self, stage: &mut Stage, to: Actor, id: u64, applied: bool) {
        stage.send(Actor::Target(self.index), to, Mail::Written { id, applied });
    }

    /// Killed and started again: what was not durable is gone, write and mark alike.
    pub fn kill(&mut self, stage: &mut Stage) {
        self.life += 1;
        self.flushing = false;
        self.unanswered.clear();
        (self.length, self.kept) = self.durable;
        if stage.is_planted(Planted::MarkNotDurable) {
            self.kept.mark = Mark::Fresh;
        }
        stage.note(Event::TargetKilled { target: self.index as u32, kept: self.length });
    }

    /// It failed over to a copy that has the data and not the mark.
    pub fn lose_mark(&mut self, stage: &mut Stage) {
        self.kept.mark = Mark::Lost;
        self.durable = (self.length, self.kept);
        stage.note(Event::Mark { target: self.index as u32, armed: None });
    }

    /// Whether its mark is lost.
    pub fn is_lost(&self) -> bool {
        self.kept.mark == Mark::Lost
    }

    /// Armed again from the grantor's floor.
    pub fn rearm(&mut self, stage: &mut Stage, floor: Number) {
        self.kept = Kept { mark: Mark::Armed(floor), last: None, ..self.kept };
        self.durable = (self.length, self.kept);
        stage.note(Event::Mark { target: self.index as u32, armed: Some(floor) });
    }

    /// The operator tells a strict target of the cluster's new life, sooner or later.
    pub fn adopt(&mut self, stage: &mut Stage, incarnation: Incarnation) {
        let other = self.kept.incarnation.is_some_and(|kept| kept != incarnation);
        if self.index == STRICT && other && (stage.healed || stage.chance.one_in(16)) {
            self.kept.incarnation = Some(incarnation);
            self.durable = (self.length, self.kept);
            stage.note(Event::Adopted { target: self.index as u32, incarnation: incarnation.0 });
        }
    }
}
