//! A target with a fence: check, write and mark are one step, durable together, and a crash loses them together.

use std::collections::VecDeque;

use leasehold_core::name::Name;
use leasehold_core::token::{Guarded, Number, Token, plausible};
use leasehold_fence::{Mark, Verdict as Ruling, admit};

use crate::ask::EXCLUSIVE;
use crate::clock::{At, Clock, MS};
use crate::history::{Event, Shown, Verdict};
use crate::planted::Planted;
use crate::server::CLUSTER;
use crate::stage::{Actor, Due, Mail, Stage};

/// After so long without a write a fence with [`Planted::MarkExpires`] forgets its mark.
const FORGETS: At = 1_500 * MS;

/// One target.
pub struct Target {
    index: usize,
    clock: Clock,
    guarded: Guarded,
    life: u32,
    mark: Mark,
    /// How many entries its log has, and how many of them a crash keeps with which mark.
    length: usize,
    durable: (usize, Mark),
    /// Answers that wait until so much is durable.
    unanswered: VecDeque<(usize, Actor, u64)>,
    flushing: bool,
    written: At,
}

impl Target {
    /// A new target, armed as fresh.
    pub fn new(index: usize) -> Self {
        let name = Name::parse(EXCLUSIVE[index]).expect("a resource of this world has a good name");
        Self {
            index,
            clock: Clock::new(0, 1_000_000),
            guarded: Guarded::new(CLUSTER, name, 0),
            life: 0,
            mark: Mark::Fresh,
            length: 0,
            durable: (0, Mark::Fresh),
            unanswered: VecDeque::new(),
            flushing: false,
            written: 0,
        }
    }

    /// A write or a claim arrives: it is checked and applied in one step.
    pub fn receive(&mut self, stage: &mut Stage, id: u64, from: Actor, text: &str, value: Option<u64>) {
        let Ok(token) = Token::parse(text) else {
            return self.answer(stage, from, id, false);
        };
        let wall = self.clock.now(stage.at).wall;
        let number = token.for_target(&self.guarded);
        let believed = number.is_ok_and(|number| plausible(number, wall));
        // What the guard itself knows, not what the core's rule says of it: the two are compared.
        let right = token.cluster == self.guarded.cluster
            && token.resource == self.guarded.resource
            && token.number.get() < (1 << 62);
        let shown = Shown { number: token.number, right };
        if stage.is_planted(Planted::MarkExpires) && stage.at > self.written + FORGETS {
            self.mark = Mark::Fresh;
        }
        let ruling = match number {
            _ if stage.is_planted(Planted::FenceOff) => Ok(token.number),
            Err(wrong) => Err(wrong.why()),
            Ok(_) if !believed => Err("implausible"),
            Ok(number) => match admit(self.mark, number) {
                Ruling::Admitted { mark } => Ok(mark),
                Ruling::Stale { .. } => Err("stale"),
                Ruling::Lost => Err("lost"),
            },
        };
        let who = from.place() as u32;
        match ruling {
            Err(why) => {
                let target = self.index as u32;
                stage.note(Event::Wrote { target, who, shown, value, verdict: Verdict::Refused(why) });
                self.answer(stage, from, id, false);
            }
            Ok(number) if stage.is_planted(Planted::CheckThenAct) => {
                let at = stage.at + stage.chance.between(MS, 400 * MS);
                stage.later(at, Due::Apply { target: self.index, id, from, number, value });
            }
            Ok(mark) => self.apply(stage, id, from, shown, Mark::Armed(mark), value),
        }
    }

    /// What was checked a while ago is written now: only a target with [`Planted::CheckThenAct`] does so.
    pub fn apply_late(&mut self, stage: &mut Stage, id: u64, from: Actor, number: Number, value: Option<u64>) {
        let shown = Shown { number, right: true };
        let mark = match self.mark {
            Mark::Armed(mark) => mark.max(number),
            Mark::Fresh | Mark::Lost => number,
        };
        self.apply(stage, id, from, shown, Mark::Armed(mark), value);
    }

    fn apply(&mut self, stage: &mut Stage, id: u64, from: Actor, shown: Shown, mark: Mark, value: Option<u64>) {
        self.mark = mark;
        self.length += 1;
        self.written = stage.at;
        let (target, who) = (self.index as u32, from.place() as u32);
        stage.note(Event::Wrote { target, who, shown, value, verdict: Verdict::Applied });
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
        self.durable = (self.length, self.mark);
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
        (self.length, self.mark) = self.durable;
        if stage.is_planted(Planted::MarkNotDurable) {
            self.mark = Mark::Fresh;
        }
        stage.note(Event::TargetKilled { target: self.index as u32, kept: self.length });
    }

    /// It failed over to a copy that has the data and not the mark.
    pub fn lose_mark(&mut self, stage: &mut Stage) {
        self.mark = Mark::Lost;
        self.durable = (self.length, Mark::Lost);
        stage.note(Event::Mark { target: self.index as u32, armed: None });
    }

    /// Whether its mark is lost.
    pub fn is_lost(&self) -> bool {
        self.mark == Mark::Lost
    }

    /// Armed again from the grantor's floor.
    pub fn rearm(&mut self, stage: &mut Stage, floor: Number) {
        self.mark = Mark::Armed(floor);
        self.durable = (self.length, self.mark);
        stage.note(Event::Mark { target: self.index as u32, armed: Some(floor) });
    }
}
