//! Who decides: the state machine. A step says what must be put on record and what may then be told; it does neither.

mod account;
mod acquire;
mod ages;
mod answers;
mod capacity;
mod cycles;
mod grant;
mod handoff;
mod held;
mod idle;
mod opening;
mod payloads;
mod priority;
mod reports;
mod requests;
mod revoke;
mod rollback;
mod sessions;
pub(crate) mod table;
mod tick;
mod view;
mod waiters;

pub use account::Change;
pub use opening::{About, Accountant, Corrupt, NotOpened, Opening, Recovered, Restoring, recover};
pub use table::Deadlock;
pub use table::ends::{Ended, Usage};
pub use view::{LeaseView, ResourceView, SessionView, Status, WaiterView};

use sha2::{Digest, Sha256};

use crate::command::{Answer, Command, Event, Input, Notice, Reply, Request};
use crate::coverage::{Checked, Place};
use crate::ids::SessionId;
use crate::lease::Rung;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Expired, Header, Record};
use crate::refusal::{Refusal, What};
use crate::time::{Instant, Millis, Now};
use crate::token::{Number, lift};
use cycles::Cycles;
use table::Table;

/// The lease protocol. It is driven by turns: `step` each input, `step` a [`Input::Tick`], then [`Grantor::take_output`];
/// make the batch durable, and only then let replies and notices leave.
pub struct Grantor {
    table: Table,
    rung: Rung,
    /// When grantor time began to run in this tenure, and from where. Absent until the opening is durable.
    serving: Option<(Instant, Millis)>,
    turn: Option<Turn>,
    last_turn: Instant,
    out: Output,
    cycles: Cycles,
    /// Parties that may have lost what they inherited, and those whose inherited priority must be looked at again.
    falls: std::collections::VecDeque<u32>,
    raises: std::collections::VecDeque<u32>,
    /// The journal has room for endings only (V4).
    only_endings: bool,
    /// Somebody wants to hear of everything.
    watched: bool,
    /// Whether waiters were told that a quarantine is over.
    quarantine_seen: bool,
    /// What fences counted since this tenure was opened; not on record, because a check must not cost a commit.
    checked: std::collections::BTreeMap<Box<str>, std::collections::BTreeMap<Place, Checked>>,
    /// Who waits for messages.
    idle: idle::Idle,
    /// Room for names that are read from the table while it changes.
    scratch: (String, String),
    due: Vec<u32>,
    /// Plain ends of a Tick that go on record together.
    expiring: Expired,
}

/// What all steps of one turn share.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The grantor stood still before this turn: what waited at its door is not punished (L12).
    late: bool,
}

/// What a turn wants done, in this order.
#[derive(Debug, Default)]
pub struct Output {
    /// Put this on record, as one; empty if there is nothing to record. Then a confirmation of authority is enough.
    pub batch: Vec<u8>,
    /// Then answer.
    pub replies: Vec<Reply>,
    /// And tell those who did not ask.
    pub notices: Vec<Notice>,
    /// And take no further turn: another server is to lead.
    pub step_down: bool,
}

impl Output {
    /// Whether nothing needs to be done.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.replies.is_empty() && self.notices.is_empty() && !self.step_down
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.replies.clear();
        self.notices.clear();
        self.step_down = false;
    }
}

impl Grantor {
    /// Takes one input. All inputs of a turn are stepped with the same `now`, sampled after they were drained.
    pub fn step(&mut self, now: Now, input: &Input<'_>) {
        assert!(self.serving.is_some(), "a grantor serves only after its opening is durable");
        self.begin_turn(now);
        match input {
            Input::Asked(request, command) => self.ask(request, command),
            Input::Tick => self.tick(),
        }
    }

    /// Ends the turn: what must be made durable, and what may then be told. The buffers of `into` are used again.
    pub fn take_output(&mut self, into: &mut Output) {
        self.turn = None;
        into.clear();
        std::mem::swap(&mut self.out, into);
        if !into.batch.is_empty() {
            self.table.chain = Sha256::digest(&into.batch).into();
            self.table.recorded = (self.table.time, self.table.wall);
        }
    }

    /// How many bytes this turn wants on record so far. A driver that takes no further input above a bound has batches
    /// that its journal can take even when its disk is full (V4).
    pub fn to_record(&self) -> usize {
        self.out.batch.len()
    }

    /// By when the driver should take the next turn, if nothing arrives before.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (anchor, base) = self.serving?;
        if self.has_more_to_do() {
            return Some(self.last_turn);
        }
        let idle = self.table.recorded.0.plus(limits::IDLE_RECORD_EVERY);
        let due = [self.table.due.leases.next(), self.table.due.sessions.next(), self.table.due.waiters.next()];
        let due = due.into_iter().chain([self.payload_deadline(), self.quarantine_deadline()]).flatten();
        let next = due.fold(idle, Millis::min);
        let next = anchor.plus_millis(base.until(next));
        // While somebody holds something, a turn comes in time to tell a stall from a pause.
        let soon = self.last_turn.plus_millis(limits::TURN_EVERY);
        Some(if self.is_quiet() { next } else { next.min(soon) })
    }

    /// The digest of the whole state: equal for equal records (V1).
    pub fn state_hash(&self) -> [u8; 32] {
        Sha256::digest(self.snapshot()).into()
    }

    /// The whole state as bytes. Taken between turns.
    pub fn snapshot(&self) -> Vec<u8> {
        assert!(self.turn.is_none(), "a snapshot is taken between turns");
        let mut out = Vec::new();
        self.table.encode(&mut out);
        out
    }

    fn begin_turn(&mut self, now: Now) {
        if self.turn.is_some() {
            return;
        }
        let (anchor, base) = self.serving.expect("a turn is taken while serving");
        let gap = now.instant.millis_since(self.last_turn);
        let stall = gap.saturating_sub(limits::TURN_NORMAL);
        self.turn = Some(Turn { late: stall > 0 });
        self.last_turn = self.last_turn.max(now.instant);
        self.table.time_is(base.plus(now.instant.millis_since(anchor)));
        self.table.wall = now.wall;
        if stall > 0 && !self.is_quiet() {
            self.record(&Record::Stalled { ms: stall });
        }
    }

    fn ask(&mut self, request: &Request, command: &Command<'_>) {
        self.settle_priorities(limits::EDGES_PER_STEP);
        let answer = self.decide(request, command).unwrap_or_else(Answer::Refused);
        self.reply(request.tag, answer);
    }

    fn decide(&mut self, request: &Request, command: &Command<'_>) -> Result<Answer, Refusal> {
        if let Some(shown) = &request.shown {
            self.shown(shown)?;
        }
        // Extending what is held is the hot path. It changes nothing on which a retry could act twice.
        match command {
            Command::Renew(renew) if request.id.is_none() || self.table.due.rotating == 0 => return self.renew(renew),
            Command::RenewSession { session, known } => return self.renew_session(*session, *known),
            Command::Confirm(held) => return self.confirm(held),
            Command::Show => return Ok(Answer::Done),
            _ => {}
        }
        let Some(id) = &request.id else {
            return self.perform(request, command);
        };
        if let Some(answer) = self.answered_before(request, id, command)? {
            return Ok(answer);
        }
        let answer = self.perform(request, command);
        self.remember_answer(id, &answer);
        answer
    }

    /// Tells the grantor whether anybody watches. Sessions hear what concerns them either way.
    pub fn watched(&mut self, yes: bool) {
        self.watched = yes;
    }

    /// Tells the grantor that its journal has room for endings only, or has enough again: what is held is renewed and ends
    /// as ever, and nothing new is begun (V4).
    pub fn keep_to_endings(&mut self, yes: bool) {
        self.only_endings = yes;
    }

    /// The typed command, once: here a caller's rights will be asked for.
    fn perform(&mut self, request: &Request, command: &Command<'_>) -> Result<Answer, Refusal> {
        if self.only_endings && !command.only_ends() && !mutants::on(Mutant::FullStillGrants) {
            return Err(Refusal::StorageFull);
        }
        match command {
            Command::OpenSession(open) => self.open_session(open),
            Command::ResumeSession { session, secret } => self.resume_session(*session, *secret),
            Command::Reconcile { session, leases, part } => self.reconcile(*session, leases, *part),
            Command::CloseSession { session } => self.close_session(*session),
            Command::Acquire(acquire) => self.acquire(request, acquire),
            Command::AcquireAll(acquire) => self.acquire_all(request, acquire),
            Command::Cancel { session, sequence } => self.cancel(*session, *sequence),
            Command::Withdraw { session, tag } => self.withdraw(*session, *tag),
            Command::Release(held) => self.release(held),
            Command::Rotate(held) => self.rotate(held),
            Command::Progress { held, at } => self.progress(held, *at),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Free { resource, why } => self.free(resource, why),
            Command::HandOff(handoff) => self.hand_off(handoff),
            Command::Drained(held) => self.drained(held),
            Command::SetCapacity { resource, units } => self.set_capacity(resource, *units),
            Command::ConfirmHold(held) => self.confirm_hold(held),
            Command::ResizeHold { held, units } => self.resize_hold(held, *units),
            Command::Veto { held, for_ms } => self.veto(held, *for_ms),
            Command::Pin { held, at } => self.pin(held, *at),
            Command::Collect { resource, below } => self.collect(resource, *below),
            Command::Put { held, key, bytes, expect } => self.put(held, key, *bytes, *expect),
            Command::Delivery(command) => self.delivery(command),
            Command::Cache(command) => self.cache(command),
            Command::SetCharter { prefix, charter, why } => self.set_charter(prefix, charter, why),
            Command::RemoveCharter { prefix, why } => self.remove_charter(prefix, why),
            Command::Report { cluster, reports } => self.report(*cluster, reports),
            Command::ForgetTarget { resource, target, why } => self.forget_target(resource, target, why),
            Command::WaiveQuarantine { why } => self.waive_quarantine(why),
            Command::StepDown => self.step_down(),
            // Where a charter raises the token on renewal, a renewal changes something: its retry is told the same.
            Command::Renew(renew) => self.renew(renew),
            Command::RenewSession { .. } | Command::Confirm(_) | Command::Show => {
                unreachable!("answered before")
            }
        }
    }

    /// Only where others stand by can one of them lead.
    fn step_down(&mut self) -> Result<Answer, Refusal> {
        if self.rung != Rung::Quorum {
            return Err(Refusal::NotFound(What::Standby));
        }
        self.out.step_down = true;
        Ok(Answer::Done)
    }

    /// Puts a fact on record and into the state: the two never part.
    fn record(&mut self, record: &Record<'_>) {
        if let Err(misfit) = self.table.apply(record) {
            panic!("a decided record does not fit the state: {misfit}: {record:?}");
        }
        if self.out.batch.is_empty() {
            let header = Header { chain: self.table.chain, time: self.table.time, wall: self.table.wall };
            header.encode(&mut self.out.batch);
        }
        let kept_back = mutants::on(Mutant::GrantNotRecorded) && matches!(record, Record::Granted(_));
        if !kept_back {
            record.encode(&mut self.out.batch);
        }
    }

    fn reply(&mut self, to: u64, answer: Answer) {
        self.out.replies.push(Reply { to, answer });
    }

    fn notify(&mut self, session: Option<SessionId>, event: Event) {
        self.out.notices.push(Notice { session, event });
    }

    fn now(&self) -> Millis {
        self.table.time
    }

    fn turn(&self) -> Turn {
        self.turn.expect("inside a turn")
    }

    /// The number of the next grant, lifted by the clock in every granting turn (T4).
    fn next_number(&self) -> Result<Number, Refusal> {
        let next = if mutants::on(Mutant::NumberNotLifted) {
            self.table.counter.checked_add(1).and_then(Number::new)
        } else if mutants::on(Mutant::CounterIgnored) {
            lift(0, self.table.wall)
        } else if mutants::on(Mutant::ExhaustionIgnored) {
            Some(lift(self.table.counter, self.table.wall).unwrap_or(Number::MAX))
        } else {
            lift(self.table.counter, self.table.wall)
        };
        next.ok_or(Refusal::TokensExhausted)
    }

    /// Whether nobody holds or waits for anything, so that standing still punishes nobody.
    fn is_quiet(&self) -> bool {
        self.table.leases.count() == 0 && self.table.sessions.count() == 0 && self.payload_deadline().is_none()
    }

    fn has_more_to_do(&self) -> bool {
        let may_grant = !self.only_endings && self.check_quarantine().is_ok() && self.next_number().is_ok();
        (may_grant && !self.table.due.offers.is_empty()) || self.cycles.has_work() || self.has_priorities_to_settle()
    }
}
