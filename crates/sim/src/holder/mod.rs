//! A holder: the real renewal logic with a client around it that asks, gives up, and never polices itself.

mod act;
mod mail;
mod more;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::{Answer, RequestId};
use leasehold_core::holder::{Action, Attempt, RateError, Renewal};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::{Number, Token};

use crate::ask::{Ask, Known};
use crate::clock::{At, Clock, MS};
use crate::fault::Fault;
use crate::history::Event;
use crate::planted::Planted;
use crate::stage::{Actor, Due, Letter, Mail, Stage};

/// How its leases live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By their own ttl, without a session: no waits and no request ids.
    Plain,
    /// By their own ttl, beside a session that only carries waits.
    Waits,
    /// With the session.
    Rides,
}

/// A request without an answer.
struct Pending {
    ask: Ask,
    id: Option<RequestId>,
    /// Before it was first sent.
    sent: Instant,
    retry: Instant,
    tries: u32,
    /// The server that is asked now.
    to: usize,
    /// Who was asked has not done it and said so: it may be asked for elsewhere, whatever it is.
    elsewhere: bool,
    attempt: Option<Attempt>,
}

/// What it holds, as far as it knows.
struct Hold {
    known: Known,
    token: Token,
    resource: &'static str,
    access: Access,
    ttl: u64,
    renewal: Renewal,
    claimed: bool,
    draining: bool,
    /// How often it was entered and not yet left.
    depth: u32,
    /// Its last write at a target that counts them.
    sequence: u64,
    /// How far its work is, and whether that moves.
    work: u64,
    stuck: bool,
}

impl Hold {
    /// The target that its writes go to.
    fn target(&self) -> Option<usize> {
        crate::ask::EXCLUSIVE.iter().position(|name| *name == self.resource)
    }
}

/// A write that is sent whatever its holder knows by then.
struct Late {
    at: At,
    target: usize,
    text: String,
    sequence: u64,
    value: Option<u64>,
}

/// One holder.
pub struct Holder {
    /// Which.
    pub index: usize,
    /// Its clock.
    pub clock: Clock,
    /// Its clock is within what the renewal logic reckons with.
    pub honest: bool,
    /// It writes only while it believes that it holds.
    careful: bool,
    mode: Mode,
    ttl: u64,
    server: usize,
    session: Option<SessionId>,
    session_renew: Instant,
    sequence: u64,
    pending: BTreeMap<u64, Pending>,
    holds: Vec<Hold>,
    /// What it said of that it has drained: it writes nothing more under these, whatever answer is still on its way.
    drained: BTreeSet<Number>,
    receipts: Vec<(u64, Number)>,
    seen: Option<Token>,
    /// Copies of the cached key that it may read from, and its intent to write it.
    copies: Vec<Number>,
    intent: Option<Number>,
    late: Vec<Late>,
    /// What arrived while it stood still.
    waiting: Vec<Mail>,
    /// Until when it stands still.
    pub paused: At,
    next_act: Instant,
    /// It asks for nothing new.
    pub quiet: bool,
    wake: At,
}

impl Holder {
    /// A holder as its seed makes it.
    pub fn new(stage: &mut Stage, index: usize) -> Self {
        let wild = stage.strikes(Fault::WildHolder, 2);
        let rate =
            if wild { stage.chance.between(500_000, 2_000_000) } else { stage.chance.between(990_000, 1_010_000) };
        let own = stage.chance.below(10_000_000_000);
        let mode = *stage.chance.pick(&[Mode::Plain, Mode::Waits, Mode::Rides, Mode::Rides]);
        let ttl = *stage.chance.pick(&[500, 1_000, 2_000, 3_000]);
        Self {
            index,
            clock: Clock::new(own, rate),
            honest: !wild,
            careful: stage.chance.below(10) < 7,
            mode,
            ttl,
            server: 0,
            session: None,
            session_renew: Instant(0),
            sequence: 0,
            pending: BTreeMap::new(),
            holds: Vec::new(),
            drained: BTreeSet::new(),
            receipts: Vec::new(),
            seen: None,
            copies: Vec::new(),
            intent: None,
            late: Vec::new(),
            waiting: Vec::new(),
            paused: 0,
            next_act: Instant(own * 1_000),
            quiet: false,
            wake: 0,
        }
    }

    fn actor(&self) -> Actor {
        Actor::Holder(self.index)
    }

    fn rate(&self, stage: &Stage) -> RateError {
        if stage.is_planted(Planted::TrustsClocks) {
            RateError::from_ppm(0).expect("no error is one")
        } else {
            RateError::default()
        }
    }

    /// Stands still until then: the process, or the whole machine with its clock.
    pub fn pause(&mut self, stage: &mut Stage, until: At, with_clock: bool) {
        self.paused = self.paused.max(until);
        if with_clock {
            self.honest = false;
            self.clock.stand_still(stage.at, until);
        }
        self.wake_at(stage, until);
    }

    /// Forgets everything, like a process that was started again. What it had ready to send is on its way already.
    pub fn restart(&mut self) {
        self.session = None;
        self.sequence = 0;
        self.pending.clear();
        self.holds.clear();
        self.drained.clear();
        self.receipts.clear();
        self.copies.clear();
        self.intent = None;
        self.waiting.clear();
    }

    /// Something arrives.
    pub fn receive(&mut self, stage: &mut Stage, mail: Mail) {
        if stage.at < self.paused {
            return self.waiting.push(mail);
        }
        self.read(stage, mail);
        self.look(stage);
    }

    fn wake_at(&mut self, stage: &mut Stage, at: At) {
        let at = at.max(stage.at + 1);
        if self.wake <= stage.at || at < self.wake {
            self.wake = at;
            stage.later(at, Due::Wake(self.actor()));
        }
    }

    /// Whether a wake is the one that it waits for.
    pub const fn is_due(&self, at: At) -> bool {
        self.wake <= at
    }

    /// The time has come to look at everything.
    pub fn look(&mut self, stage: &mut Stage) {
        if stage.at < self.paused {
            let at = self.paused;
            return self.wake_at(stage, at);
        }
        // What it was about to send when it was stopped goes out first: it checked, and it does not know that time passed.
        self.send_late(stage);
        for mail in std::mem::take(&mut self.waiting) {
            self.read(stage, mail);
        }
        let now = self.clock.instant(stage.at);
        let mut next = now.plus_millis(500);
        self.keep_renewing(stage, now, &mut next);
        self.keep_session(stage, now, &mut next);
        self.retry(stage, now, &mut next);
        if now >= self.next_act && !self.quiet {
            self.act(stage, now);
            self.next_act = now.plus_millis(stage.chance.between(15, 350));
        }
        if stage.at < self.paused {
            return;
        }
        let next = if self.quiet { next } else { next.min(self.next_act) };
        let late = self.late.iter().map(|late| late.at).min().unwrap_or(u64::MAX);
        let at = self.clock.real(next, stage.at).min(late);
        self.wake_at(stage, at);
    }

    fn send_late(&mut self, stage: &mut Stage) {
        let mut kept = Vec::new();
        for late in std::mem::take(&mut self.late) {
            if late.at > stage.at {
                kept.push(late);
                continue;
            }
            let Late { target, text: token, sequence, value, .. } = late;
            let (id, from) = (stage.op(), self.actor());
            stage.send(from, Actor::Target(target), Mail::Write { id, from, token, sequence, value });
        }
        self.late = kept;
    }

    fn keep_renewing(&mut self, stage: &mut Stage, now: Instant, next: &mut Instant) {
        let mut lost = Vec::new();
        let mut sends = Vec::new();
        let (who, honest) = (self.actor().place() as u32, self.honest);
        for (place, hold) in self.holds.iter_mut().enumerate() {
            loop {
                match hold.renewal.poll(now, stage.chance.draw()) {
                    Action::Suspend | Action::Resume(_) | Action::Rotated(_) => {}
                    Action::Drain { .. } => hold.draining = true,
                    Action::Send(attempt) => {
                        let progress = hold.show_work(&mut stage.chance);
                        sends.push((Ask::Renew { held: hold.known, progress }, attempt));
                    }
                    Action::Wait(until) => {
                        *next = (*next).min(until);
                        last_look(stage, hold, now, next, (who, honest));
                        break;
                    }
                    Action::Lost(_) => {
                        lost.push(place);
                        break;
                    }
                }
            }
        }
        for (ask, attempt) in sends {
            self.ask_with(stage, ask, Some(attempt));
        }
        for place in lost.into_iter().rev() {
            let hold = self.holds.remove(place);
            self.linger(stage, &hold);
        }
    }

    /// A hold is over. What was ready to be written under it may still be sent, much later.
    fn linger(&mut self, stage: &mut Stage, hold: &Hold) {
        if let Some(target) = hold.target()
            && stage.strikes(Fault::LateWrite, 3)
        {
            stage.struck(Fault::LateWrite, format!("holder {} will write under {}", self.index, hold.known.number));
            let at = stage.at + stage.chance.between(MS, 8_000 * MS);
            let (text, sequence) = (hold.token.to_string(), hold.sequence + 1);
            self.late.push(Late { at, target, text, sequence, value: Some(stage.op()) });
        }
    }

    fn keep_session(&mut self, stage: &mut Stage, now: Instant, next: &mut Instant) {
        let Some(session) = self.session else { return };
        if now >= self.session_renew {
            self.session_renew = now.plus_millis(self.ttl / 4);
            self.ask_with(stage, Ask::RenewSession { session }, None);
        }
        *next = (*next).min(self.session_renew);
    }

    fn retry(&mut self, stage: &mut Stage, now: Instant, next: &mut Instant) {
        let due: Vec<u64> = self.pending.iter().filter(|(_, p)| p.retry <= now).map(|(op, _)| *op).collect();
        for op in due {
            let pending = self.pending.get_mut(&op).expect("just listed");
            pending.tries += 1;
            let once = matches!(pending.ask, Ask::Renew { .. } | Ask::RenewSession { .. });
            let may = std::mem::take(&mut pending.elsewhere) || pending.id.is_some() || !pending.ask.begins();
            if (once && pending.tries > 3) || !may || (pending.id.is_none() && pending.tries > 6) {
                // Whether it was done, nobody knows: the outcome is unknown, and stays so.
                let given_up = self.pending.remove(&op).expect("just listed");
                stage.note(Event::GaveUp { op, why: "time" });
                if stage.is_planted(Planted::SilenceIsNo) && given_up.ask.begins() {
                    let (who, answer) = (self.actor().place() as u32, Answer::Refused(Refusal::Timeout));
                    stage.note(Event::Answered { op, who, answer });
                }
                continue;
            }
            pending.retry = now.plus_millis(300);
            pending.to += 1;
            if stage.is_planted(Planted::RetryIsNew)
                && let Some(id) = &mut pending.id
            {
                self.sequence += 1;
                id.sequence = self.sequence;
            }
            self.post(stage, op);
        }
        if let Some(retry) = self.pending.values().map(|pending| pending.retry).min() {
            *next = (*next).min(retry);
        }
    }

    /// Asks for something.
    fn ask(&mut self, stage: &mut Stage, ask: Ask) {
        self.ask_with(stage, ask, None);
    }

    fn ask_with(&mut self, stage: &mut Stage, ask: Ask, attempt: Option<Attempt>) {
        let op = stage.op();
        stage.note(Event::Asked { op, who: self.actor().place() as u32, ask: ask.clone() });
        let plain = matches!(
            ask,
            Ask::Open { .. }
                | Ask::Renew { .. }
                | Ask::RenewSession { .. }
                | Ask::Confirm { .. }
                | Ask::Close { .. }
                | Ask::Resume { .. }
                | Ask::Show
        );
        let id = self.session.filter(|_| !plain).map(|session| {
            self.sequence += 1;
            let waits = self.pending.values().filter_map(|pending| pending.id).filter(|id| id.session == session);
            let lowest = waits.map(|id| id.sequence).min().unwrap_or(self.sequence);
            RequestId { session, sequence: self.sequence, lowest, digest: op }
        });
        let sent = attempt.map_or(self.clock.instant(stage.at), |attempt| attempt.sent());
        let retry = self.clock.instant(stage.at).plus_millis(stage.chance.between(150, 600));
        self.pending.insert(op, Pending { ask, id, sent, retry, tries: 0, to: self.server, elsewhere: false, attempt });
        self.post(stage, op);
    }

    fn post(&self, stage: &mut Stage, op: u64) {
        let Some(pending) = self.pending.get(&op) else { return };
        let letter = Letter {
            op,
            tries: pending.tries,
            from: self.actor(),
            ask: pending.ask.clone(),
            id: pending.id,
            shown: self.seen.filter(|_| !stage.shy),
        };
        let to = Actor::Server(pending.to % stage.servers);
        stage.send(self.actor(), to, Mail::Ask(Box::new(letter)));
    }
}

/// Just before its own deadline a holder looks once more, as somebody does who begins at the last moment.
fn last_look(stage: &mut Stage, hold: &Hold, now: Instant, next: &mut Instant, (who, honest): (u32, bool)) {
    let last = Instant(hold.renewal.deadline().earliest.0.saturating_sub(2_000_000));
    if now < last {
        *next = (*next).min(last);
    } else if hold.target().is_some() && hold.renewal.may_act(now) {
        stage.note(Event::Acts { who, number: hold.known.number, honest });
    }
}
