//! Model of a fenced object with holders that never stop on their own: no write is based on a version that it did not
//! see, however late it arrives (F1, F2, F4, F7).
//!
//! Bounds: one object, two holders of its resource and one of another resource. Every write stays in flight and may
//! arrive repeatedly. A lease lasts one tick of 100 ms and is never renewed, so a holder that continues is a zombie.
//! The grantor runs its turns on time, crashes and is restored. The object crashes between its mark and its effect,
//! and loses its mark. [`check`] has the numbers.

use leasehold_core::command::{Acquire, Answer, Command, Request};
use leasehold_core::fence::{Mark, Sequenced, Verdict, admit, admit_sequenced};
use leasehold_core::grantor::RestoreSpec;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{FenceKey, Incarnation, Number, Token, TokenScope};
use stateright::{Model, Property};

use super::{CLUSTER, Journal, LiveGrantor, Moment, SearchDepth, Summary};

const TICK: u32 = 100;
const RESOURCE: &str = "ledger/accounts";
const OTHER: &str = "ledger/reports";
const HOLDERS: [&str; 2] = ["first", "second"];

/// A model of one object.
#[derive(Clone, Copy, Debug)]
pub struct TargetModel {
    ticks: u32,
    grants: u8,
    writes: u8,
    crashes: u8,
    restores: u8,
    /// Number of crashes of the object.
    target_crashes: u8,
    /// Number of times that the object loses its mark.
    losses: u8,
    fault: Option<Fault>,
}

/// A fault of a target or holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target has no fence.
    NoFence,
    /// The target checks first and applies later.
    CheckThenAct,
    /// The target keeps its mark in memory.
    MarkInMemory,
    /// A lost mark is treated as "no mark yet".
    LostIsFresh,
    /// A holder reads before it claims.
    ReadBeforeClaim,
    /// A holder reads and does not claim.
    NoClaim,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 6] = [
        Self::NoFence,
        Self::CheckThenAct,
        Self::MarkInMemory,
        Self::LostIsFresh,
        Self::ReadBeforeClaim,
        Self::NoClaim,
    ];
}

const BASE: TargetModel =
    TargetModel { ticks: 2, grants: 2, writes: 2, crashes: 0, restores: 0, target_crashes: 0, losses: 0, fault: None };

/// Searches all configurations of one object.
pub fn check(bounds: SearchDepth) -> Result<Summary, String> {
    let (ticks, grants, writes) = match bounds {
        SearchDepth::Quick => (2, 2, 3),
        SearchDepth::Full => (3, 3, 3),
        SearchDepth::Deep => (4, 4, 4),
    };
    let mut summary = Summary::default();
    let model = TargetModel { ticks, grants, writes, ..BASE };
    summary.search("zombies", model)?;
    summary.search("zombies, and a grantor that crashes", TargetModel { crashes: 1, ..model })?;
    summary.search("zombies, and a target that crashes", TargetModel { target_crashes: 1, ..model })?;
    summary
        .search("zombies, and a lost mark", TargetModel { losses: 1, crashes: 1, grants: grants.max(3), ..model })?;
    summary
        .search("zombies, and a restore", TargetModel { ticks: ticks + 3, writes: writes - 1, restores: 1, ..model })?;
    Ok(summary)
}

/// Searches a configuration with a fault, which must be found.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let model = TargetModel { ticks: 3, target_crashes: 1, losses: 1, fault: Some(fault), ..BASE };
    let mut summary = Summary::default();
    summary.search("a fault at the target", model)?;
    Ok(summary)
}

/// Progress of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Granted,
    /// It has claimed.
    Claimed,
    /// It has read this version.
    Read(u8),
    /// Its write is in flight.
    Writing,
    /// It knows that its token is stale.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    token: Token,
    stage: Stage,
    sequence: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Write {
    number: Number,
    sequence: u8,
    /// The version that the write is based on.
    base: u8,
    /// A target that checks first has admitted it.
    admitted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    mark: Mark,
    durable: Mark,
    last: Option<u64>,
    version: u8,
}

impl std::hash::Hash for Object {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for mark in [self.mark, self.durable] {
            match mark {
                Mark::Armed(number) => number.get().hash(state),
                Mark::Fresh => 0_u64.hash(state),
                Mark::Lost => u64::MAX.hash(state),
            }
        }
        (self.last, self.version).hash(state);
    }
}

/// A state of the model. Everything after `object` is only observed.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    at: u32,
    generation: u8,
    incarnation: u32,
    grants: u8,
    writes: u8,
    crashes: u8,
    restores: u8,
    target_crashes: u8,
    losses: u8,
    journal: Journal,
    live: Option<LiveGrantor>,
    copy: Option<Journal>,
    holders: [Option<Holder>; 2],
    flight: Vec<Write>,
    object: Object,
    /// The highest claimed and the highest written token number.
    claimed: Option<Number>,
    written: Option<Number>,
    /// The last event.
    last_event: Option<LastEvent>,
    broken: Option<&'static str>,
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LastEvent {
    Applied { again: bool, restored: bool, rearmed: bool },
    Refused { mark_is_lost: bool },
    Duplicate,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 100 ms pass, and a live grantor runs a turn.
    Tick,
    /// A holder acquires a lease.
    Acquire(usize),
    /// It claims at the object.
    Claim(usize),
    /// It reads the object.
    Read(usize),
    /// It sends a write.
    Send(usize),
    /// A write arrives, possibly again.
    Arrive(usize),
    /// An admitted write takes effect.
    Apply(usize),
    /// A write arrives, and the target crashes between its mark and its effect.
    CrashTarget(usize),
    /// The holder of the other resource writes here.
    Misdirect,
    /// The target fails over without its mark.
    LoseMark,
    /// The mark is re-armed from the grantor's floor.
    Arm,
    /// The grantor crashes.
    Crash,
    /// The grantor recovers.
    Open,
    /// The journal is copied.
    Copy,
    /// A new incarnation starts from the copy.
    Restore,
}

impl TargetModel {
    fn open(&self, state: &mut State, restore: Option<RestoreSpec>) -> Result<(), String> {
        state.generation += 1;
        let at = Moment::new(state.at);
        let opened = LiveGrantor::open(&state.journal, at, u64::from(state.generation), restore)?;
        state.journal = state.journal.append(&opened.batch.expect("an opening is recorded"))?;
        state.live = Some(opened.live.serve(at));
        Ok(())
    }

    /// Runs a turn that is durable at once.
    fn turn(&self, state: &mut State, requests: Option<Command<'static>>) -> Result<Option<Answer>, String> {
        let live = state.live.as_ref().expect("a live grantor");
        let requests = requests.into_iter().map(|command| (Request::tagged(1), command)).collect();
        let turned = live.turn(Moment::new(state.at), requests)?;
        let answer = turned.answer(1).cloned();
        if let Some(batch) = &turned.batch {
            state.journal = state.journal.append(batch)?;
        }
        state.live = Some(turned.live);
        Ok(answer)
    }

    fn acquire(
        &self,
        state: &mut State,
        resource: &'static str,
        holder: &'static str,
    ) -> Result<Option<Token>, String> {
        let acquire = Command::Acquire(Acquire::exclusive(resource, holder, u64::from(TICK)));
        let Some(Answer::Granted(grant)) = self.turn(state, Some(acquire))? else { return Ok(None) };
        let (incarnation, resource) = (Incarnation(state.incarnation), resource_hash(resource));
        Ok(Some(Token { cluster: CLUSTER, incarnation, resource, scope: grant.scope, number: grant.number }))
    }

    fn claim(&self, state: &mut State, holder: usize) {
        let held = state.holders[holder].as_mut().expect("a holder claims");
        let number = held.token.number;
        match self.admits(state.object.mark, number) {
            Verdict::Admitted { mark } => {
                held.stage = match held.stage {
                    Stage::Read(base) => Stage::Read(base),
                    _ => Stage::Claimed,
                };
                state.object.raise(mark, self.fault);
                state.claimed = state.claimed.max(Some(number));
            }
            Verdict::Stale { .. } => held.stage = Stage::Stale,
            Verdict::Lost => state.last_event = Some(LastEvent::Refused { mark_is_lost: true }),
        }
    }

    fn admits(&self, mark: Mark, number: Number) -> Verdict {
        match (self.fault, mark) {
            (Some(Fault::NoFence), _) | (Some(Fault::LostIsFresh), Mark::Lost) => Verdict::Admitted { mark: number },
            _ => admit(mark, number),
        }
    }

    fn arrive(&self, state: &mut State, i: usize) {
        let write = state.flight[i];
        let object = state.object;
        let sequence = u64::from(write.sequence);
        let verdict = match self.admits(object.mark, write.number) {
            Verdict::Admitted { mark } if self.fault.is_some() && object.mark == Mark::Lost => {
                Sequenced::Admitted { mark, last: sequence }
            }
            Verdict::Admitted { mark } if self.fault == Some(Fault::NoFence) => {
                Sequenced::Admitted { mark, last: sequence }
            }
            _ => admit_sequenced(object.mark, object.last, write.number, sequence),
        };
        match verdict {
            Sequenced::Admitted { mark, last } if self.fault == Some(Fault::CheckThenAct) => {
                state.object.raise(mark, self.fault);
                state.object.last = Some(last);
                state.flight[i].admitted = true;
            }
            Sequenced::Admitted { mark, last } => {
                state.object.raise(mark, self.fault);
                state.object.last = Some(last);
                self.apply(state, write);
            }
            Sequenced::AlreadyApplied { .. } => {
                state.last_event = Some(LastEvent::Duplicate);
                self.answer(state, write, true);
            }
            Sequenced::Stale { .. } => {
                state.last_event = Some(LastEvent::Refused { mark_is_lost: false });
                self.answer(state, write, false);
            }
            Sequenced::Lost => state.last_event = Some(LastEvent::Refused { mark_is_lost: true }),
        }
    }

    /// Applies a write and observes it.
    fn apply(&self, state: &mut State, write: Write) {
        let number = write.number;
        if state.written.is_some_and(|written| number < written) {
            state.broken = Some("F1: the tokens of applied writes decrease");
        } else if state.claimed.is_some_and(|claimed| number < claimed) {
            state.broken = Some("F1: a zombie writes after its successor's claim");
        } else if write.base != state.object.version {
            state.broken = Some("F1: a write is based on an old version");
        }
        state.last_event = Some(LastEvent::Applied {
            again: state.written.is_some_and(|written| written < number),
            restored: state.restores > 0 && state.incarnation > 1,
            rearmed: state.losses > 0,
        });
        state.written = state.written.max(Some(number));
        state.object.version += 1;
        self.answer(state, write, true);
    }

    fn answer(&self, state: &mut State, write: Write, applied: bool) {
        let version = state.object.version;
        let sender = state.holders.iter_mut().flatten().find(|held| {
            held.token.number == write.number && held.stage == Stage::Writing && held.sequence == write.sequence
        });
        if let Some(held) = sender {
            held.stage = if applied { Stage::Read(version) } else { Stage::Stale };
        }
    }

    fn apply_event(&self, state: &mut State, event: Event) -> Result<Option<()>, String> {
        match event {
            Event::Tick => {
                state.at += TICK;
                if state.live.is_some() {
                    self.turn(state, None)?;
                }
            }
            Event::Acquire(holder) => {
                let Some(token) = self.acquire(state, RESOURCE, HOLDERS[holder])? else { return Ok(None) };
                state.grants += 1;
                state.holders[holder] = Some(Holder { token, stage: Stage::Granted, sequence: 0 });
            }
            Event::Claim(holder) => self.claim(state, holder),
            Event::Read(holder) => {
                let version = state.object.version;
                state.holders[holder].as_mut().expect("a holder reads").stage = Stage::Read(version);
            }
            Event::Send(holder) => {
                state.writes += 1;
                let held = state.holders[holder].as_mut().expect("a holder writes");
                let Stage::Read(base) = held.stage else { unreachable!("it has read") };
                held.sequence += 1;
                held.stage = Stage::Writing;
                let (number, sequence) = (held.token.number, held.sequence);
                state.flight.push(Write { number, sequence, base, admitted: false });
                state.flight.sort_unstable();
            }
            Event::Arrive(i) => self.arrive(state, i),
            Event::Apply(i) => {
                let write = state.flight[i];
                state.flight[i].admitted = false;
                self.apply(state, write);
            }
            Event::CrashTarget(i) => {
                state.target_crashes += 1;
                let number = state.flight[i].number;
                if let Verdict::Admitted { mark } = self.admits(state.object.mark, number) {
                    state.object.raise(mark, self.fault);
                }
                state.object.mark = state.object.durable;
            }
            Event::Misdirect => {
                let (scope, resource) = (TokenScope::Slot(0), resource_hash(OTHER));
                let (incarnation, number) = (Incarnation(state.incarnation), Number::MAX);
                let foreign = Token { cluster: CLUSTER, incarnation, resource, scope, number };
                if foreign.for_target(&fence_key()).is_err() {
                    return Ok(None);
                }
                state.broken = Some("F4: a token of another resource is admitted");
            }
            Event::LoseMark => {
                state.losses += 1;
                (state.object.mark, state.object.durable, state.object.last) = (Mark::Lost, Mark::Lost, None);
            }
            Event::Arm => {
                // The last applied token is forgotten, so its writes must be refused too.
                let counter = state.live.as_ref().expect("a grantor").view().counter;
                let mark = Mark::Armed(Number::new(counter + 1).ok_or("no number is left")?);
                (state.object.mark, state.object.durable) = (mark, mark);
            }
            Event::Crash => {
                state.crashes += 1;
                state.live = None;
            }
            Event::Open => self.open(state, None)?,
            Event::Copy => state.copy = Some(state.journal.clone()),
            Event::Restore => {
                state.restores += 1;
                state.at += TICK;
                state.journal = state.copy.take().expect("a copy exists");
                state.incarnation += 1;
                let incarnation = Incarnation(state.incarnation);
                self.open(state, Some(RestoreSpec { incarnation, floor: None, uid: None }))?;
            }
        }
        Ok(Some(()))
    }
}

fn fence_key() -> FenceKey {
    FenceKey::new(CLUSTER, Name::parse(RESOURCE).expect("a valid name"), 0)
}

impl Object {
    fn raise(&mut self, mark: Number, fault: Option<Fault>) {
        let mark = Mark::Armed(mark);
        if self.mark != mark {
            self.last = None;
        }
        self.mark = mark;
        if fault != Some(Fault::MarkInMemory) {
            self.durable = mark;
        }
    }
}

impl Model for TargetModel {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let fresh = Object { mark: Mark::Fresh, durable: Mark::Fresh, last: None, version: 0 };
        let mut state = State {
            at: 0,
            generation: 0,
            incarnation: 1,
            grants: 0,
            writes: 0,
            crashes: 0,
            restores: 0,
            target_crashes: 0,
            losses: 0,
            journal: Journal::empty(),
            live: None,
            copy: None,
            holders: [None; 2],
            flight: Vec::new(),
            object: fresh,
            claimed: None,
            written: None,
            last_event: None,
            broken: None,
            fault: None,
        };
        self.open(&mut state, None).expect("the first tenure opens");
        vec![state]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.broken.is_some() || state.fault.is_some() {
            return;
        }
        if state.at < self.ticks * TICK {
            events.push(Event::Tick);
        }
        for (i, holder) in state.holders.iter().enumerate() {
            // The holders are symmetric, so the first one starts.
            let may_start = i == 0 || state.holders[0].is_some();
            if state.live.is_some() && state.grants < self.grants && may_start {
                events.push(Event::Acquire(i));
            }
            let Some(held) = holder else { continue };
            match (held.stage, self.fault) {
                (Stage::Granted, Some(Fault::ReadBeforeClaim | Fault::NoClaim)) => events.push(Event::Read(i)),
                (Stage::Granted, _) => events.push(Event::Claim(i)),
                (Stage::Claimed, _) => events.push(Event::Read(i)),
                (Stage::Read(_), fault) => {
                    let claimed = state.claimed >= Some(held.token.number);
                    if fault == Some(Fault::ReadBeforeClaim) && !claimed {
                        events.push(Event::Claim(i));
                    } else if state.writes < self.writes {
                        events.push(Event::Send(i));
                    }
                }
                (Stage::Writing | Stage::Stale, _) => {}
            }
        }
        for (i, write) in state.flight.iter().enumerate() {
            events.push(if write.admitted { Event::Apply(i) } else { Event::Arrive(i) });
            if state.target_crashes < self.target_crashes {
                events.push(Event::CrashTarget(i));
            }
        }
        events.push(Event::Misdirect);
        if state.losses < self.losses && state.object.mark != Mark::Fresh {
            events.push(Event::LoseMark);
        }
        if state.object.mark == Mark::Lost && state.live.is_some() {
            events.push(Event::Arm);
        }
        match state.live {
            Some(_) if state.crashes < self.crashes => events.push(Event::Crash),
            None => events.push(Event::Open),
            Some(_) => {}
        }
        if state.restores < self.restores {
            events.push(if state.copy.is_none() { Event::Copy } else { Event::Restore });
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = State { last_event: None, ..state.clone() };
        match self.apply_event(&mut next, event) {
            Ok(changed) => changed?,
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("F1, F2, F4, F7", |_, state: &State| state.broken.is_none()),
            Property::always("V1 and the core's own checks", |_, state: &State| state.fault.is_none()),
            Property::sometimes("a zombie is refused after its successor wrote", |_, state: &State| {
                state.last_event == Some(LastEvent::Refused { mark_is_lost: false }) && state.written == state.claimed
            }),
            Property::sometimes("a write arrives twice and is applied once", |_, state: &State| {
                state.last_event == Some(LastEvent::Duplicate)
            }),
            Property::sometimes("a successor continues from its predecessor's write", |_, state: &State| {
                matches!(state.last_event, Some(LastEvent::Applied { again: true, .. }))
            }),
        ];
        if self.losses > 0 {
            properties.push(Property::sometimes("a lost mark refuses", |_, state: &State| {
                state.last_event == Some(LastEvent::Refused { mark_is_lost: true })
            }));
            properties.push(Property::sometimes("written after the mark was armed again", |_, state: &State| {
                matches!(state.last_event, Some(LastEvent::Applied { rearmed: true, .. }))
            }));
        }
        if self.restores > 0 {
            properties.push(Property::sometimes("written after a restore", |_, state: &State| {
                matches!(state.last_event, Some(LastEvent::Applied { restored: true, .. }))
            }));
        }
        properties
    }
}
