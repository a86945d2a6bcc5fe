//! A fenced object, and holders that never police themselves: whatever arrives however late, nothing is built on what it
//! did not see (F1, F2, F4, F7).
//!
//! Bounds: one object, two holders of its resource and one of another; every write stays in flight for ever and may
//! arrive again; a lease lasts 100 ms, a tick, and nobody renews, so a holder that goes on is a zombie. The grantor takes
//! its turns on time, crashes and is restored; the object is cut short between its mark and its effect, and loses its
//! mark. How many of each there are stands in [`check`].

use leasehold_core::command::{Acquire, Answer, Command, Request};
use leasehold_core::fence::{Mark, Sequenced, Verdict, admit, admit_sequenced};
use leasehold_core::grantor::Restoring;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Guarded, Incarnation, Number, Reach, Token};
use stateright::{Model, Property};

use super::{Bounds, CLUSTER, Journal, Live, Moment, Summary};

const TICK: u32 = 100;
const RESOURCE: &str = "ledger/accounts";
const OTHER: &str = "ledger/reports";
const HOLDERS: [&str; 2] = ["first", "second"];

/// A world around one object.
#[derive(Clone, Copy, Debug)]
pub struct World {
    ticks: u32,
    grants: u8,
    writes: u8,
    crashes: u8,
    restores: u8,
    /// How often the object is cut short.
    cuts: u8,
    /// How often the object loses its mark.
    losses: u8,
    fault: Option<Fault>,
}

/// What a target or a holder can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target has no fence.
    NoFence,
    /// The target checks, and acts later.
    CheckThenAct,
    /// The target keeps its mark in memory.
    MarkInMemory,
    /// A lost mark counts as none yet.
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

const WORLD: World = World { ticks: 2, grants: 2, writes: 2, crashes: 0, restores: 0, cuts: 0, losses: 0, fault: None };

/// Searches the worlds around one object.
pub fn check(bounds: Bounds) -> Result<Summary, String> {
    let (ticks, grants, writes) = match bounds {
        Bounds::Quick => (2, 2, 3),
        Bounds::Full => (3, 3, 3),
        Bounds::Deep => (4, 4, 4),
    };
    let mut summary = Summary::default();
    let world = World { ticks, grants, writes, ..WORLD };
    summary.search("zombies", world)?;
    summary.search("zombies, and a grantor that crashes", World { crashes: 1, ..world })?;
    summary.search("zombies, and a target cut short", World { cuts: 1, ..world })?;
    summary.search("zombies, and a lost mark", World { losses: 1, crashes: 1, grants: grants.max(3), ..world })?;
    summary.search("zombies, and a restore", World { ticks: ticks + 3, writes: writes - 1, restores: 1, ..world })?;
    Ok(summary)
}

/// Searches a world with a fault in its target or its holders; it should be found.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let world = World { ticks: 3, cuts: 1, losses: 1, fault: Some(fault), ..WORLD };
    let mut summary = Summary::default();
    summary.search("a fault at the target", world)?;
    Ok(summary)
}

/// How far a holder is under its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Granted,
    /// The mark is its own.
    Claimed,
    /// It knows the object at this version.
    Read(u8),
    /// Its write is not answered yet.
    Writing,
    /// It was told that it is stale.
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
    /// The version that it was made from.
    base: u8,
    /// A target that checks first has let it in.
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

/// A world at one moment. What stands behind `object` is only watched.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    at: u32,
    generation: u8,
    incarnation: u32,
    grants: u8,
    writes: u8,
    crashes: u8,
    restores: u8,
    cuts: u8,
    losses: u8,
    journal: Journal,
    live: Option<Live>,
    copy: Option<Journal>,
    holders: [Option<Holder>; 2],
    flight: Vec<Write>,
    object: Object,
    /// The highest tokens that were claimed with and written under.
    claimed: Option<Number>,
    written: Option<Number>,
    /// What the last event was.
    seen: Option<Seen>,
    broken: Option<&'static str>,
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Applied { again: bool, restored: bool, rearmed: bool },
    Refused { mark_is_lost: bool },
    Duplicate,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 100 ms pass, and a live grantor takes a turn.
    Tick,
    /// A holder asks, and is granted.
    Acquire(usize),
    /// It shows its token at the object.
    Claim(usize),
    /// It reads the object.
    Read(usize),
    /// It sends a write.
    Send(usize),
    /// A write arrives, perhaps not for the first time.
    Arrive(usize),
    /// A write that was let in takes effect.
    Apply(usize),
    /// A write arrives, and the target dies between its mark and its effect.
    CutShort(usize),
    /// The holder of the other resource writes here.
    Misdirect,
    /// The target fails over without its mark.
    Lose,
    /// The mark is armed again from the grantor's floor.
    Arm,
    /// The grantor is gone.
    Crash,
    /// And back.
    Open,
    /// A copy of the journal is kept.
    Keep,
    /// A new incarnation begins from the copy.
    Restore,
}

impl World {
    fn open(&self, state: &mut State, restore: Option<Restoring>) -> Result<(), String> {
        state.generation += 1;
        let at = Moment::new(state.at);
        let opened = Live::open(&state.journal, at, u64::from(state.generation), restore)?;
        state.journal = state.journal.land(&opened.batch.expect("an opening is put on record"))?;
        state.live = Some(opened.live.serve(at));
        Ok(())
    }

    /// A turn that is durable at once.
    fn turn(&self, state: &mut State, asked: Option<Command<'static>>) -> Result<Option<Answer>, String> {
        let live = state.live.as_ref().expect("a grantor that lives");
        let asked = asked.into_iter().map(|command| (Request::tagged(1), command)).collect();
        let turned = live.turn(Moment::new(state.at), asked)?;
        let answer = turned.answer(1).cloned();
        if let Some(batch) = &turned.batch {
            state.journal = state.journal.land(batch)?;
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
        Ok(Some(Token { cluster: CLUSTER, incarnation, resource, reach: grant.reach, number: grant.number }))
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
            Verdict::Lost => state.seen = Some(Seen::Refused { mark_is_lost: true }),
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
                state.seen = Some(Seen::Duplicate);
                self.answer(state, write, true);
            }
            Sequenced::Stale { .. } => {
                state.seen = Some(Seen::Refused { mark_is_lost: false });
                self.answer(state, write, false);
            }
            Sequenced::Lost => state.seen = Some(Seen::Refused { mark_is_lost: true }),
        }
    }

    /// The effect: the object is written, and watched.
    fn apply(&self, state: &mut State, write: Write) {
        let number = write.number;
        if state.written.is_some_and(|written| number < written) {
            state.broken = Some("F1: the tokens of applied writes fall");
        } else if state.claimed.is_some_and(|claimed| number < claimed) {
            state.broken = Some("F1: a zombie writes after its successor's claim");
        } else if write.base != state.object.version {
            state.broken = Some("F1: a write is built on what it did not see");
        }
        state.seen = Some(Seen::Applied {
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
        let asker = state.holders.iter_mut().flatten().find(|held| {
            held.token.number == write.number && held.stage == Stage::Writing && held.sequence == write.sequence
        });
        if let Some(held) = asker {
            held.stage = if applied { Stage::Read(version) } else { Stage::Stale };
        }
    }

    fn happen(&self, state: &mut State, event: Event) -> Result<Option<()>, String> {
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
            Event::CutShort(i) => {
                state.cuts += 1;
                let number = state.flight[i].number;
                if let Verdict::Admitted { mark } = self.admits(state.object.mark, number) {
                    state.object.raise(mark, self.fault);
                }
                state.object.mark = state.object.durable;
            }
            Event::Misdirect => {
                let (reach, resource) = (Reach::Slot(0), resource_hash(OTHER));
                let (incarnation, number) = (Incarnation(state.incarnation), Number::MAX);
                let foreign = Token { cluster: CLUSTER, incarnation, resource, reach, number };
                if foreign.for_target(&guarded()).is_err() {
                    return Ok(None);
                }
                state.broken = Some("F4: a token for another resource passes");
            }
            Event::Lose => {
                state.losses += 1;
                (state.object.mark, state.object.durable, state.object.last) = (Mark::Lost, Mark::Lost, None);
            }
            Event::Arm => {
                // What was applied under the last token is forgotten, so that one does not pass any more either.
                let counter = state.live.as_ref().expect("a grantor").seen().counter;
                let mark = Mark::Armed(Number::new(counter + 1).ok_or("no number is left")?);
                (state.object.mark, state.object.durable) = (mark, mark);
            }
            Event::Crash => {
                state.crashes += 1;
                state.live = None;
            }
            Event::Open => self.open(state, None)?,
            Event::Keep => state.copy = Some(state.journal.clone()),
            Event::Restore => {
                state.restores += 1;
                state.at += TICK;
                state.journal = state.copy.take().expect("a copy was kept");
                state.incarnation += 1;
                let incarnation = Incarnation(state.incarnation);
                self.open(state, Some(Restoring { incarnation, floor: None }))?;
            }
        }
        Ok(Some(()))
    }
}

fn guarded() -> Guarded {
    Guarded::new(CLUSTER, Name::parse(RESOURCE).expect("an allowed name"), 0)
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

impl Model for World {
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
            cuts: 0,
            losses: 0,
            journal: Journal::empty(),
            live: None,
            copy: None,
            holders: [None; 2],
            flight: Vec::new(),
            object: fresh,
            claimed: None,
            written: None,
            seen: None,
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
            // The two are alike, so the first begins.
            let may_begin = i == 0 || state.holders[0].is_some();
            if state.live.is_some() && state.grants < self.grants && may_begin {
                events.push(Event::Acquire(i));
            }
            let Some(held) = holder else { continue };
            match (held.stage, self.fault) {
                (Stage::Granted, Some(Fault::ReadBeforeClaim | Fault::NoClaim)) => events.push(Event::Read(i)),
                (Stage::Granted, _) => events.push(Event::Claim(i)),
                (Stage::Claimed, _) => events.push(Event::Read(i)),
                (Stage::Read(_), fault) => {
                    let mine = state.claimed >= Some(held.token.number);
                    if fault == Some(Fault::ReadBeforeClaim) && !mine {
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
            if state.cuts < self.cuts {
                events.push(Event::CutShort(i));
            }
        }
        events.push(Event::Misdirect);
        if state.losses < self.losses && state.object.mark != Mark::Fresh {
            events.push(Event::Lose);
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
            events.push(if state.copy.is_none() { Event::Keep } else { Event::Restore });
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = State { seen: None, ..state.clone() };
        match self.happen(&mut next, event) {
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
                state.seen == Some(Seen::Refused { mark_is_lost: false }) && state.written == state.claimed
            }),
            Property::sometimes("a write arrives twice and is applied once", |_, state: &State| {
                state.seen == Some(Seen::Duplicate)
            }),
            Property::sometimes("a successor builds on what its predecessor wrote", |_, state: &State| {
                matches!(state.seen, Some(Seen::Applied { again: true, .. }))
            }),
        ];
        if self.losses > 0 {
            properties.push(Property::sometimes("a lost mark refuses", |_, state: &State| {
                state.seen == Some(Seen::Refused { mark_is_lost: true })
            }));
            properties.push(Property::sometimes("written after the mark was armed again", |_, state: &State| {
                matches!(state.seen, Some(Seen::Applied { rearmed: true, .. }))
            }));
        }
        if self.restores > 0 {
            properties.push(Property::sometimes("written after a restore", |_, state: &State| {
                matches!(state.seen, Some(Seen::Applied { restored: true, .. }))
            }));
        }
        properties
    }
}
