//! Model of token numbers, over crashes, silent rollbacks, restores and a wrong clock (T1 to T5, T9).
//!
//! Bounds: one grantor at a time, and two clients with leases of 300 ms, which is the maximum ttl and so the length of
//! a quarantine. One turn in flight, which takes no time. One copy at a time, of the disk or of the whole machine. A
//! tick is 300 ms; a rollback or restore takes one tick. [`check`] has the numbers.

use leasehold_core::command::{Acquire, Answer, Command, LeaseRef, Renew, Request};
use leasehold_core::grantor::RestoreSpec;
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Incarnation, Number, Token};
use stateright::{Model, Property};

use super::{Batch, CLUSTER, Journal, LiveGrantor, MAX_TTL, Moment, SearchDepth, Summary};

const TICK: u32 = MAX_TTL as u32;
const POOL: &str = "jobs/pool";
const CLIENTS: [&str; 2] = ["first", "second"];

/// A model of grants.
#[derive(Clone, Copy, Debug)]
pub struct TokenModel {
    ticks: u32,
    grants: u8,
    crashes: u8,
    /// Number of copies, and number of rollbacks to a copy.
    copies: u8,
    rollbacks: u8,
    restores: u8,
    /// Whether a rollback restores the memory together with the disk.
    memory: bool,
    /// Number of times that the wall clock is set back.
    set_back: u8,
    /// Number of times that a client presents its token.
    presentations: u8,
    fault: Option<Fault>,
}

/// A fault that breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A grant is delivered before it is durable.
    RepliedBeforeDurable,
    /// A rollback takes no time.
    RollbackWithoutDelay,
    /// The clock is behind after a rollback, and no client presents a token.
    ClockBehind,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 3] = [Self::RepliedBeforeDurable, Self::RollbackWithoutDelay, Self::ClockBehind];
}

const BASE: TokenModel = TokenModel {
    ticks: 3,
    grants: 2,
    crashes: 1,
    copies: 1,
    rollbacks: 0,
    restores: 0,
    memory: false,
    set_back: 0,
    presentations: 0,
    fault: None,
};

/// Searches all configurations of grants.
pub fn check(bounds: SearchDepth) -> Result<Summary, String> {
    let mut summary = Summary::default();
    let (ticks, grants, crashes, repeats) = match bounds {
        SearchDepth::Quick => (2, 2, 1, 1),
        SearchDepth::Full => (3, 3, 1, 2),
        SearchDepth::Deep => (4, 3, 2, 2),
    };
    let model = TokenModel { ticks, grants, crashes, copies: repeats, ..BASE };
    summary.search("a rollback of the disk", TokenModel { rollbacks: repeats, ..model })?;
    summary.search("a rollback of the machine", TokenModel { rollbacks: repeats, memory: true, ..model })?;
    summary.search(
        "repeated restores",
        TokenModel { ticks: ticks + 1, grants: 2, copies: 1, restores: repeats, ..model },
    )?;
    summary.search("a clock set back", TokenModel { copies: 0, crashes: crashes + 1, set_back: 2, ..model })?;
    let shown = TokenModel { grants: 3, rollbacks: 1, presentations: repeats, copies: 1, ..model };
    summary.search("a disk rolled back under a right clock, and a presented token", shown)?;
    let presented = TokenModel { grants: 2, rollbacks: 1, set_back: 1, presentations: repeats, copies: 1, ..model };
    summary.search("a clock set back, a disk rolled back, and a presented token", presented)?;
    summary.search(
        "a clock set back, a machine rolled back, and a presented token",
        TokenModel { memory: true, ..presented },
    )?;
    summary.search(
        "a clock set back, and restored with a floor",
        TokenModel { copies: 1, restores: 1, set_back: 2, ..model },
    )?;
    Ok(summary)
}

/// Searches a configuration in which a promise cannot hold.
pub fn check_fault(fault: Fault) -> Result<Summary, String> {
    let model = TokenModel { copies: 1, rollbacks: 1, fault: Some(fault), ..BASE };
    let mut summary = Summary::default();
    let set_back = u8::from(fault == Fault::ClockBehind) * 3;
    summary.search("a model in which numbers repeat", TokenModel { set_back, ..model })?;
    Ok(summary)
}

/// What a client knows of its last grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    lease: LeaseId,
    token: Token,
    /// Deadline in the client's view.
    until: u32,
}

/// The reply that is sent when the turn in flight is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Serving,
    Granted(usize, Grant),
    Renewed(usize),
    /// A token was presented; the time if it revealed a rollback.
    Presented {
        number: u64,
        ahead: Option<u32>,
    },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct Turn {
    /// `None` if the batch is durable, or if there was nothing to record.
    batch: Option<Batch>,
    reply: Reply,
}

/// A state of the model. Everything after the clients is only observed.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    at: u32,
    behind: u32,
    incarnation: u32,
    generation: u8,
    grants: u8,
    crashes: u8,
    copies: u8,
    rollbacks: u8,
    restores: u8,
    set_back: u8,
    presentations: u8,
    /// Whether a lease of an earlier incarnation was used since the last restore.
    renewed: bool,
    journal: Journal,
    live: Option<LiveGrantor>,
    turn: Option<Turn>,
    copy: Option<(Journal, Option<LiveGrantor>, u32)>,
    /// The disk is a copy: it can only be opened as a restore.
    backup: bool,
    clients: [Option<Grant>; 2],
    /// Whether the last rollback of the disk lost the grant of a client and no token has revealed it since.
    lost: [bool; 2],
    highest: u64,
    /// The highest token presented since the last rollback.
    presented: u64,
    /// Time at which the last restore, or the detection of a rollback, was recorded.
    quarantined: Option<u32>,
    granted: bool,
    broken: Option<&'static str>,
    fault: Option<String>,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// 300 ms pass.
    Tick,
    /// The wall clock is set back by 300 ms.
    SetBack,
    /// The grantor crashes and loses what is not durable.
    Crash,
    /// A tenure is opened from the disk.
    Open,
    /// The batch in flight becomes durable.
    BecomeDurable,
    /// Its reply is delivered.
    Deliver,
    /// A client acquires a lease.
    Acquire(usize),
    /// A client renews its last lease.
    Renew(usize),
    /// A client presents its last token.
    Present(usize),
    /// A copy is made.
    Copy,
    /// The disk, or the disk and the memory, are rolled back to the copy.
    RollBack,
    /// A new incarnation starts from the copy.
    Restore,
}

impl TokenModel {
    fn moment(state: &State) -> Moment {
        Moment { at: state.at, wall: 1_000 + state.at - state.behind }
    }

    /// Whether numbers must increase: the clock is right, or nothing was rolled back.
    fn must_increase(&self) -> bool {
        self.set_back == 0 || self.rollbacks == 0 || self.fault == Some(Fault::ClockBehind)
    }

    fn open(&self, state: &mut State) -> Result<(), String> {
        state.generation += 1;
        let floor = state.highest.max(state.journal.counter()) + 1;
        let floor = if self.set_back > 0 { Number::new(floor) } else { None };
        let incarnation = Incarnation(1 + u32::from(state.restores));
        let restore = state.backup.then_some(RestoreSpec { incarnation, floor, uid: None });
        let opened = LiveGrantor::open(&state.journal, Self::moment(state), u64::from(state.generation), restore)?;
        state.turn = Some(Turn { batch: opened.batch, reply: Reply::Serving });
        state.live = Some(opened.live);
        Ok(())
    }

    /// Runs a turn with one request.
    fn request(
        &self,
        state: &mut State,
        client: usize,
        presented: Option<Token>,
        command: Command<'static>,
    ) -> Result<(), String> {
        let live = state.live.as_ref().expect("a live grantor");
        let before = live.view().counter;
        let request = Request { observed: presented, ..Request::tagged(1) };
        let turned = live.turn(Self::moment(state), vec![(request, command)])?;
        let incarnation = Incarnation(turned.live.view().incarnation);
        let ours =
            presented.filter(|presented| presented.incarnation == incarnation).map(|presented| presented.number.get());
        let reply = match turned.answer(1) {
            Some(Answer::Granted(grant)) => {
                let resource = resource_hash(POOL);
                let (scope, number) = (grant.scope, grant.number);
                let token = Token { cluster: CLUSTER, incarnation, resource, scope, number };
                Reply::Granted(client, Grant { lease: grant.lease, token, until: state.at + grant.ttl_ms as u32 })
            }
            Some(Answer::Current(_)) => Reply::Renewed(client),
            Some(Answer::Done) if let Some(number) = ours => {
                // With its memory, a machine opens nothing, and its next grant hides what was lost; so may a clock that is behind.
                let in_gap = state.lost[client] && !self.memory && self.set_back == 0;
                let reveals = number > before || in_gap;
                if number <= before && !state.lost[client] && turned.live.view().rolled_back && !live.view().rolled_back
                {
                    state.broken = Some("T9: an issued token was taken for a lost one");
                }
                Reply::Presented { number, ahead: reveals.then_some(state.at) }
            }
            _ => Reply::Nothing,
        };
        state.turn = Some(Turn { batch: turned.batch, reply });
        state.live = Some(turned.live);
        if self.fault == Some(Fault::RepliedBeforeDurable) {
            self.deliver(state, reply);
        }
        Ok(())
    }

    fn deliver(&self, state: &mut State, reply: Reply) {
        match reply {
            Reply::Serving => state.live = state.live.take().map(|live| live.serve(Self::moment(state))),
            Reply::Granted(client, grant) => {
                let number = grant.token.number.get();
                if number <= state.highest && self.must_increase() {
                    state.broken = Some("T1 to T5: a number is not above every earlier one");
                }
                if number <= state.presented {
                    state.broken = Some("T9: a number is not above a presented one");
                }
                let is_live = |known: &Grant| known.until > state.at && known.token.number >= grant.token.number;
                if state.quarantined.is_some() && state.clients.iter().flatten().any(is_live) {
                    state.broken = Some("T9: a number is not above one that a client still holds");
                }
                if state.quarantined.is_some_and(|since| state.at < since + MAX_TTL as u32) {
                    state.broken = Some("T5, T9: granted during a quarantine");
                }
                state.highest = state.highest.max(number);
                state.clients[client] = Some(grant);
                state.lost[client] = false;
                state.granted = true;
            }
            Reply::Renewed(client) => {
                let grant = state.clients[client].as_mut().expect("it renews its own lease");
                grant.until = state.at + MAX_TTL as u32;
                if grant.token.incarnation.0 != state.incarnation {
                    state.broken = Some("T5: a lease of a backup was renewed");
                }
            }
            Reply::Presented { number, ahead } => {
                state.presented = state.presented.max(number);
                state.quarantined = state.quarantined.max(ahead);
                if ahead.is_some() {
                    state.lost = [false; 2];
                }
            }
            Reply::Nothing => {}
        }
    }

    fn apply_event(&self, state: &mut State, event: Event) -> Result<(), String> {
        match event {
            Event::Tick => state.at += TICK,
            Event::SetBack => {
                state.behind += TICK;
                state.set_back += 1;
            }
            Event::Crash => {
                state.crashes += 1;
                (state.live, state.turn) = (None, None);
            }
            Event::Open => self.open(state)?,
            Event::BecomeDurable => {
                let turn = state.turn.as_mut().expect("a turn is in flight");
                let batch = turn.batch.take().expect("the turn has a batch");
                state.journal = state.journal.append(&batch)?;
                if let Reply::Presented { ahead: Some(_), .. } = turn.reply {
                    // The rollback is on record, whether or not the reply arrives.
                    state.quarantined = state.quarantined.max(Some(state.at));
                    state.lost = [false; 2];
                }
                if std::mem::take(&mut state.backup) {
                    state.incarnation = 1 + u32::from(state.restores);
                    state.quarantined = Some(state.at);
                }
            }
            Event::Deliver => {
                let reply = state.turn.take().expect("a turn is in flight").reply;
                if reply == Reply::Serving || self.fault != Some(Fault::RepliedBeforeDurable) {
                    self.deliver(state, reply);
                }
            }
            Event::Acquire(client) => {
                state.grants += 1;
                let acquire = Acquire::exclusive(POOL, CLIENTS[client], MAX_TTL);
                self.request(state, client, None, Command::Acquire(Acquire { access: Access::Shared, ..acquire }))?;
            }
            Event::Renew(client) => {
                state.renewed = true;
                let grant = state.clients[client].expect("it renews its own lease");
                let held = LeaseRef::by_id(grant.lease, grant.token.number);
                let renew = Command::Renew(Renew { lease: held, ttl_ms: None, progress: None });
                self.request(state, client, None, renew)?;
            }
            Event::Present(client) => {
                state.presentations += 1;
                let token = state.clients[client].map(|grant| grant.token);
                self.request(state, client, token, Command::ObserveToken)?;
            }
            Event::Copy => {
                state.copies += 1;
                let live = if self.memory { state.live.clone() } else { None };
                state.copy = Some((state.journal.clone(), live, state.incarnation));
            }
            Event::RollBack => {
                state.rollbacks += 1;
                state.at += if self.fault == Some(Fault::RollbackWithoutDelay) { 0 } else { TICK };
                let (journal, live, incarnation) = state.copy.clone().expect("a copy exists");
                let is_lost = |grant: &Grant| grant.token.number.get() > journal.counter();
                state.lost = state.clients.map(|grant| grant.as_ref().is_some_and(is_lost));
                (state.journal, state.live, state.incarnation) = (journal, live, incarnation);
                (state.turn, state.presented, state.quarantined, state.backup) = (None, 0, None, false);
            }
            Event::Restore => {
                state.restores += 1;
                state.at += TICK;
                let (journal, _, incarnation) = state.copy.clone().expect("a copy exists");
                (state.journal, state.incarnation, state.backup) = (journal, incarnation, true);
                state.renewed = false;
                state.lost = [false; 2];
                (state.live, state.turn, state.presented, state.quarantined) = (None, None, 0, None);
            }
        }
        Ok(())
    }
}

impl Model for TokenModel {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            at: 0,
            behind: 0,
            incarnation: 1,
            generation: 0,
            grants: 0,
            crashes: 0,
            copies: 0,
            rollbacks: 0,
            restores: 0,
            set_back: 0,
            presentations: 0,
            renewed: false,
            journal: Journal::empty(),
            live: None,
            turn: None,
            copy: None,
            backup: false,
            clients: [None; 2],
            lost: [false; 2],
            highest: 0,
            presented: 0,
            quarantined: None,
            granted: false,
            broken: None,
            fault: None,
        };
        for event in [Event::Open, Event::BecomeDurable, Event::Deliver] {
            self.apply_event(&mut state, event).expect("the first tenure opens");
        }
        vec![state]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.broken.is_some() || state.fault.is_some() {
            return;
        }
        match &state.turn {
            Some(turn) => events.push(if turn.batch.is_some() { Event::BecomeDurable } else { Event::Deliver }),
            None if state.live.is_none() => events.push(Event::Open),
            None => {
                for client in 0..CLIENTS.len() {
                    // The holders are symmetric, so the first one starts.
                    if state.grants < self.grants && (client == 0 || state.clients[0].is_some()) {
                        events.push(Event::Acquire(client));
                    }
                    let Some(grant) = state.clients[client] else { continue };
                    if state.presentations < self.presentations {
                        events.push(Event::Present(client));
                    }
                    if grant.token.incarnation.0 != state.incarnation && !state.renewed {
                        events.push(Event::Renew(client));
                    }
                }
            }
        }
        if state.at < self.ticks * TICK {
            if state.turn.is_none() {
                events.push(Event::Tick);
            }
            if state.copy.is_some() && state.rollbacks < self.rollbacks {
                events.push(Event::RollBack);
            }
            if state.copy.is_some() && state.restores < self.restores {
                events.push(Event::Restore);
            }
        }
        if state.behind < state.at && state.set_back < self.set_back {
            events.push(Event::SetBack);
        }
        if state.live.is_some() && state.crashes < self.crashes {
            events.push(Event::Crash);
        }
        if state.copies < self.copies && state.turn.is_none() && !state.backup {
            events.push(Event::Copy);
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = State { granted: false, ..state.clone() };
        if let Err(fault) = self.apply_event(&mut next, event) {
            next.fault = Some(fault);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("T1, T2, T3, T4, T5, T9", |_, state: &State| state.broken.is_none()),
            Property::always("V1 and the core's own checks", |_, state: &State| state.fault.is_none()),
            Property::sometimes("granted after a crash", |_, state: &State| state.granted && state.crashes > 0),
        ];
        if self.rollbacks > 0 {
            properties.push(Property::sometimes("granted after the last rollback", |model: &Self, state: &State| {
                state.granted && state.rollbacks == model.rollbacks
            }));
        }
        if self.restores > 0 {
            properties.push(Property::sometimes("granted after the last restore", |model: &Self, state: &State| {
                state.granted && state.restores == model.restores
            }));
        }
        if self.presentations > 0 {
            properties.push(Property::sometimes("granted after a token revealed a rollback", |_, state: &State| {
                state.granted && state.quarantined.is_some()
            }));
        }
        properties
    }
}
