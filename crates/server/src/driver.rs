//! The turn: drain, step, append, and only then tell.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::command::{Answer, Command, Held, Input, Renew, Reply, Request, Which};
use leasehold_core::grantor::{Grantor, Output};
use leasehold_core::ids::SessionId;
use leasehold_core::limits::{OFFER_BYTES, STEP_BYTES, TURN_EVERY, TURN_NORMAL};
use leasehold_core::time::Now;
use leasehold_core::token::Number;
use leasehold_wire::{Asked, Code, v1};

use crate::api::Api;
use crate::clock;
use crate::desk::{Desk, Item, To};
use crate::inbox::{Ask, Body, Drained, Inbox, Renewals, Tell};
use crate::journal::file::SEGMENT_BYTES;
use crate::journal::{BATCH_BYTES, Confirmed, Fault, Journal, Kept, Room};
use crate::keep::Keeping;
use crate::meter::Meter;
use crate::watch::Watchers;

/// Runs a grantor over a journal, one turn after the other, on a thread of its own.
pub struct Driver<J> {
    grantor: Grantor,
    journal: J,
    inbox: Arc<Inbox>,
    desk: Desk,
    watchers: Arc<Watchers>,
    meter: Arc<Meter>,
    keeping: Arc<Keeping>,
    drained: Drained,
    output: Output,
    told: Vec<Tell>,
    /// What those who are still connected hear at the end.
    why: v1::Problem,
}

/// Why a driver stopped. Whatever was not told by then never will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Asked,
    /// Another writer has the journal (L7).
    Fenced,
    /// An operator wants another server to lead.
    SteppedDown,
    /// The journal failed (V3).
    Failed(Fault),
}

impl<J: Journal> Driver<J> {
    /// A driver for a grantor that serves already.
    pub fn new(grantor: Grantor, journal: J, api: &Api) -> Self {
        Self {
            grantor,
            journal,
            inbox: api.inbox.clone(),
            desk: Desk::new(api.inbox.clone()),
            watchers: api.watchers.clone(),
            meter: api.meter.clone(),
            keeping: api.keeping.clone(),
            drained: Drained::default(),
            output: Output::default(),
            told: Vec::new(),
            why: stopping("the server has failed; what was not answered may have happened or not"),
        }
    }

    /// Takes turns until it is stopped.
    pub async fn run(mut self) -> Stopped {
        let stopped = loop {
            match self.turn().await {
                Ok(true) => {}
                Ok(false) => break Stopped::Asked,
                Err(stopped) => break stopped,
            }
        };
        match stopped {
            Stopped::Asked => self.why = stopping("the server is being stopped; come back with the session's secret"),
            Stopped::Fenced => {
                self.why = v1::Problem::of(Code::NotLeader, "another server has taken the journal; ask that one");
            }
            Stopped::SteppedDown => {
                self.why = v1::Problem::of(Code::NotLeader, "this server steps down, and another leads; ask that one");
            }
            Stopped::Failed(_) => {}
        }
        stopped
    }

    /// One turn. While the journal syncs, inputs gather: the group commit is free.
    async fn turn(&mut self) -> Result<bool, Stopped> {
        if self.drained.is_empty() {
            self.inbox.wait(self.patience());
        }
        self.let_in();
        self.inbox.drain(&mut self.drained);
        let room = self.journal.room().map_err(Stopped::Failed)?;
        self.grantor.keep_to_endings(room != Room::Plenty);
        self.grantor.watched(self.watchers.any());
        let now = clock::now();
        let late = Meter::lateness(&self.grantor, now.instant);
        self.meter.clocks().turn(now, clock::now);
        let began = self.meter.turn_began(self.drained.count(), room != Room::Plenty);
        self.step_all(now);
        self.grantor.step(now, &Input::Tick);
        self.grantor.take_output(&mut self.output);
        self.keep().await?;
        self.tell();
        self.meter.turn_ended(began, late.max(self.grantor.overdue()));
        if self.output.step_down {
            return Err(Stopped::SteppedDown);
        }
        Ok(!(self.drained.stopping && self.drained.is_empty()))
    }

    /// How long nothing may happen before a turn is due anyway.
    fn patience(&self) -> Duration {
        let due = self.grantor.next_deadline().expect("a driver's grantor serves");
        Duration::from_nanos(due.0.saturating_sub(clock::now().instant.0))
    }

    /// After standing still, what was asked meanwhile still lies at the kernel's door, and whoever was told late is about to
    /// ask: they are let in before anything ends (L12). Ends that are left over from the last turn are no standing still.
    fn let_in(&self) {
        let due = self.grantor.next_deadline().expect("a driver's grantor serves").max(self.grantor.last_turn());
        let late = clock::now().instant.millis_since(due);
        if late > TURN_NORMAL - TURN_EVERY {
            std::thread::sleep(Duration::from_millis((late / 4).clamp(TURN_EVERY, LET_IN_MOST)));
        }
    }

    fn step_all(&mut self, now: Now) {
        let mut drained = std::mem::take(&mut self.drained);
        for held in drained.given_back.drain(..) {
            self.grantor.step(now, &Input::Asked(Request::tagged(NOBODY), Command::Release(held)));
        }
        drained.renewals.drain(..).for_each(|renewals| self.step_renewals(now, renewals));
        drained.first.drain(..).for_each(|ask| self.step_ask(now, ask));
        while self.grantor.to_record() < TURN_BYTES
            && let Some(ask) = drained.asks.pop_front()
        {
            self.step_ask(now, ask);
        }
        drained.left.drain(..).for_each(|(session, mark)| self.step_left(now, session, mark));
        // A look sees what this turn has decided, and is told when that is durable.
        let until = std::time::Instant::now() + LOOKING;
        while let Some(look) = drained.looks.pop_front() {
            self.told.push(look(&self.grantor));
            if std::time::Instant::now() > until {
                break;
            }
        }
        self.drained = drained;
    }

    fn step_left(&mut self, now: Now, session: SessionId, mark: u64) {
        // The mark may be another's by now.
        if self.desk.is_gone(mark) {
            let withdraw = Command::Withdraw { session, tag: mark };
            self.grantor.step(now, &Input::Asked(Request::tagged(NOBODY), withdraw));
        }
    }

    fn step_renewals(&mut self, now: Now, renewals: Renewals) {
        let numbers = renewals.leases.iter().map(|(_, number)| *number).collect();
        let tag = self.desk.many(renewals.to, renewals.number, numbers);
        for (lease, number) in renewals.leases {
            // Zero is no number; the first one is nobody's, and tells the same.
            let number = Number::new(number).unwrap_or(Number::FIRST);
            let held = Held { lease: Which::Id(lease), number, session: Some(renewals.session), holder: None };
            let renew = Command::Renew(Renew { held, ttl_ms: None, progress: None });
            self.grantor.step(now, &Input::Asked(Request::tagged(tag), renew));
        }
    }

    fn step_ask(&mut self, now: Now, ask: Ask) {
        let Ask { request, body, caller, to, seat, .. } = ask;
        let tag = self.desk.one(to, &request, body);
        if seat.is_some_and(|seat| !seat.take(tag)) {
            return self.desk.forget(tag);
        }
        let request = Request { tag, ..request };
        let body = self.desk.body(tag).expect("just entered");
        let refused = match body {
            Body::Open(open, secret) => {
                self.grantor.step(now, &Input::Asked(request, open.command(*secret)));
                None
            }
            Body::Resume(resume) => match resume.command() {
                Ok(command) => {
                    self.grantor.step(now, &Input::Asked(request, command));
                    None
                }
                Err(refusal) => Some(refusal),
            },
            Body::Ask(ask) => match Asked::read(ask, &caller) {
                Ok(asked) => {
                    self.grantor.step(now, &Input::Asked(request, asked.command()));
                    None
                }
                Err(refusal) => Some(refusal),
            },
        };
        if let Some(refusal) = refused {
            self.desk.tell(Reply { to: tag, answer: Answer::Refused(refusal) });
        }
    }

    /// Durable, or confirmed, before anybody is told. A full disk is waited out: nothing that was decided is lost.
    async fn keep(&mut self) -> Result<(), Stopped> {
        if self.output.batch.is_empty() {
            if self.output.replies.is_empty() && self.told.is_empty() {
                return Ok(());
            }
            let confirmed = tokio::select! {
                biased;
                confirmed = self.journal.confirm() => confirmed,
                fault = given_up(&self.inbox) => Err(fault),
            };
            return match confirmed {
                Ok(Confirmed::StillMine) => Ok(()),
                Ok(Confirmed::Fenced) => Err(Stopped::Fenced),
                Err(fault) => Err(Stopped::Failed(fault)),
            };
        }
        loop {
            let sequence = self.journal.next();
            let started = std::time::Instant::now();
            let kept = tokio::select! {
                biased;
                kept = self.journal.append(sequence, &self.output.batch) => kept,
                fault = given_up(&self.inbox) => Err(fault),
            };
            match kept {
                Ok(Kept::Durable) => {
                    self.meter.synced(self.output.batch.len(), started.elapsed());
                    self.keeping.appended(self.output.batch.len());
                    return Ok(());
                }
                Ok(Kept::Fenced) => return Err(Stopped::Fenced),
                // What was not kept was not told: whoever asks it to stop does not wait for room.
                Err(Fault::Full) if self.inbox.is_stopping() => return Err(Stopped::Failed(Fault::Full)),
                Err(Fault::Full) => {
                    self.meter.full();
                    std::thread::sleep(FULL_RETRY);
                }
                Err(fault) => return Err(Stopped::Failed(fault)),
            }
        }
    }

    fn tell(&mut self) {
        // Everything of this turn depends on the last batch, whether this turn made it or not (E1).
        let position = self.journal.next() - 1;
        self.desk.depends_on(position);
        self.meter.at(position);
        self.meter.refused().telling(&self.output.replies, |mark| self.desk.renews(mark));
        self.output.replies.drain(..).for_each(|reply| self.desk.tell(reply));
        self.watchers.tell(&self.output.notices, &self.grantor, position);
        for notice in self.output.notices.drain(..) {
            if let Some(session) = notice.session {
                self.desk.notify(session, notice.event);
            }
        }
        self.desk.ring();
        self.told.drain(..).for_each(|tell| tell(position));
    }
}

impl<J> Drop for Driver<J> {
    /// However it ends, nobody waits for it any more.
    fn drop(&mut self) {
        self.watchers.close();
        let (left, begun) = (self.inbox.close(), std::mem::take(&mut self.drained));
        let asks = [left.first, begun.first].into_iter().flatten().chain(left.asks).chain(begun.asks);
        for ask in asks {
            if let To::Stream(outbox, _) = ask.to {
                outbox.tell(Item::Goodbye(Box::new(self.why.clone())));
            }
        }
        self.desk.farewell(&self.why);
    }
}

/// Whoever asks a server to stop does not wait for a journal on other machines that does not answer. What was not kept was
/// not told.
async fn given_up(inbox: &Inbox) -> Fault {
    loop {
        tokio::time::sleep(GIVE_UP).await;
        if inbox.is_stopping() {
            tokio::time::sleep(GIVE_UP).await;
            return Fault::Failed { why: "it did not answer before the server had to stop".to_owned() };
        }
    }
}

fn stopping(message: &str) -> v1::Problem {
    v1::Problem::of(Code::Unavailable, message)
}

/// Bytes on record from which on a turn steps no further request. What a turn wants kept fits into what the journal has
/// ready, so that a full disk never stops a turn that was begun with room (V4).
const TURN_BYTES: usize = 2 << 20;
/// How long one turn looks; the other looks wait for the next.
const LOOKING: Duration = Duration::from_millis(5);
/// A mark under which nobody waits.
const NOBODY: u64 = u64::MAX;
/// The longest that a late turn waits for what was asked meanwhile, in milliseconds.
const LET_IN_MOST: u64 = 500;
/// How long a journal may take to answer once the server was asked to stop, and half of it at least.
const GIVE_UP: Duration = Duration::from_secs(3);
/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(100);

const _: () = assert!(TURN_BYTES < OFFER_BYTES, "requests leave room for offers");
const _: () = assert!(4 * (TURN_BYTES + OFFER_BYTES) as u64 <= SEGMENT_BYTES, "a turn fits into the reserve");
const _: () = assert!(TURN_BYTES + STEP_BYTES + OFFER_BYTES < BATCH_BYTES, "a journal takes every turn");
