//! The turn: drain, step, append, and only then tell.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::command::{Answer, Command, Held, Input, Renew, Reply, Request, Which};
use leasehold_core::grantor::{Grantor, Output};
use leasehold_core::limits::{TURN_EVERY, TURN_NORMAL};
use leasehold_core::time::Now;
use leasehold_core::token::Number;
use leasehold_wire::Asked;

use crate::api::Api;
use crate::clock;
use crate::desk::Desk;
use crate::inbox::{Ask, Body, Drained, Inbox, Look, Renewals, Tell};
use crate::journal::{Confirmed, Fault, Journal, Kept, Room};
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
}

/// Why a driver stopped. Whatever was not told by then never will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Asked,
    /// Another writer has the journal (L7).
    Fenced,
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
            desk: Desk::default(),
            watchers: api.watchers.clone(),
            meter: api.meter.clone(),
            keeping: api.keeping.clone(),
            drained: Drained::default(),
            output: Output::default(),
            told: Vec::new(),
        }
    }

    /// Takes turns until it is stopped.
    pub async fn run(mut self) -> Stopped {
        loop {
            match self.turn().await {
                Ok(true) => {}
                Ok(false) => return Stopped::Asked,
                Err(stopped) => return stopped,
            }
        }
    }

    /// One turn. While the journal syncs, inputs gather: the group commit is free.
    async fn turn(&mut self) -> Result<bool, Stopped> {
        self.inbox.wait(self.patience());
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
        Ok(!self.drained.stopping)
    }

    /// How long nothing may happen before a turn is due anyway.
    fn patience(&self) -> Duration {
        let due = self.grantor.next_deadline().expect("a driver's grantor serves");
        Duration::from_nanos(due.0.saturating_sub(clock::now().instant.0))
    }

    /// After standing still, what was asked meanwhile still lies at the kernel's door, and whoever was told late is about to
    /// ask: they are let in before anything ends (L12).
    fn let_in(&self) {
        let late = Meter::lateness(&self.grantor, clock::now().instant);
        if late > TURN_NORMAL - TURN_EVERY {
            std::thread::sleep(Duration::from_millis((late / 4).clamp(TURN_EVERY, LET_IN_MOST)));
        }
    }

    fn step_all(&mut self, now: Now) {
        let mut drained = std::mem::take(&mut self.drained);
        drained.renewals.drain(..).for_each(|renewals| self.step_renewals(now, renewals));
        drained.asks.drain(..).for_each(|ask| self.step_ask(now, ask));
        // A look sees what this turn has decided, and is told when that is durable.
        drained.looks.drain(..).for_each(|look: Look| self.told.push(look(&self.grantor)));
        self.drained = drained;
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
        let Ask { request, body, caller, to } = ask;
        let tag = self.desk.one(to, body);
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
            return match self.journal.confirm().await {
                Ok(Confirmed::StillMine) => Ok(()),
                Ok(Confirmed::Fenced) => Err(Stopped::Fenced),
                Err(fault) => Err(Stopped::Failed(fault)),
            };
        }
        loop {
            let sequence = self.journal.next();
            let started = std::time::Instant::now();
            match self.journal.append(sequence, &self.output.batch).await {
                Ok(Kept::Durable) => {
                    self.meter.synced(self.output.batch.len(), started.elapsed());
                    self.keeping.appended(self.output.batch.len());
                    return Ok(());
                }
                Ok(Kept::Fenced) => return Err(Stopped::Fenced),
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

/// The longest that a late turn waits for what was asked meanwhile, in milliseconds.
const LET_IN_MOST: u64 = 500;
/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(100);
