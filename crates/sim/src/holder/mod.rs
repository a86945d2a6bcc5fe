//! A holder: the real renewal logic inside a simulated client that retries and gives up. It does not police itself.

mod actions;
mod message_handling;
mod pin_and_cache_actions;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::{Answer, RequestId};
use leasehold_core::holder::{ClockDrift, Renewal, RenewalAction, RenewalAttempt};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::{Number, Token};

use crate::clock::{MS, SimClock, SimTime};
use crate::fault::Fault;
use crate::history::HistoryEvent;
use crate::message::{Envelope, Message, SimActor};
use crate::mutants::PlantedFault;
use crate::request::{KnownLease, SimRequest};
use crate::scheduler::{ScheduledEvent, Scheduler};

/// What the validity of a holder's leases depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderMode {
    /// Their own ttl, without a session: no waits and no request ids.
    Plain,
    /// Their own ttl, with a session only for waits.
    WaitSession,
    /// The session.
    Session,
}

/// A request without a reply.
struct PendingRequest {
    request: SimRequest,
    id: Option<RequestId>,
    /// Time before it was first sent.
    sent: Instant,
    retry: Instant,
    tries: u32,
    /// Server that the request is sent to.
    to: usize,
    /// The server replied that it does not serve: any request may be retried at another one.
    not_served: bool,
    attempt: Option<RenewalAttempt>,
}

/// A lease as the holder knows it.
struct SimLease {
    known: KnownLease,
    token: Token,
    resource: &'static str,
    access: Access,
    ttl: u64,
    renewal: Renewal,
    claimed: bool,
    draining: bool,
    /// Number of acquires without a release.
    depth: u32,
    /// Sequence of its last write at a target that requires one.
    sequence: u64,
    /// Progress so far, and whether it has stopped.
    work: u64,
    stuck: bool,
}

impl SimLease {
    /// Target of its writes.
    fn target(&self) -> Option<usize> {
        crate::run_constants::EXCLUSIVE.iter().position(|name| *name == self.resource)
    }
}

/// A write that is sent later, whatever the holder knows by then.
struct LateWrite {
    at: SimTime,
    target: usize,
    text: String,
    sequence: u64,
    value: Option<u64>,
}

/// A simulated holder.
pub struct SimHolder {
    /// Index of the holder.
    pub index: usize,
    /// Its clock.
    pub clock: SimClock,
    /// Whether its clock is within the drift that the renewal logic allows.
    pub clock_ok: bool,
    /// Whether it writes only while it believes that it holds the lease.
    checks_belief: bool,
    mode: HolderMode,
    ttl: u64,
    server: usize,
    session: Option<SessionId>,
    session_renew: Instant,
    sequence: u64,
    pending: BTreeMap<u64, PendingRequest>,
    leases: Vec<SimLease>,
    /// Leases it reported as drained: it writes nothing more under them, whatever reply arrives.
    drained: BTreeSet<Number>,
    receipts: Vec<(u64, Number)>,
    newest_token: Option<Token>,
    /// Cached copies it may read, and its intent to write.
    copies: Vec<Number>,
    intent: Option<Number>,
    late: Vec<LateWrite>,
    /// Messages that arrived during a pause.
    inbox: Vec<Message>,
    /// End of the current pause.
    pub paused_until: SimTime,
    next_action: Instant,
    /// Whether it sends no new requests.
    pub quiet: bool,
    wake: SimTime,
}

impl SimHolder {
    /// Creates a holder from random numbers.
    pub fn new(scheduler: &mut Scheduler, index: usize) -> Self {
        let wild = scheduler.should_inject(Fault::HolderDrift, 2);
        let rate =
            if wild { scheduler.rng.between(500_000, 2_000_000) } else { scheduler.rng.between(990_000, 1_010_000) };
        let own = scheduler.rng.below(10_000_000_000);
        let mode = *scheduler.rng.pick(&[
            HolderMode::Plain,
            HolderMode::WaitSession,
            HolderMode::Session,
            HolderMode::Session,
        ]);
        let ttl = *scheduler.rng.pick(&[500, 1_000, 2_000, 3_000]);
        Self {
            index,
            clock: SimClock::new(own, rate),
            clock_ok: !wild,
            checks_belief: scheduler.rng.below(10) < 7,
            mode,
            ttl,
            server: 0,
            session: None,
            session_renew: Instant(0),
            sequence: 0,
            pending: BTreeMap::new(),
            leases: Vec::new(),
            drained: BTreeSet::new(),
            receipts: Vec::new(),
            newest_token: None,
            copies: Vec::new(),
            intent: None,
            late: Vec::new(),
            inbox: Vec::new(),
            paused_until: 0,
            next_action: Instant(own * 1_000),
            quiet: false,
            wake: 0,
        }
    }

    fn actor(&self) -> SimActor {
        SimActor::Holder(self.index)
    }

    fn rate(&self, scheduler: &Scheduler) -> ClockDrift {
        if scheduler.is_planted(PlantedFault::TrustsClocks) {
            ClockDrift::from_ppm(0).expect("zero drift is valid")
        } else {
            ClockDrift::default()
        }
    }

    /// Pauses the process, or the whole machine with its clock.
    pub fn pause(&mut self, scheduler: &mut Scheduler, until: SimTime, with_clock: bool) {
        self.paused_until = self.paused_until.max(until);
        if with_clock {
            self.clock_ok = false;
            self.clock.pause(scheduler.now, until);
        }
        self.wake_at(scheduler, until);
    }

    /// Forgets everything, like a restarted process. Writes ready to be sent are still sent.
    pub fn restart(&mut self) {
        self.session = None;
        self.sequence = 0;
        self.pending.clear();
        self.leases.clear();
        self.drained.clear();
        self.receipts.clear();
        self.copies.clear();
        self.intent = None;
        self.inbox.clear();
    }

    /// Receives a message.
    pub fn receive(&mut self, scheduler: &mut Scheduler, message: Message) {
        if scheduler.now < self.paused_until {
            return self.inbox.push(message);
        }
        self.handle_message(scheduler, message);
        self.poll(scheduler);
    }

    fn wake_at(&mut self, scheduler: &mut Scheduler, at: SimTime) {
        let at = at.max(scheduler.now + 1);
        if self.wake <= scheduler.now || at < self.wake {
            self.wake = at;
            scheduler.schedule(at, ScheduledEvent::Wake(self.actor()));
        }
    }

    /// Whether this wake-up is the scheduled one.
    pub const fn is_due(&self, at: SimTime) -> bool {
        self.wake <= at
    }

    /// Runs everything that is due.
    pub fn poll(&mut self, scheduler: &mut Scheduler) {
        if scheduler.now < self.paused_until {
            let at = self.paused_until;
            return self.wake_at(scheduler, at);
        }
        // Writes that were prepared before the pause go out first: the holder checked, and does not know that time has passed.
        self.send_late(scheduler);
        for message in std::mem::take(&mut self.inbox) {
            self.handle_message(scheduler, message);
        }
        let now = self.clock.instant(scheduler.now);
        let mut next = now.plus_millis(500);
        self.poll_renewals(scheduler, now, &mut next);
        self.renew_session(scheduler, now, &mut next);
        self.retry(scheduler, now, &mut next);
        if now >= self.next_action && !self.quiet {
            self.act(scheduler, now);
            self.next_action = now.plus_millis(scheduler.rng.between(15, 350));
        }
        if scheduler.now < self.paused_until {
            return;
        }
        let next = if self.quiet { next } else { next.min(self.next_action) };
        let late = self.late.iter().map(|late| late.at).min().unwrap_or(u64::MAX);
        let at = self.clock.real(next, scheduler.now).min(late);
        self.wake_at(scheduler, at);
    }

    fn send_late(&mut self, scheduler: &mut Scheduler) {
        let mut remaining = Vec::new();
        for late in std::mem::take(&mut self.late) {
            if late.at > scheduler.now {
                remaining.push(late);
                continue;
            }
            let LateWrite { target, text: token, sequence, value, .. } = late;
            let (id, from) = (scheduler.next_op(), self.actor());
            scheduler.send(from, SimActor::Target(target), Message::Write { id, from, token, sequence, value });
        }
        self.late = remaining;
    }

    fn poll_renewals(&mut self, scheduler: &mut Scheduler, now: Instant, next: &mut Instant) {
        let mut lost = Vec::new();
        let mut sends = Vec::new();
        let (actor, clock_ok) = (self.actor().index() as u32, self.clock_ok);
        for (index, entry) in self.leases.iter_mut().enumerate() {
            loop {
                match entry.renewal.poll(now, scheduler.rng.draw()) {
                    RenewalAction::Suspend | RenewalAction::Resume(_) | RenewalAction::Rotated(_) => {}
                    RenewalAction::Drain { .. } => entry.draining = true,
                    RenewalAction::Send(attempt) => {
                        let progress = entry.report_progress(&mut scheduler.rng);
                        sends.push((SimRequest::Renew { held: entry.known, progress }, attempt));
                    }
                    RenewalAction::Wait(until) => {
                        *next = (*next).min(until);
                        act_before_deadline(scheduler, entry, now, next, (actor, clock_ok));
                        break;
                    }
                    RenewalAction::Lost(_) => {
                        lost.push(index);
                        break;
                    }
                }
            }
        }
        for (request, attempt) in sends {
            self.request_with_attempt(scheduler, request, Some(attempt));
        }
        for index in lost.into_iter().rev() {
            let entry = self.leases.remove(index);
            self.maybe_write_late(scheduler, &entry);
        }
    }

    /// After the end of a lease, sends a prepared write much later, in some runs.
    fn maybe_write_late(&mut self, scheduler: &mut Scheduler, entry: &SimLease) {
        if let Some(target) = entry.target()
            && scheduler.should_inject(Fault::LateWrite, 3)
        {
            scheduler.record_fault(
                Fault::LateWrite,
                format!("holder {} will write under {}", self.index, entry.known.number),
            );
            let at = scheduler.now + scheduler.rng.between(MS, 8_000 * MS);
            let (text, sequence) = (entry.token.to_string(), entry.sequence + 1);
            self.late.push(LateWrite { at, target, text, sequence, value: Some(scheduler.next_op()) });
        }
    }

    fn renew_session(&mut self, scheduler: &mut Scheduler, now: Instant, next: &mut Instant) {
        let Some(session) = self.session else { return };
        if now >= self.session_renew {
            self.session_renew = now.plus_millis(self.ttl / 4);
            self.request_with_attempt(scheduler, SimRequest::RenewSession { session }, None);
        }
        *next = (*next).min(self.session_renew);
    }

    fn retry(&mut self, scheduler: &mut Scheduler, now: Instant, next: &mut Instant) {
        let due: Vec<u64> = self.pending.iter().filter(|(_, p)| p.retry <= now).map(|(op, _)| *op).collect();
        for op in due {
            let pending = self.pending.get_mut(&op).expect("just listed");
            pending.tries += 1;
            let once = matches!(pending.request, SimRequest::Renew { .. } | SimRequest::RenewSession { .. });
            let may = std::mem::take(&mut pending.not_served) || pending.id.is_some() || !pending.request.creates();
            if (once && pending.tries > 3) || !may || (pending.id.is_none() && pending.tries > 6) {
                // The outcome is unknown and stays so.
                let given_up = self.pending.remove(&op).expect("just listed");
                scheduler.record(HistoryEvent::Abandoned { op, reason: "time" });
                if scheduler.is_planted(PlantedFault::SilenceIsRefusal) && given_up.request.creates() {
                    let (actor, answer) = (self.actor().index() as u32, Answer::Refused(Refusal::Timeout));
                    scheduler.record(HistoryEvent::ReplyReceived { op, actor, answer });
                }
                continue;
            }
            pending.retry = now.plus_millis(300);
            pending.to += 1;
            if scheduler.is_planted(PlantedFault::RetryIsNew)
                && let Some(id) = &mut pending.id
            {
                self.sequence += 1;
                id.sequence = self.sequence;
            }
            self.send_request(scheduler, op);
        }
        if let Some(retry) = self.pending.values().map(|pending| pending.retry).min() {
            *next = (*next).min(retry);
        }
    }

    /// Sends a request.
    fn request(&mut self, scheduler: &mut Scheduler, request: SimRequest) {
        self.request_with_attempt(scheduler, request, None);
    }

    fn request_with_attempt(
        &mut self,
        scheduler: &mut Scheduler,
        request: SimRequest,
        attempt: Option<RenewalAttempt>,
    ) {
        let op = scheduler.next_op();
        scheduler.record(HistoryEvent::Requested { op, actor: self.actor().index() as u32, request: request.clone() });
        let plain = matches!(
            request,
            SimRequest::Open { .. }
                | SimRequest::Renew { .. }
                | SimRequest::RenewSession { .. }
                | SimRequest::Confirm { .. }
                | SimRequest::Close { .. }
                | SimRequest::Resume { .. }
                | SimRequest::ObserveToken
        );
        let id = self.session.filter(|_| !plain).map(|session| {
            self.sequence += 1;
            let waits = self.pending.values().filter_map(|pending| pending.id).filter(|id| id.session == session);
            let lowest = waits.map(|id| id.sequence).min().unwrap_or(self.sequence);
            RequestId { session, sequence: self.sequence, lowest, digest: op }
        });
        let sent = attempt.map_or(self.clock.instant(scheduler.now), |attempt| attempt.sent());
        let retry = self.clock.instant(scheduler.now).plus_millis(scheduler.rng.between(150, 600));
        self.pending.insert(
            op,
            PendingRequest { request, id, sent, retry, tries: 0, to: self.server, not_served: false, attempt },
        );
        self.send_request(scheduler, op);
    }

    fn send_request(&self, scheduler: &mut Scheduler, op: u64) {
        let Some(pending) = self.pending.get(&op) else { return };
        let envelope = Envelope {
            op,
            tries: pending.tries,
            from: self.actor(),
            request: pending.request.clone(),
            id: pending.id,
            presented: self.newest_token.filter(|_| !scheduler.hides_tokens),
        };
        let to = SimActor::Server(pending.to % scheduler.servers);
        scheduler.send(self.actor(), to, Message::Request(Box::new(envelope)));
    }
}

/// Acts once more just before its own deadline, like a holder that starts at the last moment.
fn act_before_deadline(
    scheduler: &mut Scheduler,
    entry: &SimLease,
    now: Instant,
    next: &mut Instant,
    (actor, clock_ok): (u32, bool),
) {
    let last = Instant(entry.renewal.deadline().earliest.0.saturating_sub(2_000_000));
    if now < last {
        *next = (*next).min(last);
    } else if entry.target().is_some() && entry.renewal.may_act(now) {
        scheduler.record(HistoryEvent::HolderActed { actor, number: entry.known.number, clock_ok });
    }
}
