//! A server: the real grantor on a simulated journal, turn by turn, which can be killed or paused at any effect.

mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use leasehold_core::access::{Caller, IdentityUsage};
use leasehold_core::command::{Answer, Input, ProvenTokens, Request};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor};
use leasehold_core::ids::SessionId;
use leasehold_core::journal_lineage::{Lineage, SeenBatch};
use leasehold_core::limits::{TURN_EVERY, TURN_NORMAL};
use leasehold_core::refusal::{Limit, Refusal};
use leasehold_core::token::{Token, plausible};

use crate::clock::{MS, SimClock, SimTime};
use crate::fault::Fault;
use crate::history::HistoryEvent;
use crate::impostor::{ImpostorAttempt, Impostors, proof_of, sender_of};
use crate::journal::SimJournal;
use crate::message::{Envelope, Message, SimActor};
use crate::mutants::PlantedFault;
use crate::reported_view;
use crate::request::SimRequest;
use crate::scheduler::{JournalOutcome, JournalStep, ScheduledEvent, Scheduler};

/// The journal step that a server waits for.
struct PendingStep {
    ticket: u64,
    step: JournalStep,
    resend: SimTime,
}

/// A simulated server.
pub struct SimServer {
    /// Index of the server.
    pub index: usize,
    /// Its clock.
    pub clock: SimClock,
    /// Number of starts, so that results of an earlier process do not reach a later one.
    pub boot: u32,
    /// Whether the process runs.
    pub up: bool,
    /// Time of its next start, if the process does not run.
    pub restart_at: SimTime,
    /// End of the current stall.
    pub stalled_until: SimTime,
    /// Whether it serves.
    pub serving: bool,
    /// Time of its last turn.
    pub last_turn_at: SimTime,
    grantor: Option<Grantor>,
    generation: u64,
    next: u64,
    queue: Vec<Envelope>,
    output: Output,
    in_flight: Option<PendingStep>,
    tickets: u64,
    wake: SimTime,
    backlog_absorbed: bool,
    /// Senders of requests by operation, and owners of sessions.
    requesters: BTreeMap<u64, SimActor>,
    sessions: BTreeMap<SessionId, SimActor>,
    /// The last batch of a shared journal that this server has seen; on its own disk.
    pub seen: Option<SeenBatch>,
    /// The openings of the journal that it leads.
    lineage: Lineage,
}

impl SimServer {
    /// Creates a server whose process does not run yet.
    pub fn new(index: usize, clock: SimClock) -> Self {
        Self {
            index,
            clock,
            boot: 0,
            up: false,
            restart_at: 0,
            stalled_until: 0,
            serving: false,
            last_turn_at: 0,
            grantor: None,
            generation: 0,
            next: 0,
            queue: Vec::new(),
            output: Output::default(),
            in_flight: None,
            tickets: 0,
            wake: 0,
            backlog_absorbed: false,
            requesters: BTreeMap::new(),
            sessions: BTreeMap::new(),
            seen: None,
            lineage: Lineage::starting_at(1),
        }
    }

    /// Whether it is opening the journal.
    pub const fn is_opening(&self) -> bool {
        self.up && !self.serving && self.in_flight.is_some()
    }

    /// The generation that it opened, or tried to open.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The serving grantor.
    pub fn grantor(&self) -> Option<&Grantor> {
        self.grantor.as_ref().filter(|_| self.serving)
    }

    /// Starts the process.
    pub fn start(&mut self) {
        self.boot += 1;
        self.up = true;
        self.serving = false;
        self.stalled_until = 0;
    }

    /// Stops the process; its memory is lost.
    pub fn stop(&mut self, scheduler: &mut Scheduler, restart_at: SimTime) {
        self.up = false;
        self.serving = false;
        self.grantor = None;
        self.queue.clear();
        self.in_flight = None;
        self.output = Output::default();
        self.requesters.clear();
        self.sessions.clear();
        self.restart_at = restart_at;
        self.wake_at(scheduler, restart_at);
    }

    /// Schedules a wake-up.
    pub fn wake_at(&mut self, scheduler: &mut Scheduler, at: SimTime) {
        let at = at.max(scheduler.now + 1);
        if self.wake <= scheduler.now || at < self.wake {
            self.wake = at;
            scheduler.schedule(at, ScheduledEvent::Wake(SimActor::Server(self.index)));
        }
    }

    /// Whether this wake-up is the scheduled one.
    pub const fn is_due(&self, at: SimTime) -> bool {
        self.wake <= at
    }

    /// Receives a request.
    pub fn receive(&mut self, scheduler: &mut Scheduler, envelope: Envelope) {
        if !self.up {
            return;
        }
        if !self.serving {
            let Envelope { op, tries, from, .. } = envelope;
            return scheduler.send(SimActor::Server(self.index), from, Message::NotServing { op, tries });
        }
        if matches!(envelope.request, SimRequest::Renew { .. } | SimRequest::RenewSession { .. }) {
            scheduler.record(HistoryEvent::Arrived {
                op: envelope.op,
                server: self.index as u32,
                generation: self.generation,
            });
        }
        if scheduler.is_planted(PlantedFault::StormDropped) && self.queue.len() > 3 {
            return;
        }
        self.queue.push(envelope);
        let at = scheduler.now + 200;
        self.wake_at(scheduler, at);
    }

    /// Opens the journal, which fences every earlier writer.
    pub fn open_journal(&mut self, scheduler: &mut Scheduler, journal: &mut SimJournal) {
        self.submit(scheduler, journal, JournalStep::Open);
    }

    fn submit(&mut self, scheduler: &mut Scheduler, journal: &mut SimJournal, step: JournalStep) {
        self.tickets += 1;
        self.in_flight =
            Some(PendingStep { ticket: self.tickets, step: step.clone(), resend: scheduler.now + 400 * MS });
        journal.submit(scheduler, self.index, self.boot, self.tickets, step);
        let at = scheduler.now + 401 * MS;
        self.wake_at(scheduler, at);
    }

    /// Runs what is due: resend a journal step, or take a turn. Returns whether the process must be killed.
    pub fn poll(&mut self, scheduler: &mut Scheduler, journal: &mut SimJournal) -> bool {
        if scheduler.now < self.stalled_until {
            let at = self.stalled_until;
            self.wake_at(scheduler, at);
            return false;
        }
        if let Some(in_flight) = &mut self.in_flight {
            // No reply. The store recognizes duplicates, so resending is harmless.
            if scheduler.now >= in_flight.resend {
                in_flight.resend = scheduler.now + 400 * MS;
                let (ticket, step) = (in_flight.ticket, in_flight.step.clone());
                journal.submit(scheduler, self.index, self.boot, ticket, step);
            }
            let at = in_flight.resend;
            self.wake_at(scheduler, at);
            return false;
        }
        if self.serving { self.turn(scheduler, journal) } else { false }
    }

    /// Handles the outcome of a journal step. Returns whether the process must stop.
    pub fn on_journal_outcome(
        &mut self,
        scheduler: &mut Scheduler,
        journal: &mut SimJournal,
        ticket: u64,
        outcome: JournalOutcome,
    ) -> bool {
        if self.in_flight.as_ref().is_none_or(|in_flight| in_flight.ticket != ticket) {
            return false;
        }
        match outcome {
            JournalOutcome::Opened { generation } => {
                self.in_flight = None;
                self.generation = generation;
                self.recover(scheduler, journal)
            }
            JournalOutcome::Durable => {
                self.remember_batch();
                self.in_flight = None;
                self.next += 1;
                if self.serving {
                    self.compare_with_journal(scheduler, journal);
                }
                if self.serving { self.after_durable(scheduler) } else { self.serve(scheduler) }
            }
            JournalOutcome::Confirmed => {
                self.in_flight = None;
                self.send_replies(scheduler);
                self.schedule_next_turn(scheduler);
                false
            }
            JournalOutcome::Full => {
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.resend = scheduler.now + 100 * MS;
                }
                let at = scheduler.now + 100 * MS;
                self.wake_at(scheduler, at);
                false
            }
            JournalOutcome::Fenced | JournalOutcome::Failed => true,
        }
    }

    /// One turn: drain the queue, read the clocks, step, tick; then append or confirm. Returns whether the process is killed in
    /// between.
    fn turn(&mut self, scheduler: &mut Scheduler, journal: &mut SimJournal) -> bool {
        let now = self.clock.now(scheduler.now);
        let grantor = self.grantor.as_mut().expect("a serving server has a grantor");
        let due = grantor.next_deadline().expect("it serves").max(grantor.last_turn());
        let late = now.instant.millis_since(due);
        if late > TURN_NORMAL - TURN_EVERY && !self.backlog_absorbed {
            // Requests that arrived during a stall are absorbed before any lease ends.
            self.backlog_absorbed = true;
            let at = scheduler.now + (late / 4).clamp(TURN_EVERY, 500) * MS;
            self.wake_at(scheduler, at);
            return false;
        }
        self.backlog_absorbed = false;
        let stalled_ms = now.instant.millis_since(grantor.last_turn()).saturating_sub(TURN_NORMAL);
        grantor.set_endings_only(journal.full && !scheduler.healed);
        let envelopes = std::mem::take(&mut self.queue);
        let mut impostors = scheduler.impostors.take();
        let (mut copies, mut turn_has_begun) = (Vec::new(), false);
        let mut limited = BTreeMap::new();
        for envelope in &envelopes {
            self.requesters.insert(envelope.op, envelope.from);
            let holder = match envelope.from {
                SimActor::Holder(index) => format!("holder-{index}"),
                _ => "operator".to_owned(),
            };
            let (status, presented) = (grantor.status(), envelope.presented);
            let ours = |presented: &Token| presented.incarnation == status.incarnation;
            if let Some(Token { number, .. }) = presented.filter(ours) {
                let (presented, generation) = (number.get(), self.generation);
                if presented > status.counter && plausible(number, now.wall) {
                    scheduler.record(HistoryEvent::NewerTokenPresented { presented, generation });
                } else if journal.was_reverted() {
                    scheduler.record(HistoryEvent::TokenPresented { presented, generation });
                }
            }
            let mut impersonate = |grantor: &mut Grantor, impostors: &mut Option<Impostors>| {
                let sent = impostors.as_mut().and_then(|impostors| impostors.send_copy(grantor, now, envelope));
                copies.extend(sent.map(|(tag, kind, effect)| (tag, kind, effect, envelope.request.clone())));
            };
            // The first step of a turn may record a stall, regardless of the sender.
            if turn_has_begun {
                impersonate(grantor, &mut impostors);
            }
            turn_has_begun = true;
            let principal = sender_of(envelope.from, &envelope.request);
            let caller = impostors.as_ref().map_or(Caller::LOCAL, |known| known.caller(&principal));
            if impostors.as_ref().is_some_and(|known| known.has_limits) {
                let has = grantor.identity_usage(&principal);
                // Only of the first of several copies, whose answer the others get.
                limited.entry(envelope.op).or_insert_with(|| (principal.clone(), has, envelope.request.clone()));
            }
            // Holders present what they were granted, with its seal.
            let proven = ProvenTokens { observed: true, presented: false };
            let request =
                Request { id: envelope.id, observed: presented, proven, caller, ..Request::tagged(envelope.op) };
            envelope.request.command(&holder, |command| {
                let request = Request { proof: proof_of(envelope.from, &command), ..request };
                grantor.step(now, &Input::Request(request, command));
            });
            impersonate(grantor, &mut impostors);
        }
        let mut operators = scheduler.operators.take();
        let drill = operators.as_mut().filter(|_| !scheduler.healed);
        let acted = drill.and_then(|operators| operators.act(grantor, now, self.generation));
        scheduler.operators = operators;
        grantor.step(now, &Input::Tick);
        grantor.take_output(&mut self.output);
        if let Some(acted) = acted {
            scheduler.record(HistoryEvent::OperatorActed(Box::new(acted.finish(&self.output))));
        }
        if let Some(known) = impostors.as_mut().filter(|known| known.has_limits) {
            report_limits(scheduler, known, grantor, &self.output, &limited);
        }
        scheduler.impostors = impostors;
        for (tag, kind, effect, request) in copies {
            let reply = self.output.replies.iter().find(|reply| reply.tag == tag).expect("every request is answered");
            let attempt = ImpostorAttempt { kind, request, answer: reply.answer.clone(), effect };
            scheduler.record(HistoryEvent::ImpostorAnswered(Box::new(attempt)));
        }
        self.output.replies.retain(|reply| !Impostors::is_copy(reply.tag));
        let time = grantor.time();
        self.last_turn_at = scheduler.now;
        let (server, generation) = (self.index as u32, self.generation);
        if stalled_ms > 0 {
            scheduler.record(HistoryEvent::Stalled { server, generation, time, ms: stalled_ms });
        }
        for reply in &self.output.replies {
            let answer = reply.answer.clone();
            scheduler.record(HistoryEvent::Decided { op: reply.tag, server, generation, time, answer });
        }
        if self.output.is_empty() {
            self.schedule_next_turn(scheduler);
            return false;
        }
        if scheduler.should_inject(Fault::ServerKill, 150) {
            scheduler.record_fault(Fault::ServerKill, format!("server {server} before it appends"));
            return true;
        }
        if self.output.batch.is_empty() {
            if journal.shared && !scheduler.is_planted(PlantedFault::LeadershipNotConfirmed) {
                self.submit(scheduler, journal, JournalStep::Confirm { generation });
            } else {
                self.send_replies(scheduler);
                self.schedule_next_turn(scheduler);
            }
            return false;
        }
        if scheduler.is_planted(PlantedFault::ReplyBeforeDurable) {
            self.send_replies(scheduler);
        }
        let batch = Rc::from(&self.output.batch[..]);
        self.submit(scheduler, journal, JournalStep::Append { generation, sequence: self.next, batch });
        if scheduler.should_inject(Fault::ServerKill, 150) {
            scheduler.record_fault(Fault::ServerKill, format!("server {server} while it appends"));
            return true;
        }
        false
    }

    fn after_durable(&mut self, scheduler: &mut Scheduler) -> bool {
        if scheduler.should_inject(Fault::ServerKill, 150) {
            scheduler
                .record_fault(Fault::ServerKill, format!("server {} after its append, before it replies", self.index));
            return true;
        }
        self.send_replies(scheduler);
        if scheduler.rng.one_in(12) {
            self.report_state(scheduler);
        }
        self.schedule_next_turn(scheduler);
        false
    }

    /// Sends the replies of a turn whose records are durable, or whose leadership is confirmed.
    fn send_replies(&mut self, scheduler: &mut Scheduler) {
        let grantor = self.grantor.as_ref().expect("a serving server has a grantor");
        let (server, generation, time) = (self.index as u32, self.generation, grantor.time());
        let incarnation = grantor.status().incarnation;
        let from = SimActor::Server(self.index);
        for reply in self.output.replies.drain(..) {
            let (op, answer) = (reply.tag, reply.answer);
            scheduler.record(HistoryEvent::ReplySent { op, server, generation, time, answer: answer.clone() });
            let Some(to) = self.requesters.get(&op).copied() else { continue };
            if let Answer::Session(grant) = &answer {
                self.sessions.insert(grant.session, to);
                if !scheduler.sessions.contains(&grant.session) {
                    scheduler.sessions.push(grant.session);
                }
            }
            scheduler.send(from, to, Message::Reply { op, answer, incarnation });
        }
        for notice in self.output.notices.drain(..) {
            if let Some(session) = notice.session
                && let Some(to) = self.sessions.get(&session)
            {
                scheduler.send(from, *to, Message::Notice { session, event: notice.event });
            }
        }
    }

    /// Records the grantor's reported state, unless some of it is decided but not durable yet.
    pub fn report_state(&self, scheduler: &mut Scheduler) {
        let Some(grantor) = self.grantor() else { return };
        if self.in_flight.as_ref().is_some_and(|in_flight| matches!(in_flight.step, JournalStep::Append { .. })) {
            return;
        }
        let state = reported_view::state(grantor);
        scheduler.record(HistoryEvent::StateReported { server: self.index as u32, generation: self.generation, state });
    }

    /// Approves what is still proposed, after its time. The run has ended: nothing of it is recorded.
    pub fn approve_late(&mut self, scheduler: &mut Scheduler) {
        let (Some(operators), Some(grantor)) = (&mut scheduler.operators, &mut self.grantor) else { return };
        let acts = operators.approve_late(grantor, self.clock.now(scheduler.now), self.generation);
        acts.into_iter().for_each(|act| scheduler.record(HistoryEvent::OperatorActed(Box::new(act))));
    }

    /// Schedules the next turn.
    fn schedule_next_turn(&mut self, scheduler: &mut Scheduler) {
        let grantor = self.grantor.as_ref().expect("a serving server has a grantor");
        let due = grantor.next_deadline().expect("it serves");
        let mut at = self.clock.real(due, scheduler.now).max(scheduler.now + 100);
        if !self.queue.is_empty() {
            at = at.min(scheduler.now + 100);
        }
        self.wake_at(scheduler, at);
    }
}

/// More bytes of state than any write here adds: its name, its key, its value and what is accounted for them.
const MOST_STATE_OF_A_PUT: u64 = 200;

/// Records what each identity has, counted again from a snapshot once in several turns, and the refusals by limits of identities.
fn report_limits(
    scheduler: &mut Scheduler,
    identities: &mut Impostors,
    grantor: &Grantor,
    output: &Output,
    requests: &BTreeMap<u64, (String, IdentityUsage, SimRequest)>,
) {
    if identities.recounts_now() {
        let recounted = RecoveredGrantor::from_snapshot(&grantor.snapshot(), 1).expect("a snapshot can be decoded");
        for (identity, has) in recounted.identity_usages() {
            let Some(limits) = identities.rights_of(identity).map(|rights| *rights.limits()) else { continue };
            if identities.reported.insert(identity.to_owned(), has) == Some(has) {
                continue;
            }
            scheduler.record(HistoryEvent::UsageReported { identity: identity.to_owned(), has, limits });
        }
    }
    let mut seen = BTreeSet::new();
    for reply in output.replies.iter().filter(|reply| seen.insert(reply.tag)) {
        let Answer::Refused(Refusal::Exhausted { limit, max, .. }) = &reply.answer else { continue };
        let Some((identity, has, request)) = requests.get(&reply.tag).filter(|_| limit.is_of_identity()) else {
            continue;
        };
        let is_renewal = matches!(request, SimRequest::Renew { .. } | SimRequest::RenewSession { .. });
        let has = match limit {
            Limit::IdentitySessions => has.sessions,
            Limit::IdentityKeys => has.keys,
            Limit::IdentityLeases => has.leases,
            Limit::IdentityCharters => has.charters,
            Limit::IdentityTargets => has.targets,
            Limit::IdentityMessages => has.messages,
            Limit::IdentityCacheGrants => has.cache_grants,
            Limit::IdentityStateBytes => has.state_bytes,
            _ => has.waiters,
        };
        let more = match request {
            SimRequest::AcquireAll { resources, .. } if *limit == Limit::IdentityLeases => resources.len() as u64,
            SimRequest::Put { .. } => MOST_STATE_OF_A_PUT,
            _ => 1,
        };
        let (op, identity, limit, max) = (reply.tag, identity.clone(), limit.word(), *max);
        scheduler.record(HistoryEvent::LimitReached { op, identity, limit, max, has, more, is_renewal });
    }
}
