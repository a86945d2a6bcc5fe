//! A server: the real grantor on a simulated journal, one turn after the other, killed and stopped at any effect.

mod opening;

use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::command::{Answer, Input, Request};
use leasehold_core::grantor::{Grantor, Output};
use leasehold_core::ids::SessionId;
use leasehold_core::limits::{TURN_EVERY, TURN_NORMAL};
use leasehold_core::token::{Cluster, Token, plausible};

use crate::ask::Ask;
use crate::clock::{At, Clock, MS};
use crate::fault::Fault;
use crate::history::Event;
use crate::journal::Journal;
use crate::planted::Planted;
use crate::shows;
use crate::stage::{Actor, Due, Kept, Letter, Mail, Stage, Step};

/// The cluster of every run.
pub const CLUSTER: Cluster = Cluster(*b"simulate");
/// The longest ttl of every run.
pub const MAX_TTL: u64 = 3_000;

/// What a server waits for.
struct InFlight {
    ticket: u64,
    step: Step,
    resend: At,
}

/// One server.
pub struct Server {
    /// Which.
    pub index: usize,
    /// Its clock.
    pub clock: Clock,
    /// Rises with every start, so that what an earlier process began does not reach a later one.
    pub life: u32,
    /// Whether the process runs.
    pub up: bool,
    /// When it starts again, if it does not run.
    pub back: At,
    /// Until when it stands still.
    pub stalled: At,
    /// Whether it serves.
    pub serving: bool,
    /// When it last took a turn.
    pub turned: At,
    grantor: Option<Grantor>,
    generation: u64,
    next: u64,
    inbox: Vec<Letter>,
    output: Output,
    in_flight: Option<InFlight>,
    tickets: u64,
    wake: At,
    let_in: bool,
    /// Who asked for what, and whose sessions they are.
    asked: BTreeMap<u64, Actor>,
    sessions: BTreeMap<SessionId, Actor>,
}

impl Server {
    /// A server that is not running yet.
    pub fn new(index: usize, clock: Clock) -> Self {
        Self {
            index,
            clock,
            life: 0,
            up: false,
            back: 0,
            stalled: 0,
            serving: false,
            turned: 0,
            grantor: None,
            generation: 0,
            next: 0,
            inbox: Vec::new(),
            output: Output::default(),
            in_flight: None,
            tickets: 0,
            wake: 0,
            let_in: false,
            asked: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Whether it is on its way to serve.
    pub const fn is_opening(&self) -> bool {
        self.up && !self.serving && self.in_flight.is_some()
    }

    /// The generation that it opened, or tried to.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The serving grantor.
    pub fn grantor(&self) -> Option<&Grantor> {
        self.grantor.as_ref().filter(|_| self.serving)
    }

    /// The process starts.
    pub fn start(&mut self) {
        self.life += 1;
        self.up = true;
        self.serving = false;
        self.stalled = 0;
    }

    /// The process is gone, with all that it knew.
    pub fn stop(&mut self, stage: &mut Stage, back: At) {
        self.up = false;
        self.serving = false;
        self.grantor = None;
        self.inbox.clear();
        self.in_flight = None;
        self.output = Output::default();
        self.asked.clear();
        self.sessions.clear();
        self.back = back;
        self.wake_at(stage, back);
    }

    /// It will look again then.
    pub fn wake_at(&mut self, stage: &mut Stage, at: At) {
        let at = at.max(stage.at + 1);
        if self.wake <= stage.at || at < self.wake {
            self.wake = at;
            stage.later(at, Due::Wake(Actor::Server(self.index)));
        }
    }

    /// Whether it waits for this wake.
    pub const fn is_due(&self, at: At) -> bool {
        self.wake <= at
    }

    /// A request arrives.
    pub fn receive(&mut self, stage: &mut Stage, letter: Letter) {
        if !self.up {
            return;
        }
        if !self.serving {
            let Letter { op, tries, from, .. } = letter;
            return stage.send(Actor::Server(self.index), from, Mail::Elsewhere { op, tries });
        }
        if matches!(letter.ask, Ask::Renew { .. } | Ask::RenewSession { .. }) {
            stage.note(Event::Arrived { op: letter.op, server: self.index as u32, generation: self.generation });
        }
        if stage.is_planted(Planted::StormDropped) && self.inbox.len() > 3 {
            return;
        }
        self.inbox.push(letter);
        let at = stage.at + 200;
        self.wake_at(stage, at);
    }

    /// Takes the journal: every earlier writer is fenced.
    pub fn open(&mut self, stage: &mut Stage, journal: &mut Journal) {
        self.begin(stage, journal, Step::Open);
    }

    fn begin(&mut self, stage: &mut Stage, journal: &mut Journal, step: Step) {
        self.tickets += 1;
        self.in_flight = Some(InFlight { ticket: self.tickets, step: step.clone(), resend: stage.at + 400 * MS });
        journal.begin(stage, self.index, self.life, self.tickets, step);
        let at = stage.at + 401 * MS;
        self.wake_at(stage, at);
    }

    /// The time has come to look: start again, send again, or take a turn. Returns whether it wants to be killed.
    pub fn look(&mut self, stage: &mut Stage, journal: &mut Journal) -> bool {
        if stage.at < self.stalled {
            let at = self.stalled;
            self.wake_at(stage, at);
            return false;
        }
        if let Some(in_flight) = &mut self.in_flight {
            // Nobody answered. The store knows what it has: the same once more is harmless.
            if stage.at >= in_flight.resend {
                in_flight.resend = stage.at + 400 * MS;
                let (ticket, step) = (in_flight.ticket, in_flight.step.clone());
                journal.begin(stage, self.index, self.life, ticket, step);
            }
            let at = in_flight.resend;
            self.wake_at(stage, at);
            return false;
        }
        if self.serving { self.turn(stage, journal) } else { false }
    }

    /// How a step of the journal ended. Returns whether the process must stop.
    pub fn kept(&mut self, stage: &mut Stage, journal: &mut Journal, ticket: u64, kept: Kept) -> bool {
        if self.in_flight.as_ref().is_none_or(|in_flight| in_flight.ticket != ticket) {
            return false;
        }
        match kept {
            Kept::Opened { generation } => {
                self.in_flight = None;
                self.generation = generation;
                self.recover(stage, journal)
            }
            Kept::Durable => {
                self.in_flight = None;
                self.next += 1;
                if self.serving {
                    self.compare(stage, journal);
                }
                if self.serving { self.after_durable(stage) } else { self.serve(stage) }
            }
            Kept::StillMine => {
                self.in_flight = None;
                self.tell(stage);
                self.rest(stage);
                false
            }
            Kept::Full => {
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.resend = stage.at + 100 * MS;
                }
                let at = stage.at + 100 * MS;
                self.wake_at(stage, at);
                false
            }
            Kept::Fenced | Kept::Failed => true,
        }
    }

    /// Drain, read the clocks, step, tick; then append or confirm. Returns whether it is killed in between.
    fn turn(&mut self, stage: &mut Stage, journal: &mut Journal) -> bool {
        let now = self.clock.now(stage.at);
        let grantor = self.grantor.as_mut().expect("a serving server has a grantor");
        let due = grantor.next_deadline().expect("it serves").max(grantor.last_turn());
        let late = now.instant.millis_since(due);
        if late > TURN_NORMAL - TURN_EVERY && !self.let_in {
            // Who asked while it stood still is let in before anything ends.
            self.let_in = true;
            let at = stage.at + (late / 4).clamp(TURN_EVERY, 500) * MS;
            self.wake_at(stage, at);
            return false;
        }
        self.let_in = false;
        let stood = now.instant.millis_since(grantor.last_turn()).saturating_sub(TURN_NORMAL);
        grantor.keep_to_endings(journal.full && !stage.healed);
        let letters = std::mem::take(&mut self.inbox);
        for letter in &letters {
            self.asked.insert(letter.op, letter.from);
            let holder = match letter.from {
                Actor::Holder(index) => format!("holder-{index}"),
                _ => "operator".to_owned(),
            };
            let (status, shown) = (grantor.status(), letter.shown);
            let newer = |shown: &Token| {
                shown.incarnation == status.incarnation
                    && shown.number.get() > status.counter
                    && plausible(shown.number, now.wall)
            };
            if let Some(shown) = shown.filter(newer) {
                stage.note(Event::Newer { shown: shown.number.get(), generation: self.generation });
            }
            let request = Request { tag: letter.op, id: letter.id, shown: letter.shown };
            letter.ask.command(&holder, |command| grantor.step(now, &Input::Asked(request, command)));
        }
        grantor.step(now, &Input::Tick);
        grantor.take_output(&mut self.output);
        let time = grantor.time();
        self.turned = stage.at;
        let (server, generation) = (self.index as u32, self.generation);
        if stood > 0 {
            stage.note(Event::Stood { server, generation, time, ms: stood });
        }
        for reply in &self.output.replies {
            let answer = reply.answer.clone();
            stage.note(Event::Decided { op: reply.to, server, generation, time, answer });
        }
        if self.output.is_empty() {
            self.rest(stage);
            return false;
        }
        if stage.strikes(Fault::Kill, 150) {
            stage.struck(Fault::Kill, format!("server {server} before it appends"));
            return true;
        }
        if self.output.batch.is_empty() {
            if journal.shared && !stage.is_planted(Planted::NotConfirmed) {
                self.begin(stage, journal, Step::Confirm { generation });
            } else {
                self.tell(stage);
                self.rest(stage);
            }
            return false;
        }
        if stage.is_planted(Planted::ToldBeforeDurable) {
            self.tell(stage);
        }
        let batch = Rc::from(&self.output.batch[..]);
        self.begin(stage, journal, Step::Append { generation, sequence: self.next, batch });
        if stage.strikes(Fault::Kill, 150) {
            stage.struck(Fault::Kill, format!("server {server} while it appends"));
            return true;
        }
        false
    }

    fn after_durable(&mut self, stage: &mut Stage) -> bool {
        if stage.strikes(Fault::Kill, 150) {
            stage.struck(Fault::Kill, format!("server {} after its append, before it tells", self.index));
            return true;
        }
        self.tell(stage);
        if stage.chance.one_in(12) {
            self.show(stage);
        }
        self.rest(stage);
        false
    }

    /// What a turn decided is durable, or confirmed: it is told.
    fn tell(&mut self, stage: &mut Stage) {
        let grantor = self.grantor.as_ref().expect("a serving server has a grantor");
        let (server, generation, time) = (self.index as u32, self.generation, grantor.time());
        let incarnation = grantor.status().incarnation;
        let from = Actor::Server(self.index);
        for reply in self.output.replies.drain(..) {
            let (op, answer) = (reply.to, reply.answer);
            stage.note(Event::Told { op, server, generation, time, answer: answer.clone() });
            let Some(to) = self.asked.get(&op).copied() else { continue };
            if let Answer::Session(grant) = &answer {
                self.sessions.insert(grant.session, to);
                if !stage.sessions.contains(&grant.session) {
                    stage.sessions.push(grant.session);
                }
            }
            stage.send(from, to, Mail::Reply { op, answer, incarnation });
        }
        for notice in self.output.notices.drain(..) {
            if let Some(session) = notice.session
                && let Some(to) = self.sessions.get(&session)
            {
                stage.send(from, *to, Mail::Notice { session, event: notice.event });
            }
        }
    }

    /// Puts what the grantor shows of itself on the history. Nobody is shown what is decided and not on record yet.
    pub fn show(&self, stage: &mut Stage) {
        let Some(grantor) = self.grantor() else { return };
        if self.in_flight.as_ref().is_some_and(|in_flight| matches!(in_flight.step, Step::Append { .. })) {
            return;
        }
        let state = shows::state(grantor);
        stage.note(Event::Shows { server: self.index as u32, generation: self.generation, state });
    }

    /// When the next turn is due.
    fn rest(&mut self, stage: &mut Stage) {
        let grantor = self.grantor.as_ref().expect("a serving server has a grantor");
        let due = grantor.next_deadline().expect("it serves");
        let mut at = self.clock.real(due, stage.at).max(stage.at + 100);
        if !self.inbox.is_empty() {
            at = at.min(stage.at + 100);
        }
        self.wake_at(stage, at);
    }
}
