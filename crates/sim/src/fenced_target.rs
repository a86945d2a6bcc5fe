//! A target with a fence: check, write and mark are one step. They become durable together, and a crash loses them together.

use std::collections::VecDeque;

use leasehold_core::fence::{Follow, Mark, Sequenced, Verdict as FenceVerdict, admit, admit_sequenced, follow};
use leasehold_core::name::Name;
use leasehold_core::token::{FenceKey, Incarnation, Number, Token, plausible};

use crate::clock::{MS, SimClock, SimTime};
use crate::history::{HistoryEvent, PresentedWrite, TargetVerdict};
use crate::message::{Message, SimActor};
use crate::mutants::PlantedFault;
use crate::run_constants::{CLUSTER, EXCLUSIVE};
use crate::scheduler::{ScheduledEvent, Scheduler};

/// Time without a write after which [`PlantedFault::MarkExpires`] forgets the mark.
const FORGET_AFTER: SimTime = 1_500 * MS;

/// The target that requires sequence numbers: a duplicate is refused as already applied.
pub const SEQUENCED: usize = 1;
/// The strict target: it follows one incarnation until it adopts another.
pub const STRICT: usize = 2;

/// Fence state of a target.
#[derive(Clone, Copy)]
struct TargetState {
    mark: Mark,
    last: Option<u64>,
    incarnation: Option<Incarnation>,
}

/// A simulated target.
pub struct SimTarget {
    index: usize,
    clock: SimClock,
    key: FenceKey,
    boot: u32,
    state: TargetState,
    /// Number of log entries, and the entries and fence state that survive a crash.
    length: usize,
    durable: (usize, TargetState),
    /// Acknowledgments that wait until this many entries are durable.
    unacknowledged: VecDeque<(usize, SimActor, u64)>,
    flushing: bool,
    last_write: SimTime,
    /// The last token refused as stale, with the mark, until it is reported.
    pub refused: Option<(Number, Number)>,
}

impl SimTarget {
    /// Creates a target, armed as fresh.
    pub fn new(index: usize) -> Self {
        let name = Name::parse(EXCLUSIVE[index]).expect("resource names are valid");
        let state = TargetState { mark: Mark::Fresh, last: None, incarnation: None };
        Self {
            index,
            clock: SimClock::new(0, 1_000_000),
            key: FenceKey::new(CLUSTER, name, 0),
            boot: 0,
            state,
            length: 0,
            durable: (0, state),
            unacknowledged: VecDeque::new(),
            flushing: false,
            last_write: 0,
            refused: None,
        }
    }

    /// Receives a write or a claim, which is checked and applied in one step.
    pub fn receive(
        &mut self,
        scheduler: &mut Scheduler,
        id: u64,
        from: SimActor,
        text: &str,
        sequence: u64,
        value: Option<u64>,
    ) {
        let Ok(token) = Token::parse(text) else {
            return self.answer(scheduler, from, id, false);
        };
        // Computed without the core's rule, to compare the two.
        let valid =
            token.cluster == self.key.cluster && token.resource == self.key.resource && token.number.get() < (1 << 62);
        let presented = PresentedWrite { number: token.number, incarnation: token.incarnation.0, valid };
        if scheduler.is_planted(PlantedFault::MarkExpires) && scheduler.now > self.last_write + FORGET_AFTER {
            self.state.mark = Mark::Fresh;
        }
        match self.check(scheduler, &token, sequence, value) {
            Err(detail) => {
                let (target, actor) = (self.index as u32, from.index() as u32);
                scheduler.record(HistoryEvent::WriteDecided {
                    target,
                    id,
                    actor,
                    presented,
                    value,
                    verdict: TargetVerdict::Refused(detail),
                });
                if let ("stale", Mark::Armed(mark)) = (detail, self.state.mark) {
                    self.refused = Some((token.number, mark));
                }
                self.answer(scheduler, from, id, false);
            }
            Ok(_) if scheduler.is_planted(PlantedFault::CheckThenAct) => {
                let at = scheduler.now + scheduler.rng.between(MS, 400 * MS);
                scheduler.schedule(at, ScheduledEvent::Apply { target: self.index, id, from, presented, value });
            }
            Ok(state) => self.apply(scheduler, id, from, presented, state, value),
        }
    }

    /// The fence state after this write, or the reason for its refusal.
    fn check(
        &self,
        scheduler: &Scheduler,
        token: &Token,
        sequence: u64,
        value: Option<u64>,
    ) -> Result<TargetState, &'static str> {
        let raised =
            |number, last| TargetState { mark: Mark::Armed(number), last, incarnation: Some(token.incarnation) };
        let one_path = value.is_some_and(|value| value.is_multiple_of(4));
        if scheduler.is_planted(PlantedFault::FenceOff)
            || (scheduler.is_planted(PlantedFault::OnePathUnchecked) && one_path)
        {
            return Ok(raised(token.number, self.state.last));
        }
        let number = token.for_target(&self.key).map_err(|wrong| wrong.reason())?;
        if !plausible(number, self.clock.now(scheduler.now).wall) {
            return Err("implausible");
        }
        let strict = self.index == STRICT && !scheduler.is_planted(PlantedFault::AnyIncarnation);
        if follow(self.state.incarnation, strict, token.incarnation) == Follow::NotAdopted {
            return Err("another incarnation");
        }
        if self.index == SEQUENCED && !scheduler.is_planted(PlantedFault::SequenceIgnored) {
            return match admit_sequenced(self.state.mark, self.state.last, number, sequence) {
                Sequenced::Admitted { mark, last } => Ok(raised(mark, Some(last))),
                Sequenced::AlreadyApplied { .. } => Err("already applied"),
                Sequenced::Stale { .. } => Err("stale"),
                Sequenced::Lost => Err("lost"),
            };
        }
        match admit(self.state.mark, number) {
            FenceVerdict::Admitted { mark } => Ok(raised(mark, None)),
            FenceVerdict::Stale { .. } => Err("stale"),
            FenceVerdict::Lost => Err("lost"),
        }
    }

    /// Applies a write that was checked earlier; only with [`PlantedFault::CheckThenAct`].
    pub fn apply_late(
        &mut self,
        scheduler: &mut Scheduler,
        id: u64,
        from: SimActor,
        presented: PresentedWrite,
        value: Option<u64>,
    ) {
        let mark = match self.state.mark {
            Mark::Armed(mark) => mark.max(presented.number),
            Mark::Fresh | Mark::Lost => presented.number,
        };
        self.apply(scheduler, id, from, presented, TargetState { mark: Mark::Armed(mark), ..self.state }, value);
    }

    fn apply(
        &mut self,
        scheduler: &mut Scheduler,
        id: u64,
        from: SimActor,
        presented: PresentedWrite,
        state: TargetState,
        value: Option<u64>,
    ) {
        self.state = state;
        self.length += 1;
        self.last_write = scheduler.now;
        let (target, actor) = (self.index as u32, from.index() as u32);
        scheduler.record(HistoryEvent::WriteDecided {
            target,
            id,
            actor,
            presented,
            value,
            verdict: TargetVerdict::Applied,
        });
        self.unacknowledged.push_back((self.length, from, id));
        if !self.flushing {
            self.flushing = true;
            let at = scheduler.now + scheduler.rng.between(MS / 2, 10 * MS);
            scheduler.schedule(at, ScheduledEvent::Flush { target: self.index, boot: self.boot });
        }
    }

    /// Makes all writes durable and acknowledges them.
    pub fn flush(&mut self, scheduler: &mut Scheduler, boot: u32) {
        if boot != self.boot {
            return;
        }
        self.flushing = false;
        self.durable = (self.length, self.state);
        while let Some((length, from, id)) = self.unacknowledged.front().copied() {
            if length > self.durable.0 {
                break;
            }
            self.unacknowledged.pop_front();
            self.answer(scheduler, from, id, true);
        }
    }

    fn answer(&self, scheduler: &mut Scheduler, to: SimActor, id: u64, applied: bool) {
        scheduler.send(SimActor::Target(self.index), to, Message::Written { id, applied });
    }

    /// Kills and restarts the target: writes and marks that were not durable are lost.
    pub fn kill(&mut self, scheduler: &mut Scheduler) {
        self.boot += 1;
        self.flushing = false;
        self.unacknowledged.clear();
        (self.length, self.state) = self.durable;
        if scheduler.is_planted(PlantedFault::MarkNotDurable) {
            self.state.mark = Mark::Fresh;
        }
        scheduler.record(HistoryEvent::TargetKilled { target: self.index as u32, remaining: self.length });
    }

    /// Fails over to a copy that has the data but not the mark.
    pub fn lose_mark(&mut self, scheduler: &mut Scheduler) {
        self.state.mark = Mark::Lost;
        self.durable = (self.length, self.state);
        scheduler.record(HistoryEvent::MarkChanged { target: self.index as u32, armed: None });
    }

    /// Whether its mark is lost.
    pub fn is_lost(&self) -> bool {
        self.state.mark == Mark::Lost
    }

    /// Re-arms the fence from the grantor's floor.
    pub fn rearm(&mut self, scheduler: &mut Scheduler, floor: Number) {
        self.state = TargetState { mark: Mark::Armed(floor), last: None, ..self.state };
        self.durable = (self.length, self.state);
        scheduler.record(HistoryEvent::MarkChanged { target: self.index as u32, armed: Some(floor) });
    }

    /// The operator makes a strict target adopt the new incarnation, eventually.
    pub fn adopt(&mut self, scheduler: &mut Scheduler, incarnation: Incarnation) {
        let other = self.state.incarnation.is_some_and(|current| current != incarnation);
        if self.index == STRICT && other && (scheduler.healed || scheduler.rng.one_in(16)) {
            self.state.incarnation = Some(incarnation);
            self.durable = (self.length, self.state);
            scheduler.record(HistoryEvent::Adopted { target: self.index as u32, incarnation: incarnation.0 });
        }
    }
}
