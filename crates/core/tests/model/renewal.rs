//! Model of one lease and its renewals, over tenures, zombie leaders, crashes and stalls (L2, L4, L7, L9, L12).
//!
//! Bounds: one lease, granted in the first tenure; its holder renews at any time and never stops on its own. One
//! leader and one deposed leader, each with one pending request and one append or confirmation in flight. An append of
//! a crashed leader may still become durable. A tick is 100 ms, the longest normal interval between turns. [`check`]
//! has the numbers of ticks, tenures and renewals.

use leasehold_core::command::{Acquire, Answer, Command, LeaseRef, Renew, Request};
use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;
use stateright::{Model, Property};

use super::{Batch, Journal, LiveGrantor, Moment, SearchDepth, Summary};

const TICK: u32 = 100;

/// A model of one lease.
#[derive(Clone, Copy, Debug)]
pub struct RenewalModel {
    ttl: u32,
    ticks: u32,
    tenures: u8,
    renewals: u8,
    /// Whether a live leader can be deposed, not only a crashed one.
    zombie: bool,
    /// Whether leaders run their turns on time, so that they never stall, and record something in each turn.
    on_time: bool,
    fault: Option<Fault>,
}

/// A fault of a driver or journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An answer without a record is sent without a confirmation.
    NotConfirmed,
    /// A confirmation from before the request is accepted.
    ConfirmedBefore,
    /// The clock is read after the confirmation.
    ClockReadAfter,
    /// An answer is sent before its record is durable.
    RepliedBeforeDurable,
    /// The journal accepts a batch of a deposed writer.
    NotFenced,
    /// Grantor time starts when the opening batch is sent.
    ServedFromOpening,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 6] = [
        Self::NotConfirmed,
        Self::ConfirmedBefore,
        Self::ClockReadAfter,
        Self::RepliedBeforeDurable,
        Self::NotFenced,
        Self::ServedFromOpening,
    ];
}

/// Searches all configurations of one lease.
pub fn check(bounds: SearchDepth) -> Result<Summary, String> {
    let (zombies, on_time, stalls): (&[Size], &[Size], &[Size]) = match bounds {
        SearchDepth::Quick => (&[(200, 4, 3, 1)], &[(200, 5, 4, 1)], &[(250, 6, 2, 1)]),
        SearchDepth::Full => {
            (&[(200, 6, 3, 2), (250, 5, 3, 1)], &[(200, 8, 5, 1), (250, 8, 4, 1)], &[(200, 8, 3, 1), (250, 7, 3, 1)])
        }
        SearchDepth::Deep => (
            &[(200, 7, 3, 2), (200, 6, 4, 2), (250, 6, 3, 2)],
            &[(200, 10, 6, 1), (250, 9, 4, 2)],
            &[(200, 9, 3, 2), (250, 9, 4, 1)],
        ),
    };
    let mut summary = Summary::default();
    for size in zombies {
        summary.search(&format!("zombies and stalls {size:?}"), RenewalModel { zombie: true, ..model_of(*size) })?;
    }
    for size in on_time {
        summary.search(&format!("failovers on time {size:?}"), RenewalModel { on_time: true, ..model_of(*size) })?;
    }
    for size in stalls {
        summary.search(&format!("stalls and failovers {size:?}"), model_of(*size))?;
    }
    Ok(summary)
}

/// The ttl, and the numbers of ticks, tenures and renewals.
type Size = (u32, u32, u8, u8);

fn model_of((ttl, ticks, tenures, renewals): Size) -> RenewalModel {
    RenewalModel { ttl, ticks, tenures, renewals, zombie: false, on_time: false, fault: None }
}

/// Searches a configuration with a fault, which must be found.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let model = RenewalModel { zombie: true, fault: Some(fault), ..model_of((200, 6, 3, 2)) };
    let mut summary = Summary::default();
    summary.search("a fault in the driver", model)?;
    Ok(summary)
}

/// A batch to append, and what the model observes about it.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Append {
    batch: Batch,
    decided: u32,
    served: u32,
    /// Time of the previous durable batch of its tenure.
    since: u32,
    /// Remaining lifetime of the lease after it; `None` if the lease has ended.
    remaining: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AppendState {
    InFlight,
    Durable,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Hash)]
enum Phase {
    Opening(AppendState, Append),
    Idle,
    Appending(AppendState, Append),
    Confirming(Option<bool>),
}

/// A renewal that a leader has received, with the facts at its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ArrivedRenewal {
    deposed: bool,
    ended: bool,
    end_known: bool,
    in_time: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reply {
    renewed: bool,
    decided: u32,
    served: u32,
    arrived: ArrivedRenewal,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct Leader {
    generation: u8,
    live: LiveGrantor,
    inbox: Option<ArrivedRenewal>,
    phase: Phase,
    reply: Option<Reply>,
    /// Deadline of the lease in this leader's view.
    until: Option<u32>,
    /// Time of the last durable batch of its tenure, or of its start.
    since: u32,
    /// A confirmation that was requested too early.
    confirmed: Option<bool>,
}

/// A state of the model. Everything except `journal` and the leaders is only observed.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    now: u32,
    generation: u8,
    renewals: u8,
    number: Number,
    journal: Journal,
    leaders: [Option<Leader>; 2],
    orphan: Option<(u8, Append)>,
    /// Time of the recorded end: real time and served time.
    ended: Option<(u32, u32)>,
    /// Time of the last acknowledged renewal.
    acked: (u32, u32),
    end_known: bool,
    served: u32,
    /// Served and recorded time since the last renewal, and the time of that renewal.
    silent: u32,
    last_renewal: u32,
    /// Recorded remaining lifetime, in served time.
    credited_until: u32,
    failed_over: bool,
    stalled: bool,
    /// The last event, for the reachability properties.
    orphan_is_durable: bool,
    refused: bool,
    broken: Option<&'static str>,
    fault: Option<String>,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 100 ms pass.
    Tick,
    /// A renewal arrives at a leader.
    Arrive(usize),
    /// A leader runs a turn.
    Turn(usize),
    /// An append reaches the journal.
    BecomeDurable(usize),
    /// The journal's answer reaches the leader.
    Answer(usize),
    /// A leader requests a confirmation from the journal.
    Confirm(usize),
    /// A faulty driver requests the confirmation too early.
    ConfirmEarly(usize),
    /// The leader crashes.
    Crash,
    /// Another leader takes over the journal.
    TakeOver,
    /// The append of a crashed leader reaches the journal.
    OrphanBecomesDurable,
}

const LEASE: LeaseId = LeaseId { slot: 0, reuse: 0 };

/// Token numbers do not matter here, so the wall clock does not advance.
fn at(now: u32) -> Moment {
    Moment { at: now, wall: 1_000 }
}

fn renewal(number: Number) -> Command<'static> {
    Command::Renew(Renew { lease: LeaseRef::by_id(LEASE, number), ttl_ms: None, progress: None })
}

impl RenewalModel {
    /// Initial state: a grant of the first tenure is durable and delivered.
    fn initial_state(&self) -> Result<State, String> {
        let start = at(0);
        let opened = LiveGrantor::open(&Journal::empty(), start, 1, None)?;
        let journal = Journal::empty().append(&opened.batch.expect("an opening"))?;
        let acquire = Command::Acquire(Acquire::exclusive("jobs/settle", "worker", u64::from(self.ttl)));
        let granted = opened.live.serve(start).turn(start, vec![(Request::tagged(1), acquire)])?;
        let until = granted.live.view().remaining(LEASE);
        let Some(&Answer::Granted(grant)) = granted.answer(1) else { return Err("not granted".to_owned()) };
        let journal = journal.append(&granted.batch.expect("a grant"))?;
        let leader = Leader {
            generation: 1,
            live: granted.live,
            inbox: None,
            phase: Phase::Idle,
            reply: None,
            until,
            since: 0,
            confirmed: None,
        };
        Ok(State {
            now: 0,
            generation: 1,
            renewals: 0,
            number: grant.number,
            journal,
            leaders: [Some(leader), None],
            orphan: None,
            ended: None,
            acked: (0, 0),
            end_known: false,
            served: 0,
            silent: 0,
            last_renewal: 0,
            credited_until: self.ttl,
            failed_over: false,
            stalled: false,
            orphan_is_durable: false,
            refused: false,
            broken: None,
            fault: None,
        })
    }

    fn turn(&self, state: &mut State, i: usize) -> Result<(), String> {
        let now = state.now;
        let mut leader = state.leaders[i].take().expect("a leader runs a turn");
        let legitimate = leader.generation == state.generation;
        let late = now - leader.live.last_turn() > TICK;
        let early = leader.confirmed.take();
        let arrived = leader.inbox.take();
        let requests = arrived.map(|_| (Request::tagged(1), renewal(state.number)));
        let busy =
            self.on_time.then_some((Request::tagged(2), Command::SetCapacity { resource: "jobs/rest", units: 1 }));
        let turned = leader.live.turn(at(now), requests.into_iter().chain(busy).collect())?;
        let renewed = matches!(turned.answer(1), Some(Answer::Current(_)));
        let remaining = turned.live.view().remaining(LEASE);
        if legitimate {
            state.stalled |= late;
            if let Some(arrived) = arrived
                && !renewed
                && late
                && arrived.in_time
                && leader.until.is_some()
            {
                state.broken = Some("L12: a renewal that was queued while the grantor stalled is refused");
            }
            if renewed {
                (state.silent, state.last_renewal, state.failed_over, state.stalled) = (0, now, false, false);
            }
            let silent = state.silent + now.saturating_sub(leader.since.max(state.last_renewal));
            let tenures = if state.failed_over { 2 * self.ttl } else { self.ttl };
            let credit = if state.stalled { self.ttl } else { 0 };
            if remaining.is_some() && silent >= tenures + credit {
                state.broken = Some("L9: the lease of a silent holder does not end");
            }
        }
        leader.reply = arrived.map(|arrived| Reply { renewed, decided: now, served: state.served, arrived });
        leader.until = remaining.map(|remaining| now + remaining);
        leader.live = turned.live;
        let immediately = match turned.batch {
            Some(batch) => {
                let (served, since) = (state.served, leader.since);
                let append = Append { batch, decided: now, served, since, remaining };
                leader.phase = Phase::Appending(AppendState::InFlight, append);
                self.fault == Some(Fault::RepliedBeforeDurable) && legitimate
            }
            None if leader.reply.is_none() => false,
            None => match (self.fault, early) {
                (Some(Fault::NotConfirmed), _) => true,
                (Some(Fault::ConfirmedBefore | Fault::ClockReadAfter), Some(confirmed)) => {
                    leader.reply = leader.reply.take().filter(|_| confirmed);
                    true
                }
                _ => {
                    leader.phase = Phase::Confirming(None);
                    false
                }
            },
        };
        let reply = if immediately { leader.reply.take() } else { None };
        state.leaders[i] = Some(leader);
        if let Some(reply) = reply {
            self.deliver(state, reply);
        }
        self.refuse_deposed(state, i);
        Ok(())
    }

    /// Refuses the in-flight append of a deposed leader, which then stops. Nothing else can happen to it.
    fn refuse_deposed(&self, state: &mut State, i: usize) {
        let waits = state.leaders[i].as_ref().is_some_and(|leader| {
            let in_flight = matches!(
                leader.phase,
                Phase::Opening(AppendState::InFlight, _)
                    | Phase::Appending(AppendState::InFlight, _)
                    | Phase::Confirming(None)
            );
            in_flight && leader.generation != state.generation
        });
        if waits && self.fault != Some(Fault::NotFenced) {
            state.refused = true;
            state.leaders[i] = None;
        }
    }

    fn deliver(&self, state: &mut State, reply: Reply) {
        if reply.arrived.deposed {
            state.broken = Some("L7: a deposed grantor answers");
        }
        if !reply.renewed {
            state.end_known = true;
        } else if reply.arrived.ended {
            state.broken = Some("L4: renewed after the end was recorded");
        } else if reply.arrived.end_known {
            state.broken = Some("L4: renewed after the end was reported");
        } else if reply.decided >= state.acked.0 {
            state.acked = (reply.decided, reply.served);
        }
        self.check_end(state);
    }

    fn check_end(&self, state: &mut State) {
        if let Some((real, served)) = state.ended {
            if real < state.acked.0 + self.ttl {
                state.broken = Some("L2: ended before the last acked renewal plus its ttl, in real time");
            }
            if served < state.acked.1 + self.ttl {
                state.broken = Some("L2: ended before the last acked renewal plus its ttl, in served time");
            }
        }
    }

    /// A batch is durable.
    fn make_durable(&self, state: &mut State, append: &Append) -> Result<(), String> {
        state.journal = state.journal.append(&append.batch)?;
        state.silent += append.decided.saturating_sub(append.since.max(state.last_renewal));
        match append.remaining {
            Some(remaining) => state.credited_until = state.credited_until.max(append.served + remaining),
            None if state.ended.is_none() => {
                state.ended = Some((append.decided, append.served));
                if append.served < state.credited_until {
                    state.broken = Some("L12: recorded credit is revoked");
                }
            }
            None => {}
        }
        self.check_end(state);
        Ok(())
    }

    /// Whether the journal accepts a batch of this writer.
    fn accepts(&self, writer: u8, generation: u8) -> bool {
        writer == generation || self.fault == Some(Fault::NotFenced)
    }

    fn answer(&self, state: &mut State, i: usize) -> Result<(), String> {
        let mut leader = state.leaders[i].take().expect("a leader receives the answer");
        let phase = std::mem::replace(&mut leader.phase, Phase::Idle);
        match phase {
            Phase::Opening(AppendState::Durable, append) => {
                let from = if self.fault == Some(Fault::ServedFromOpening) { append.decided } else { state.now };
                leader.live = leader.live.serve(at(from));
                leader.until = append.remaining.map(|remaining| state.now + remaining);
                leader.since = state.now;
            }
            Phase::Appending(AppendState::Durable, _) | Phase::Confirming(Some(true)) => {
                if let Some(reply) = leader.reply.take() {
                    self.deliver(state, reply);
                }
            }
            // Deposed: it stops without replying.
            _ => return Ok(()),
        }
        state.leaders[i] = Some(leader);
        Ok(())
    }

    fn take_over(&self, state: &mut State) -> Result<(), String> {
        state.generation += 1;
        state.failed_over = true;
        if let Some(deposed) = state.leaders[0].take() {
            state.leaders[1] = Some(deposed);
            self.refuse_deposed(state, 1);
        }
        if self.fault != Some(Fault::NotFenced) {
            state.orphan = None;
        }
        let now = state.now;
        let opened = LiveGrantor::open(&state.journal, at(now), u64::from(state.generation), None)?;
        let batch = opened.batch.expect("an opening is recorded");
        let remaining = opened.live.view().remaining(LEASE);
        let append = Append { batch, decided: now, served: state.served, since: now, remaining };
        state.leaders[0] = Some(Leader {
            generation: state.generation,
            live: opened.live,
            inbox: None,
            phase: Phase::Opening(AppendState::InFlight, append),
            reply: None,
            until: None,
            since: now,
            confirmed: None,
        });
        Ok(())
    }

    fn apply_event(&self, state: &mut State, event: Event) -> Result<(), String> {
        match event {
            Event::Tick => {
                state.now += TICK;
                if state.leaders[0].as_ref().is_some_and(Leader::serves) {
                    state.served += TICK;
                }
            }
            Event::Arrive(i) => {
                state.renewals += 1;
                let (deposed, ended, end_known) = (state.generation, state.ended.is_some(), state.end_known);
                let leader = state.leaders[i].as_mut().expect("a leader exists");
                let in_time = leader.until.is_some_and(|until| state.now < until);
                leader.inbox = Some(ArrivedRenewal { deposed: deposed > leader.generation, ended, end_known, in_time });
            }
            Event::Turn(i) => self.turn(state, i)?,
            Event::BecomeDurable(i) => {
                let leader = state.leaders[i].as_mut().expect("a leader appends");
                let (Phase::Opening(append_state, append) | Phase::Appending(append_state, append)) = &mut leader.phase
                else {
                    unreachable!("only an append becomes durable")
                };
                let append = append.clone();
                let accepted = self.accepts(leader.generation, state.generation);
                *append_state = if accepted { AppendState::Durable } else { AppendState::Refused };
                state.refused |= !accepted;
                if accepted {
                    leader.since = append.decided;
                    self.make_durable(state, &append)?;
                }
            }
            Event::Answer(i) => self.answer(state, i)?,
            Event::Confirm(i) => {
                let leader = state.leaders[i].as_mut().expect("a leader confirms");
                leader.phase = Phase::Confirming(Some(leader.generation == state.generation));
            }
            Event::ConfirmEarly(i) => {
                let leader = state.leaders[i].as_mut().expect("a leader confirms");
                leader.confirmed = Some(leader.generation == state.generation);
            }
            Event::Crash => {
                let leader = state.leaders[0].take().expect("a leader crashes");
                state.failed_over = true;
                state.orphan = match leader.phase {
                    Phase::Opening(AppendState::InFlight, append) | Phase::Appending(AppendState::InFlight, append) => {
                        Some((leader.generation, append))
                    }
                    _ => None,
                };
            }
            Event::TakeOver => self.take_over(state)?,
            Event::OrphanBecomesDurable => {
                let (generation, append) = state.orphan.take().expect("an orphaned append");
                if self.accepts(generation, state.generation) {
                    state.orphan_is_durable = true;
                    self.make_durable(state, &append)?;
                }
            }
        }
        Ok(())
    }
}

impl Leader {
    fn serves(&self) -> bool {
        !matches!(self.phase, Phase::Opening(..))
    }

    fn events(&self, i: usize, model: &RenewalModel, state: &State, events: &mut Vec<Event>) {
        if self.serves() && self.inbox.is_none() && state.renewals < model.renewals {
            events.push(Event::Arrive(i));
        }
        match &self.phase {
            Phase::Idle => {
                let leads = self.generation == state.generation && self.until.is_some() && state.ended.is_none();
                if self.inbox.is_some() || (leads && self.live.last_turn() < state.now) {
                    events.push(Event::Turn(i));
                }
                let early = match model.fault {
                    Some(Fault::ConfirmedBefore) => self.inbox.is_none(),
                    Some(Fault::ClockReadAfter) => self.inbox.is_some(),
                    _ => false,
                };
                if early && self.confirmed.is_none() {
                    events.push(Event::ConfirmEarly(i));
                }
            }
            Phase::Opening(AppendState::InFlight, _) | Phase::Appending(AppendState::InFlight, _) => {
                events.push(Event::BecomeDurable(i))
            }
            Phase::Opening(..) | Phase::Appending(..) | Phase::Confirming(Some(_)) => events.push(Event::Answer(i)),
            Phase::Confirming(None) => events.push(Event::Confirm(i)),
        }
    }

    /// Whether a leader must still finish its turn before time may pass.
    fn is_behind(&self, now: u32) -> bool {
        self.serves() && (self.phase != Phase::Idle || (self.live.last_turn() < now && self.until.is_some()))
    }
}

impl Model for RenewalModel {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial_state().expect("the first tenure opens and grants")]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.broken.is_some() || state.fault.is_some() {
            return;
        }
        let behind = self.on_time && state.leaders[0].as_ref().is_some_and(|leader| leader.is_behind(state.now));
        let over = state.ended.is_some() || (state.leaders[0].is_none() && state.generation == self.tenures);
        if state.now < self.ticks * TICK && !behind && !over {
            events.push(Event::Tick);
        }
        for (i, leader) in state.leaders.iter().enumerate() {
            if let Some(leader) = leader {
                leader.events(i, self, state, events);
            }
        }
        if state.leaders[0].is_some() {
            events.push(Event::Crash);
        }
        if state.generation < self.tenures && (state.leaders[0].is_none() || self.zombie) {
            events.push(Event::TakeOver);
        }
        if state.orphan.is_some() {
            events.push(Event::OrphanBecomesDurable);
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = State { orphan_is_durable: false, refused: false, ..state.clone() };
        match self.apply_event(&mut next, event) {
            Ok(()) => next.normalize(),
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("L2, L4, L7, L9, L12", |_, state: &State| state.broken.is_none()),
            Property::always("V1 and the core's own checks", |_, state: &State| state.fault.is_none()),
            Property::sometimes("the lease has ended", |_, state: &State| state.ended.is_some()),
            Property::sometimes("the end was reported", |_, state: &State| state.end_known),
            Property::sometimes("renewed in a later tenure", |_, state: &State| state.has_reply_pending_since(2)),
            Property::sometimes("an append of a crashed leader becomes durable", |_, state: &State| {
                state.orphan_is_durable
            }),
        ];
        if self.zombie {
            let refused = |_: &Self, state: &State| state.refused;
            properties.push(Property::sometimes("a deposed leader is refused", refused));
        }
        if !self.on_time {
            properties.push(Property::sometimes("credit for a stall is recorded", |model: &Self, state: &State| {
                state.stalled && state.credited_until > state.acked.1 + model.ttl
            }));
        }
        properties
    }
}

impl State {
    /// Normalizes fields that no longer matter, so that more states are equal.
    fn normalize(&mut self) {
        if self.ended.is_some() {
            (self.acked, self.silent, self.last_renewal, self.credited_until) = ((0, 0), 0, 0, 0);
            (self.failed_over, self.stalled) = (false, false);
            return;
        }
        let in_flight = self.leaders.iter().flatten().filter_map(|leader| match &leader.phase {
            Phase::Opening(_, append) | Phase::Appending(_, append) => Some(append),
            _ => None,
        });
        let in_flight: Vec<&Append> = in_flight.chain(self.orphan.iter().map(|(_, append)| append)).collect();
        let since =
            in_flight.iter().map(|append| append.since).chain(self.leaders.iter().flatten().map(|l| l.since)).min();
        let served = in_flight.iter().map(|append| append.served).fold(self.served, u32::min);
        if since.unwrap_or(self.now) >= self.last_renewal {
            self.last_renewal = 0;
        }
        if self.credited_until <= served {
            self.credited_until = 0;
        }
    }

    /// Whether the answer to a renewal of this or a later tenure is pending.
    fn has_reply_pending_since(&self, generation: u8) -> bool {
        self.leaders.iter().flatten().any(|leader| {
            let is_final =
                matches!(leader.phase, Phase::Appending(AppendState::Durable, _) | Phase::Confirming(Some(true)));
            is_final && leader.reply.is_some_and(|reply| reply.renewed) && leader.generation >= generation
        })
    }
}
