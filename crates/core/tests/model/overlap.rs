//! A planned transfer from P to S, with gap and with overlap: nobody interleaves, and it ends whoever vanishes (H2, H3).
//!
//! Bounds: one object behind a fence, P that holds it by the holder's own rules, S that waits for it, one handoff. A
//! tick is 100 ms, the drain period two ticks, a lease three. P's questions, the answers to them and its writes may take
//! as long as they like; P may stay silent and S may vanish at any moment; the grantor takes its turns on time, crashes and
//! comes back. The handoff is decided in the first two ticks. How many of each there are stands in [`check`].

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_core::charter::{Charter, Handoff};
use leasehold_core::command::{
    Acquire, Answer, Command, HandOff, Held, OpenSession, Renew, Request, Style, Terms, Which,
};
use leasehold_core::fence::{Mark, Verdict, admit};
use leasehold_core::holder::{
    Action, Answer as Heard, Attempt, Granted, RateError, Renewal, Renewed, Succession, Timing,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Number;
use stateright::{Model, Property};

use super::{Asked, Bounds, Journal, Live, MAX_TTL, Moment, Summary};

const TICK: u32 = 100;
const DRAIN: u64 = 200;
const RESOURCE: &str = "ledger/accounts";
const P: LeaseId = LeaseId { slot: 0, reuse: 0 };
const S: SessionId = SessionId { slot: 0, reuse: 0 };
const EXACT: RateError = match RateError::from_ppm(0) {
    Ok(rate) => rate,
    Err(_) => panic!("a clock can be right"),
};

/// A world with one handoff.
#[derive(Clone, Copy, Debug)]
pub struct World {
    style: Style,
    /// The operator asks for a shorter drain period than the holder was told.
    hurried: bool,
    ticks: u32,
    asks: u8,
    writes: u8,
    crashes: u8,
    fault: Option<Fault>,
}

/// What a holder can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// S claims when it is granted.
    ClaimAtOnce,
    /// S builds on what it read before its claim.
    ReadBeforeClaim,
    /// P says that it has drained while a write is open.
    DrainedTooEarly,
    /// P does not count the drain period while it hears nothing.
    SilentGoesOn,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 4] = [Self::ClaimAtOnce, Self::ReadBeforeClaim, Self::DrainedTooEarly, Self::SilentGoesOn];
}

const WORLD: World =
    World { style: Style::Overlap, hurried: false, ticks: 5, asks: 1, writes: 1, crashes: 1, fault: None };

/// Searches the worlds with one handoff.
pub fn check(bounds: Bounds) -> Result<Summary, String> {
    let (ticks, asks, writes, crashes) = match bounds {
        Bounds::Quick => (4, 1, 1, 1),
        Bounds::Full => (5, 2, 2, 1),
        Bounds::Deep => (7, 2, 2, 2),
    };
    let world = World { ticks, asks, writes, crashes, ..WORLD };
    let mut summary = Summary::default();
    summary.search("overlap", world)?;
    summary.search("gap", World { style: Style::Gap, ..world })?;
    summary.search("a hurried overlap", World { hurried: true, asks: 1, writes: 1, ..world })?;
    Ok(summary)
}

/// Searches a world with a holder's fault; it should be found.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let mut summary = Summary::default();
    summary.search("a fault of a holder", World { fault: Some(fault), ..WORLD })?;
    Ok(summary)
}

/// A value of the core that tells all about itself, and is compared by that.
#[derive(Clone)]
struct Told<T> {
    value: T,
    digest: u64,
}

impl<T: fmt::Debug> Told<T> {
    fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{value:?}").hash(&mut hasher);
        Self { value, digest: hasher.finish() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Hash for Told<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl<T> PartialEq for Told<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// P's question on its way to the grantor, or the answer on its way back.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Talk {
    Nothing,
    Asked(Told<Attempt>),
    Answered(Told<Attempt>, Told<Heard>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Successor {
    Waiting,
    /// The grant has not reached it yet.
    Granted,
    /// It may claim a drain period after this moment, or when told.
    Knows {
        got: u32,
        over: bool,
    },
    Claimed,
    Read(u8),
    Wrote,
}

/// A world at one moment.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    at: u32,
    generation: u8,
    asks: u8,
    writes: u8,
    crashes: u8,
    journal: Journal,
    live: Option<Live>,
    renewal: Told<Renewal>,
    talk: Talk,
    /// P's writes without an answer.
    open: u8,
    /// P was told to drain, and has said that it did.
    told: bool,
    drained: bool,
    successor: Successor,
    vanished: bool,
    /// What S was granted: its lease, its number, and for how long P still drains.
    granted: Option<(LeaseId, Number, Option<u64>)>,
    /// P's token after it asked anew.
    again: Option<Number>,
    mark: Number,
    version: u8,
    /// What S knew of the object before it claimed, where it builds on that.
    early: Option<u8>,
    /// When the handoff was decided, in grantor time.
    handed: Option<u64>,
    seen: Option<Seen>,
    broken: Option<&'static str>,
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Refused,
    ClaimedEarly,
    ClaimedAlone,
    WrittenInOverlap,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 100 ms pass; a live grantor takes a turn, in which a living S is heard.
    Tick,
    /// An operator hands the resource off.
    HandOff,
    /// P asks to renew.
    Ask,
    /// The grantor answers it.
    Decide,
    /// The answer arrives.
    Hear,
    /// P sends a write.
    Send,
    /// It arrives.
    Arrive,
    /// P says that it has drained.
    Drain,
    /// P, which is lost, asks for a new lease.
    Again,
    /// S hears of its grant.
    Learn,
    /// S asks whether P is over.
    Inquire,
    /// S claims.
    Claim,
    /// S reads.
    Read,
    /// S writes.
    Write,
    /// S is never heard of again.
    Vanish,
    /// The grantor is gone.
    Crash,
    /// And back.
    Open,
}

impl World {
    /// A turn that is durable at once, and what must hold after it.
    fn turn(&self, state: &mut State, asked: Vec<Asked>) -> Result<Vec<(u64, Answer)>, String> {
        let live = state.live.as_ref().expect("a grantor that lives");
        let turned = live.turn(Moment::new(state.at), asked)?;
        if let Some(batch) = &turned.batch {
            state.journal = state.journal.land(batch)?;
        }
        for reply in &turned.replies {
            if let (2, Answer::Granted(grant)) = (reply.to, &reply.answer) {
                state.successor = Successor::Granted;
                state.granted = Some((grant.lease, grant.number, grant.overlaps_ms));
                if grant.number <= state.renewal.value.token() {
                    state.broken = Some("H2: the successor's token is not above its predecessor's");
                }
            }
        }
        let seen = turned.live.seen();
        let (time, p_holds, holders) = (seen.time, seen.remaining(P).is_some(), seen.leases.len());
        match (self.style, state.handed) {
            (Style::Gap, _) if holders > 1 => state.broken = Some("H2: two holders in a gap"),
            (_, Some(handed)) if p_holds && time >= handed + DRAIN => {
                state.broken = Some("H3: the predecessor is still there after its drain period");
            }
            (Style::Overlap, Some(handed)) if holders == 0 && time < handed + MAX_TTL => {
                state.broken = Some("H2: nobody holds during an overlap");
            }
            _ => {}
        }
        state.live = Some(turned.live);
        Ok(turned.replies.into_iter().map(|reply| (reply.to, reply.answer)).collect())
    }

    fn open(&self, state: &mut State) -> Result<(), String> {
        state.generation += 1;
        let at = Moment::new(state.at);
        let opened = Live::open(&state.journal, at, u64::from(state.generation), None)?;
        state.journal = state.journal.land(&opened.batch.expect("an opening is put on record"))?;
        state.live = Some(opened.live.serve(at));
        Ok(())
    }

    /// P holds, and S waits, at time zero.
    fn begin(&self) -> Result<State, String> {
        let at = Moment::new(0);
        let opened = Live::open(&Journal::empty(), at, 1, None)?;
        let journal = Journal::empty().land(&opened.batch.expect("an opening"))?;
        let handoff = Some(Handoff { style: self.style, drain_ms: DRAIN });
        let charter = Box::new(Charter { handoff, ..Charter::default() });
        let open = OpenSession { holder: "second", ttl_ms: MAX_TTL, secret: [7; 32].into(), waits_only: true };
        let terms = Terms { wait_ms: 60_000, ..Terms::DEFAULT };
        let wait = Acquire { session: Some(S), terms, ..Acquire::exclusive(RESOURCE, "", MAX_TTL) };
        let asked = vec![
            (Request::tagged(8), Command::SetCharter { prefix: "ledger", charter, why: "" }),
            (Request::tagged(1), Command::Acquire(Acquire::exclusive(RESOURCE, "first", MAX_TTL))),
            (Request::tagged(9), Command::OpenSession(open)),
            (Request::tagged(2), Command::Acquire(wait)),
        ];
        let turned = opened.live.serve(at).turn(at, asked)?;
        let journal = journal.land(&turned.batch.expect("a grant"))?;
        let grant = turned.replies.iter().find_map(|reply| match &reply.answer {
            Answer::Granted(grant) => Some(*grant),
            _ => None,
        });
        let grant = grant.ok_or("P is not granted")?;
        let counts = self.style == Style::Overlap && self.fault != Some(Fault::SilentGoesOn);
        let now = at.now().instant;
        let granted = Granted {
            token: grant.number,
            sent: now,
            received: now,
            ttl_ms: grant.ttl_ms,
            drain_ms: counts.then_some(grant.drain_ms),
            rotates: false,
        };
        let timing = Timing::new(MAX_TTL, EXACT).map_err(|wrong| wrong.to_string())?;
        Ok(State {
            at: 0,
            generation: 1,
            asks: 0,
            writes: 0,
            crashes: 0,
            journal,
            live: Some(turned.live),
            renewal: Told::new(Renewal::new(timing, granted).map_err(|wrong| wrong.to_string())?),
            talk: Talk::Nothing,
            open: 0,
            told: false,
            drained: false,
            successor: Successor::Waiting,
            vanished: false,
            granted: None,
            again: None,
            mark: grant.number,
            version: 0,
            early: None,
            handed: None,
            seen: None,
            broken: None,
            fault: None,
        })
    }

    fn hand_off(&self, state: &mut State) -> Result<Option<()>, String> {
        let which = Which::Resource(RESOURCE);
        let handoff =
            HandOff { which, number: None, to: None, style: None, drain_ms: self.hurried.then_some(DRAIN / 2) };
        let answers = self.turn(state, vec![(Request::tagged(3), Command::HandOff(handoff))])?;
        if !answers.iter().any(|(to, answer)| *to == 3 && matches!(answer, Answer::Current(_))) {
            return Ok(None);
        }
        let live = state.live.as_ref().expect("it has just decided");
        state.handed = Some(live.seen().time);
        Ok(Some(()))
    }

    /// The grantor answers P. A draining P is never current again under its token.
    fn decide(&self, state: &mut State) -> Result<(), String> {
        let Talk::Asked(attempt) = std::mem::replace(&mut state.talk, Talk::Nothing) else {
            unreachable!("P has asked")
        };
        let held = Held::by_id(P, attempt.value.token());
        let renew = Command::Renew(Renew { held, ttl_ms: None, progress: None });
        let answers = self.turn(state, vec![(Request::tagged(1), renew)])?;
        let answer = answers.into_iter().find(|(to, _)| *to == 1).map(|(_, answer)| answer);
        let heard = match answer {
            Some(Answer::Current(current)) => {
                if state.handed.is_some() && current.drain_ms.is_none() {
                    state.broken = Some("H2: a draining predecessor is current again");
                }
                let (token, remaining_ms) = (current.number, current.remaining_ms);
                Heard::Renewed(Renewed { token, remaining_ms, draining_ms: current.drain_ms })
            }
            Some(Answer::Refused(Refusal::Lost(reason))) => Heard::Ended(reason),
            Some(Answer::Refused(Refusal::NotCurrent(_))) => Heard::NotCurrent,
            other => return Err(format!("P is answered {other:?}")),
        };
        state.talk = Talk::Answered(attempt, Told::new(heard));
        Ok(())
    }

    /// A write of P's arrives.
    fn arrive(&self, state: &mut State) {
        state.open -= 1;
        if state.drained {
            state.broken = Some("H2: a write arrives after its holder said that it has drained");
        }
        match admit(Mark::Armed(state.mark), state.renewal.value.token()) {
            Verdict::Admitted { .. } => {
                state.version += 1;
                if state.handed.is_some() {
                    state.seen = Some(Seen::WrittenInOverlap);
                }
            }
            _ => {
                state.seen = Some(Seen::Refused);
                let sure = self.style == Style::Overlap || state.told;
                if sure && state.renewal.value.may_act(Moment::new(state.at).now().instant) {
                    state.broken = Some("H2: a predecessor is refused while it may still act");
                }
            }
        }
    }

    fn may_claim(&self, state: &State) -> bool {
        let Successor::Knows { got, over } = state.successor else { return false };
        let Some((_, _, Some(overlaps))) = state.granted else { return true };
        let now = Moment::new(state.at).now().instant;
        let mut succession = Succession::new(Moment::new(got).now().instant, overlaps, EXACT);
        if over {
            succession.told_over();
        }
        succession.claim(now).is_ok() || self.fault == Some(Fault::ClaimAtOnce)
    }

    fn claim(&self, state: &mut State) {
        let (_, number, _) = state.granted.expect("S was granted");
        let Successor::Knows { over, .. } = state.successor else { unreachable!("S knows of its grant") };
        if over {
            state.seen = Some(Seen::ClaimedEarly);
        } else if state.live.is_none() {
            state.seen = Some(Seen::ClaimedAlone);
        }
        match admit(Mark::Armed(state.mark), number) {
            Verdict::Admitted { mark } => state.mark = mark,
            _ => state.broken = Some("H2: the successor's claim is refused"),
        }
        state.successor = match state.early {
            Some(base) => Successor::Read(base),
            None => Successor::Claimed,
        };
    }

    fn happen(&self, state: &mut State, event: Event) -> Result<Option<()>, String> {
        let now = |state: &State| Moment::new(state.at).now().instant;
        match event {
            Event::Tick => {
                state.at += TICK;
                if state.live.is_some() {
                    let heard = (Request::tagged(4), Command::RenewSession { session: S, known: None });
                    self.turn(state, if state.vanished { Vec::new() } else { vec![heard] })?;
                }
                let mut renewal = state.renewal.value.clone();
                settle(&mut renewal, Moment::new(state.at));
                state.renewal = Told::new(renewal);
            }
            Event::HandOff => return self.hand_off(state),
            Event::Ask => {
                state.asks += 1;
                let mut renewal = state.renewal.value.clone();
                renewal.ask_now(now(state));
                let Some(attempt) = settle(&mut renewal, Moment::new(state.at)) else { return Ok(None) };
                state.renewal = Told::new(renewal);
                state.talk = Talk::Asked(Told::new(attempt));
            }
            Event::Decide => self.decide(state)?,
            Event::Hear => {
                let Talk::Answered(attempt, heard) = std::mem::replace(&mut state.talk, Talk::Nothing) else {
                    unreachable!("P was answered")
                };
                state.told |= matches!(heard.value, Heard::Renewed(Renewed { draining_ms: Some(_), .. }));
                let mut renewal = state.renewal.value.clone();
                renewal.answered(attempt.value, now(state), heard.value);
                settle(&mut renewal, Moment::new(state.at));
                state.renewal = Told::new(renewal);
            }
            Event::Send => {
                state.writes += 1;
                state.open += 1;
            }
            Event::Arrive => self.arrive(state),
            Event::Drain => {
                let open = if self.fault == Some(Fault::DrainedTooEarly) { 0 } else { u64::from(state.open) };
                let mut renewal = state.renewal.value.clone();
                let Ok(drained) = renewal.drained(open) else { return Ok(None) };
                state.renewal = Told::new(renewal);
                state.drained = true;
                let held = Held::by_id(P, drained.token());
                self.turn(state, vec![(Request::tagged(5), Command::Drained(held))])?;
            }
            Event::Again => {
                let acquire = Acquire::exclusive(RESOURCE, "first", MAX_TTL);
                let answers = self.turn(state, vec![(Request::tagged(6), Command::Acquire(acquire))])?;
                let granted = answers.iter().find_map(|(to, answer)| match answer {
                    Answer::Granted(grant) if *to == 6 => Some(grant.number),
                    _ => None,
                });
                let Some(number) = granted else { return Ok(None) };
                if state.granted.is_some_and(|(_, other, _)| number <= other) || number <= state.renewal.value.token() {
                    state.broken = Some("H2: asked anew, and not given a higher token");
                }
                state.again = Some(number);
            }
            Event::Learn => state.successor = Successor::Knows { got: state.at, over: false },
            Event::Inquire => {
                let (lease, number, _) = state.granted.expect("S was granted");
                let confirm = Command::Confirm(Held::by_id(lease, number));
                let answers = self.turn(state, vec![(Request::tagged(7), confirm)])?;
                let over = answers.iter().any(|(to, answer)| {
                    matches!(answer, Answer::Current(current) if *to == 7 && current.overlaps_ms.is_none())
                });
                match &mut state.successor {
                    Successor::Knows { over: told, .. } if over => *told = true,
                    _ => return Ok(None),
                }
            }
            Event::Claim => self.claim(state),
            Event::Read => match state.successor {
                Successor::Claimed => state.successor = Successor::Read(state.version),
                _ => state.early = Some(state.version),
            },
            Event::Write => {
                let Successor::Read(base) = state.successor else { unreachable!("S has read") };
                if base != state.version {
                    state.broken = Some("H2: the successor builds on what it did not see");
                }
                state.version += 1;
                state.successor = Successor::Wrote;
            }
            Event::Vanish => state.vanished = true,
            Event::Crash => {
                state.crashes += 1;
                state.live = None;
            }
            Event::Open => self.open(state)?,
        }
        Ok(Some(()))
    }

    fn events_of_p(&self, state: &State, events: &mut Vec<Event>) {
        let now = Moment::new(state.at).now().instant;
        match &state.talk {
            Talk::Nothing if state.asks < self.asks => events.push(Event::Ask),
            Talk::Asked(_) if state.live.is_some() => events.push(Event::Decide),
            Talk::Answered(..) => events.push(Event::Hear),
            _ => {}
        }
        if state.renewal.value.may_act(now) && state.writes < self.writes {
            events.push(Event::Send);
        }
        if state.open > 0 {
            events.push(Event::Arrive);
        }
        if state.told && !state.drained && state.live.is_some() {
            events.push(Event::Drain);
        }
        if state.told && state.vanished && state.again.is_none() && state.live.is_some() {
            events.push(Event::Again);
        }
    }

    fn events_of_s(&self, state: &State, events: &mut Vec<Event>) {
        if state.vanished {
            return;
        }
        match state.successor {
            Successor::Waiting => {}
            Successor::Granted => events.push(Event::Learn),
            Successor::Knows { over, .. } => {
                if self.may_claim(state) {
                    events.push(Event::Claim);
                }
                if !over && state.live.is_some() {
                    events.push(Event::Inquire);
                }
                if self.fault == Some(Fault::ReadBeforeClaim) && state.early.is_none() {
                    events.push(Event::Read);
                }
            }
            Successor::Claimed => events.push(Event::Read),
            Successor::Read(_) => events.push(Event::Write),
            Successor::Wrote => return,
        }
        events.push(Event::Vanish);
    }
}

/// Does what the holder's rules say until they say to wait, and tells what they want sent.
fn settle(renewal: &mut Renewal, at: Moment) -> Option<Attempt> {
    loop {
        match renewal.poll(at.now().instant, 0) {
            Action::Send(attempt) => return Some(attempt),
            Action::Wait(_) | Action::Lost(_) => return None,
            Action::Suspend | Action::Resume(_) | Action::Rotated(_) | Action::Drain { .. } => {}
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin().expect("P is granted and S waits")]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.broken.is_some() || state.fault.is_some() {
            return;
        }
        if state.at < self.ticks * TICK {
            events.push(Event::Tick);
        }
        self.events_of_p(state, events);
        self.events_of_s(state, events);
        match state.live {
            None => events.push(Event::Open),
            Some(_) => {
                if state.handed.is_none() && state.at <= TICK {
                    events.push(Event::HandOff);
                }
                if state.crashes < self.crashes {
                    events.push(Event::Crash);
                }
            }
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
            Property::always("H2, H3", |_, state: &State| state.broken.is_none()),
            Property::always("V1 and the core's own checks", |_, state: &State| state.fault.is_none()),
            Property::sometimes("a late write of P's is refused", |_, state: &State| state.seen == Some(Seen::Refused)),
            Property::sometimes("S writes on top of P", |_, state: &State| {
                state.successor == Successor::Wrote && state.version > 1
            }),
            Property::sometimes("S vanishes, and P asks anew", |_, state: &State| state.again.is_some()),
        ];
        if self.style == Style::Overlap {
            properties.push(Property::sometimes("P writes although S is granted", |_, state: &State| {
                state.seen == Some(Seen::WrittenInOverlap)
            }));
            properties.push(Property::sometimes("S claims early, because P has drained", |_, state: &State| {
                state.seen == Some(Seen::ClaimedEarly)
            }));
            properties.push(Property::sometimes("S claims without a grantor", |_, state: &State| {
                state.seen == Some(Seen::ClaimedAlone)
            }));
        }
        properties
    }
}
