//! Model of a handoff from P to S, with gap and with overlap: writes never interleave, and the handoff completes
//! whichever side disappears (H2, H3).
//!
//! Bounds: one fenced object, P that holds its lease with the real holder logic, S that waits for it, one handoff. A
//! tick is 100 ms, the drain period is two ticks and the ttl is three. P's requests, their answers and its writes may
//! take any time; P may stay silent and S may disappear at any moment. The grantor runs its turns on time, crashes and
//! recovers. The handoff starts in the first two ticks. [`check`] has the numbers.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_core::charter::{Charter, HandoffTerms};
use leasehold_core::command::{
    Acquire, AcquireOptions, Answer, Command, Handoff, HandoffMode, LeaseRef, LeaseSelector, OpenSession, Renew,
    Request,
};
use leasehold_core::fence::{Mark, Verdict, admit};
use leasehold_core::holder::{
    ClockDrift, ReceivedGrant, ReceivedRenewal, Renewal, RenewalAction, RenewalAnswer, RenewalAttempt, Succession,
    Timing,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Number;
use stateright::{Model, Property};

use super::{Journal, LiveGrantor, MAX_TTL, Moment, SearchDepth, Summary, TurnRequest};

const TICK: u32 = 100;
const DRAIN: u64 = 200;
const RESOURCE: &str = "ledger/accounts";
const P: LeaseId = LeaseId { slot: 0, reuse: 0 };
const S: SessionId = SessionId { slot: 0, reuse: 0 };
const EXACT: ClockDrift = match ClockDrift::from_ppm(0) {
    Ok(rate) => rate,
    Err(_) => panic!("no drift is a valid drift"),
};

/// A model with one handoff.
#[derive(Clone, Copy, Debug)]
pub struct HandoffModel {
    mode: HandoffMode,
    /// The operator requests a shorter drain period than the holder knows.
    short_drain: bool,
    ticks: u32,
    renewals: u8,
    writes: u8,
    crashes: u8,
    fault: Option<Fault>,
}

/// A fault of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// S claims when it is granted.
    ClaimNotDelayed,
    /// S writes based on what it read before its claim.
    ReadBeforeClaim,
    /// P reports that it has drained while a write is in flight.
    DrainedTooEarly,
    /// P ignores the drain period while it receives nothing.
    DrainIgnored,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 4] =
        [Self::ClaimNotDelayed, Self::ReadBeforeClaim, Self::DrainedTooEarly, Self::DrainIgnored];
}

const BASE: HandoffModel = HandoffModel {
    mode: HandoffMode::Overlap,
    short_drain: false,
    ticks: 5,
    renewals: 1,
    writes: 1,
    crashes: 1,
    fault: None,
};

/// Searches all configurations with one handoff.
pub fn check(bounds: SearchDepth) -> Result<Summary, String> {
    let (ticks, renewals, writes, crashes) = match bounds {
        SearchDepth::Quick => (4, 1, 1, 1),
        SearchDepth::Full => (5, 2, 2, 1),
        SearchDepth::Deep => (7, 2, 2, 2),
    };
    let model = HandoffModel { ticks, renewals, writes, crashes, ..BASE };
    let mut summary = Summary::default();
    summary.search("overlap", model)?;
    summary.search("gap", HandoffModel { mode: HandoffMode::Gap, ..model })?;
    summary
        .search("overlap with a short drain", HandoffModel { short_drain: true, renewals: 1, writes: 1, ..model })?;
    Ok(summary)
}

/// Searches a configuration with a fault, which must be found.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let mut summary = Summary::default();
    summary.search("a fault of a holder", HandoffModel { fault: Some(fault), ..BASE })?;
    Ok(summary)
}

/// A value of the core, compared by its `Debug` output.
#[derive(Clone)]
struct Comparable<T> {
    value: T,
    digest: u64,
}

impl<T: fmt::Debug> Comparable<T> {
    fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{value:?}").hash(&mut hasher);
        Self { value, digest: hasher.finish() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Comparable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Hash for Comparable<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl<T> PartialEq for Comparable<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// P's request or its answer, in flight.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Exchange {
    Idle,
    Request(Comparable<RenewalAttempt>),
    Answer(Comparable<RenewalAttempt>, Comparable<RenewalAnswer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Successor {
    Waiting,
    /// The grant has not reached it yet.
    Granted,
    /// It may claim one drain period after this time, or when it is notified.
    Informed {
        got: u32,
        over: bool,
    },
    Claimed,
    Read(u8),
    Wrote,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    at: u32,
    generation: u8,
    renewals: u8,
    writes: u8,
    crashes: u8,
    journal: Journal,
    live: Option<LiveGrantor>,
    renewal: Comparable<Renewal>,
    exchange: Exchange,
    /// P's writes in flight.
    open: u8,
    /// P knows that it must drain, and has reported that it did.
    knows_drain: bool,
    drained: bool,
    successor: Successor,
    vanished: bool,
    /// The grant of S: lease, token number, and remaining drain time of P.
    granted: Option<(LeaseId, Number, Option<u64>)>,
    /// P's token after it acquired again.
    again: Option<Number>,
    mark: Number,
    version: u8,
    /// What S read before it claimed, if it uses that.
    early: Option<u8>,
    /// Grantor time of the handoff.
    handed: Option<u64>,
    observed: Option<Observation>,
    broken: Option<&'static str>,
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Observation {
    Refused,
    ClaimedEarly,
    ClaimedAlone,
    WrittenInOverlap,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 100 ms pass. A live grantor runs a turn and receives a renewal of a live S.
    Tick,
    /// An operator hands the resource off.
    HandOff,
    /// P sends a renewal.
    SendRenewal,
    /// The grantor processes it.
    Decide,
    /// The answer arrives.
    ReceiveAnswer,
    /// P sends a write.
    Send,
    /// The write arrives.
    Arrive,
    /// P reports that it has drained.
    Drain,
    /// P, which has lost its lease, acquires again.
    AcquireAgain,
    /// S receives its grant.
    ReceiveGrant,
    /// S checks whether P has ended.
    CheckPredecessor,
    /// S claims.
    Claim,
    /// S reads.
    Read,
    /// S writes.
    Write,
    /// S disappears.
    Vanish,
    /// The grantor crashes.
    Crash,
    /// The grantor recovers.
    Open,
}

impl HandoffModel {
    /// Runs a turn that is durable at once, and checks the invariants.
    fn turn(&self, state: &mut State, requests: Vec<TurnRequest>) -> Result<Vec<(u64, Answer)>, String> {
        let live = state.live.as_ref().expect("a live grantor");
        let turned = live.turn(Moment::new(state.at), requests)?;
        if let Some(batch) = &turned.batch {
            state.journal = state.journal.append(batch)?;
        }
        for reply in &turned.replies {
            if let (2, Answer::Granted(grant)) = (reply.tag, &reply.answer) {
                state.successor = Successor::Granted;
                state.granted = Some((grant.lease, grant.number, grant.overlaps_ms));
                if grant.number <= state.renewal.value.token() {
                    state.broken = Some("H2: the successor's token is not above its predecessor's");
                }
            }
        }
        let view = turned.live.view();
        let (time, p_holds, holders) = (view.time, view.remaining(P).is_some(), view.leases.len());
        match (self.mode, state.handed) {
            (HandoffMode::Gap, _) if holders > 1 => state.broken = Some("H2: two holders in a gap"),
            (_, Some(handed)) if p_holds && time >= handed + DRAIN => {
                state.broken = Some("H3: the predecessor holds its lease after its drain period");
            }
            (HandoffMode::Overlap, Some(handed)) if holders == 0 && time < handed + MAX_TTL => {
                state.broken = Some("H2: there is no holder during an overlap");
            }
            _ => {}
        }
        state.live = Some(turned.live);
        Ok(turned.replies.into_iter().map(|reply| (reply.tag, reply.answer)).collect())
    }

    fn open(&self, state: &mut State) -> Result<(), String> {
        state.generation += 1;
        let at = Moment::new(state.at);
        let opened = LiveGrantor::open(&state.journal, at, u64::from(state.generation), None)?;
        state.journal = state.journal.append(&opened.batch.expect("an opening is recorded"))?;
        state.live = Some(opened.live.serve(at));
        Ok(())
    }

    /// Initial state: P holds and S waits.
    fn initial_state(&self) -> Result<State, String> {
        let at = Moment::new(0);
        let opened = LiveGrantor::open(&Journal::empty(), at, 1, None)?;
        let journal = Journal::empty().append(&opened.batch.expect("an opening"))?;
        let handoff = Some(HandoffTerms { mode: self.mode, drain_ms: DRAIN });
        let charter = Box::new(Charter { handoff, ..Charter::default() });
        let open = OpenSession { holder: "second", ttl_ms: MAX_TTL, secret: [7; 32].into(), waits_only: true };
        let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
        let wait = Acquire { session: Some(S), options, ..Acquire::exclusive(RESOURCE, "second", MAX_TTL) };
        let requests = vec![
            (Request::tagged(8), Command::SetCharter { prefix: "ledger", charter, comment: "" }),
            (Request::tagged(1), Command::Acquire(Acquire::exclusive(RESOURCE, "first", MAX_TTL))),
            (Request::tagged(9), Command::OpenSession(open)),
            (Request::tagged(2), Command::Acquire(wait)),
        ];
        let turned = opened.live.serve(at).turn(at, requests)?;
        let journal = journal.append(&turned.batch.expect("a grant"))?;
        let grant = turned.replies.iter().find_map(|reply| match &reply.answer {
            Answer::Granted(grant) => Some(*grant),
            _ => None,
        });
        let grant = grant.ok_or("P is not granted")?;
        let honors_drain = self.mode == HandoffMode::Overlap && self.fault != Some(Fault::DrainIgnored);
        let now = at.now().instant;
        let granted = ReceivedGrant {
            token: grant.number,
            sent: now,
            received: now,
            ttl_ms: grant.ttl_ms,
            drain_ms: honors_drain.then_some(grant.drain_ms),
            rotates: false,
        };
        let timing = Timing::new(MAX_TTL, EXACT).map_err(|error| error.to_string())?;
        Ok(State {
            at: 0,
            generation: 1,
            renewals: 0,
            writes: 0,
            crashes: 0,
            journal,
            live: Some(turned.live),
            renewal: Comparable::new(Renewal::new(timing, granted).map_err(|error| error.to_string())?),
            exchange: Exchange::Idle,
            open: 0,
            knows_drain: false,
            drained: false,
            successor: Successor::Waiting,
            vanished: false,
            granted: None,
            again: None,
            mark: grant.number,
            version: 0,
            early: None,
            handed: None,
            observed: None,
            broken: None,
            fault: None,
        })
    }

    fn hand_off(&self, state: &mut State) -> Result<Option<()>, String> {
        let selector = LeaseSelector::Resource(RESOURCE);
        let handoff =
            Handoff { selector, number: None, to: None, mode: None, drain_ms: self.short_drain.then_some(DRAIN / 2) };
        let answers = self.turn(state, vec![(Request::tagged(3), Command::Handoff(handoff))])?;
        if !answers.iter().any(|(to, answer)| *to == 3 && matches!(answer, Answer::Current(_))) {
            return Ok(None);
        }
        let live = state.live.as_ref().expect("it has just run a turn");
        state.handed = Some(live.view().time);
        Ok(Some(()))
    }

    /// The grantor answers P. A draining P never becomes current again under its token.
    fn decide(&self, state: &mut State) -> Result<(), String> {
        let Exchange::Request(attempt) = std::mem::replace(&mut state.exchange, Exchange::Idle) else {
            unreachable!("P has sent a request")
        };
        let held = LeaseRef::by_id(P, attempt.value.token());
        let renew = Command::Renew(Renew { lease: held, ttl_ms: None, progress: None });
        let answers = self.turn(state, vec![(Request::tagged(1), renew)])?;
        let answer = answers.into_iter().find(|(to, _)| *to == 1).map(|(_, answer)| answer);
        let answer = match answer {
            Some(Answer::Current(current)) => {
                if state.handed.is_some() && current.drain_ms.is_none() {
                    state.broken = Some("H2: a draining predecessor is current again");
                }
                let (token, remaining_ms) = (current.number, current.remaining_ms);
                RenewalAnswer::Renewed(ReceivedRenewal { token, remaining_ms, draining_ms: current.drain_ms })
            }
            Some(Answer::Refused(Refusal::Lost(reason))) => RenewalAnswer::Ended(reason),
            Some(Answer::Refused(Refusal::NotCurrent(_))) => RenewalAnswer::NotCurrent,
            other => return Err(format!("P receives {other:?}")),
        };
        state.exchange = Exchange::Answer(attempt, Comparable::new(answer));
        Ok(())
    }

    /// A write of P arrives.
    fn arrive(&self, state: &mut State) {
        state.open -= 1;
        if state.drained {
            state.broken = Some("H2: a write arrives after its holder reported that it has drained");
        }
        match admit(Mark::Armed(state.mark), state.renewal.value.token()) {
            Verdict::Admitted { .. } => {
                state.version += 1;
                if state.handed.is_some() {
                    state.observed = Some(Observation::WrittenInOverlap);
                }
            }
            _ => {
                state.observed = Some(Observation::Refused);
                let must_be_admitted = self.mode == HandoffMode::Overlap || state.knows_drain;
                if must_be_admitted && state.renewal.value.may_act(Moment::new(state.at).now().instant) {
                    state.broken = Some("H2: a predecessor is refused while it may still act");
                }
            }
        }
    }

    fn may_claim(&self, state: &State) -> bool {
        let Successor::Informed { got, over } = state.successor else { return false };
        let Some((_, _, Some(overlaps))) = state.granted else { return true };
        let now = Moment::new(state.at).now().instant;
        let mut succession = Succession::new(Moment::new(got).now().instant, overlaps, EXACT);
        if over {
            succession.predecessor_ended();
        }
        succession.claim(now).is_ok() || self.fault == Some(Fault::ClaimNotDelayed)
    }

    fn claim(&self, state: &mut State) {
        let (_, number, _) = state.granted.expect("S was granted");
        let Successor::Informed { over, .. } = state.successor else { unreachable!("S knows of its grant") };
        if over {
            state.observed = Some(Observation::ClaimedEarly);
        } else if state.live.is_none() {
            state.observed = Some(Observation::ClaimedAlone);
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

    fn apply_event(&self, state: &mut State, event: Event) -> Result<Option<()>, String> {
        let now = |state: &State| Moment::new(state.at).now().instant;
        match event {
            Event::Tick => {
                state.at += TICK;
                if state.live.is_some() {
                    let renewal = (Request::tagged(4), Command::RenewSession { session: S, held: None });
                    self.turn(state, if state.vanished { Vec::new() } else { vec![renewal] })?;
                }
                let mut renewal = state.renewal.value.clone();
                run_holder(&mut renewal, Moment::new(state.at));
                state.renewal = Comparable::new(renewal);
            }
            Event::HandOff => return self.hand_off(state),
            Event::SendRenewal => {
                state.renewals += 1;
                let mut renewal = state.renewal.value.clone();
                renewal.renew_now(now(state));
                let Some(attempt) = run_holder(&mut renewal, Moment::new(state.at)) else { return Ok(None) };
                state.renewal = Comparable::new(renewal);
                state.exchange = Exchange::Request(Comparable::new(attempt));
            }
            Event::Decide => self.decide(state)?,
            Event::ReceiveAnswer => {
                let Exchange::Answer(attempt, answer) = std::mem::replace(&mut state.exchange, Exchange::Idle) else {
                    unreachable!("P was answered")
                };
                state.knows_drain |=
                    matches!(answer.value, RenewalAnswer::Renewed(ReceivedRenewal { draining_ms: Some(_), .. }));
                let mut renewal = state.renewal.value.clone();
                renewal.handle_answer(attempt.value, now(state), answer.value);
                run_holder(&mut renewal, Moment::new(state.at));
                state.renewal = Comparable::new(renewal);
            }
            Event::Send => {
                state.writes += 1;
                state.open += 1;
            }
            Event::Arrive => self.arrive(state),
            Event::Drain => {
                let open = if self.fault == Some(Fault::DrainedTooEarly) { 0 } else { u64::from(state.open) };
                let mut renewal = state.renewal.value.clone();
                let Ok(drained) = renewal.finish_drain(open) else { return Ok(None) };
                state.renewal = Comparable::new(renewal);
                state.drained = true;
                let held = LeaseRef::by_id(P, drained.token());
                self.turn(state, vec![(Request::tagged(5), Command::Drained(held))])?;
            }
            Event::AcquireAgain => {
                let acquire = Acquire::exclusive(RESOURCE, "first", MAX_TTL);
                let answers = self.turn(state, vec![(Request::tagged(6), Command::Acquire(acquire))])?;
                let granted = answers.iter().find_map(|(to, answer)| match answer {
                    Answer::Granted(grant) if *to == 6 => Some(grant.number),
                    _ => None,
                });
                let Some(number) = granted else { return Ok(None) };
                if state.granted.is_some_and(|(_, other, _)| number <= other) || number <= state.renewal.value.token() {
                    state.broken = Some("H2: a new acquire does not get a higher token");
                }
                state.again = Some(number);
            }
            Event::ReceiveGrant => state.successor = Successor::Informed { got: state.at, over: false },
            Event::CheckPredecessor => {
                let (lease, number, _) = state.granted.expect("S was granted");
                let confirm = Command::Confirm(LeaseRef::by_id(lease, number));
                let answers = self.turn(state, vec![(Request::tagged(7), confirm)])?;
                let over = answers.iter().any(|(to, answer)| {
                    matches!(answer, Answer::Current(current) if *to == 7 && current.overlaps_ms.is_none())
                });
                match &mut state.successor {
                    Successor::Informed { over: known, .. } if over => *known = true,
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
                    state.broken = Some("H2: the successor writes without the latest version");
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
        match &state.exchange {
            Exchange::Idle if state.renewals < self.renewals => events.push(Event::SendRenewal),
            Exchange::Request(_) if state.live.is_some() => events.push(Event::Decide),
            Exchange::Answer(..) => events.push(Event::ReceiveAnswer),
            _ => {}
        }
        if state.renewal.value.may_act(now) && state.writes < self.writes {
            events.push(Event::Send);
        }
        if state.open > 0 {
            events.push(Event::Arrive);
        }
        if state.knows_drain && !state.drained && state.live.is_some() {
            events.push(Event::Drain);
        }
        if state.knows_drain && state.vanished && state.again.is_none() && state.live.is_some() {
            events.push(Event::AcquireAgain);
        }
    }

    fn events_of_s(&self, state: &State, events: &mut Vec<Event>) {
        if state.vanished {
            return;
        }
        match state.successor {
            Successor::Waiting => {}
            Successor::Granted => events.push(Event::ReceiveGrant),
            Successor::Informed { over, .. } => {
                if self.may_claim(state) {
                    events.push(Event::Claim);
                }
                if !over && state.live.is_some() {
                    events.push(Event::CheckPredecessor);
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

/// Runs the holder logic until it waits, and returns what it wants to send.
fn run_holder(renewal: &mut Renewal, at: Moment) -> Option<RenewalAttempt> {
    loop {
        match renewal.poll(at.now().instant, 0) {
            RenewalAction::Send(attempt) => return Some(attempt),
            RenewalAction::Wait(_) | RenewalAction::Lost(_) => return None,
            RenewalAction::Suspend
            | RenewalAction::Resume(_)
            | RenewalAction::Rotated(_)
            | RenewalAction::Drain { .. } => {}
        }
    }
}

impl Model for HandoffModel {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial_state().expect("P is granted and S waits")]
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
        let mut next = State { observed: None, ..state.clone() };
        match self.apply_event(&mut next, event) {
            Ok(changed) => changed?,
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("H2, H3", |_, state: &State| state.broken.is_none()),
            Property::always("V1 and the core's own checks", |_, state: &State| state.fault.is_none()),
            Property::sometimes("a late write of P is refused", |_, state: &State| {
                state.observed == Some(Observation::Refused)
            }),
            Property::sometimes("S writes after P", |_, state: &State| {
                state.successor == Successor::Wrote && state.version > 1
            }),
            Property::sometimes("S disappears, and P acquires again", |_, state: &State| state.again.is_some()),
        ];
        if self.mode == HandoffMode::Overlap {
            properties.push(Property::sometimes("P writes although S is granted", |_, state: &State| {
                state.observed == Some(Observation::WrittenInOverlap)
            }));
            properties.push(Property::sometimes("S claims early, because P has drained", |_, state: &State| {
                state.observed == Some(Observation::ClaimedEarly)
            }));
            properties.push(Property::sometimes("S claims without a grantor", |_, state: &State| {
                state.observed == Some(Observation::ClaimedAlone)
            }));
        }
        properties
    }
}
