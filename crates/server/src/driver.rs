//! The turn: drain the queue, step the grantor, append to the journal, and only then reply.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::access::{NO_LEASE_PROOF, NO_SESSION_PROOF, NOT_OWNER, RequestOrigin};
use leasehold_core::command::{
    Answer, Command, Input, LeaseRef, LeaseSelector, ProvenTokens, Renew, Reply, Request, SessionEvent,
};
use leasehold_core::grantor::{ActAlone, Denial, Grantor, Output, RollbackEvidence, hide_names};
use leasehold_core::ids::SessionId;
use leasehold_core::limits::{OFFER_BYTES, STEP_BYTES, TURN_EVERY, TURN_NORMAL};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Now;
use leasehold_core::token::Number;
use leasehold_wire::{Code, DecodedCommand, v1};

use crate::access::{AccessControl, AccessRules, DenialLog, UnissuedNumber};
use crate::api::Api;
use crate::clock;
use crate::identity::Identity;
use crate::journal::file::SEGMENT_BYTES;
use crate::journal::{AppendOutcome, BATCH_BYTES, DiskSpace, Journal, JournalError, WriterStatus};
use crate::metrics::{DenialReason, Metrics};
use crate::otlp::SpanQueue;
use crate::pending_replies::PendingReplies;
use crate::queue_waits::QueueWaits;
use crate::request::{
    Outgoing, QueuedRequest, RaisedToken, RenewalBatch, ReplyTo, ReplyTokens, RequestPayload, SeenToken, StampTargets,
};
use crate::request_queue::{QueryReply, RequestQueue, TurnInputs};
use crate::sealing::TokenSealer;
use crate::snapshotter::SnapshotHandle;
use crate::watch::Watchers;

/// Runs a grantor over a journal, turn by turn, on a thread of its own.
pub struct Driver<J> {
    grantor: Grantor,
    journal: J,
    queue: Arc<RequestQueue>,
    pending: PendingReplies,
    watchers: Arc<Watchers>,
    queue_waits: Arc<QueueWaits>,
    metrics: Arc<Metrics>,
    snapshots: Arc<SnapshotHandle>,
    access: Arc<AccessControl>,
    /// The access rules of this turn.
    rules: Arc<AccessRules>,
    /// Whether replies need the targets of leases.
    sealer: Arc<TokenSealer>,
    denials: Arc<DenialLog>,
    unproven_tokens: DenialLog,
    repeated_reports: DenialLog,
    inputs: TurnInputs,
    output: Output,
    query_replies: Vec<QueryReply>,
    /// Where the holds that ended go, if spans are exported.
    spans: Option<SpanQueue>,
    /// The reason that open connections receive at the end.
    close_reason: v1::Problem,
}

/// The reason for the end of a driver. A reply that was not sent by then is never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A shutdown was requested.
    Requested,
    /// Another server owns the journal (L7).
    Fenced,
    /// An operator requested that another server leads.
    SteppedDown,
    /// The journal failed (V3).
    Failed(JournalError),
}

impl<J: Journal> Driver<J> {
    /// A driver for a grantor that serves already.
    pub fn new(grantor: Grantor, journal: J, api: &Api) -> Self {
        Self {
            grantor,
            journal,
            queue: api.queue.clone(),
            pending: PendingReplies::new(api.queue.clone()),
            watchers: api.watchers.clone(),
            queue_waits: api.queue_waits.clone(),
            metrics: api.metrics.clone(),
            snapshots: api.snapshots.clone(),
            access: api.access.clone(),
            rules: api.access.rules(),
            sealer: api.sealer.clone(),
            denials: api.denials.clone(),
            unproven_tokens: DenialLog::default(),
            repeated_reports: DenialLog::default(),
            inputs: TurnInputs::default(),
            output: Output::default(),
            query_replies: Vec::new(),
            spans: None,
            close_reason: v1::Problem::of(
                Code::Unavailable,
                "the server has failed; the outcome of requests without a reply is unknown",
            ),
        }
    }

    /// Exports a span for each hold that ends from now on.
    pub fn with_spans(mut self, spans: SpanQueue) -> Self {
        self.grantor.set_holds_collected(true);
        self.spans = Some(spans);
        self
    }

    /// Runs turns until the driver stops.
    pub async fn run(mut self) -> StopReason {
        let reason = loop {
            match self.turn().await {
                Ok(true) => {}
                Ok(false) => break StopReason::Requested,
                Err(reason) => break reason,
            }
        };
        if matches!(reason, StopReason::Requested | StopReason::SteppedDown) {
            self.journal.close();
        }
        let (code, message) = match reason {
            StopReason::Requested => {
                (Code::Unavailable, "the server is shutting down; reconnect and resume the session")
            }
            StopReason::Fenced => {
                (Code::NotLeader, "another server has taken over the journal; connect to that server")
            }
            StopReason::SteppedDown => (Code::NotLeader, "the server steps down; connect to the new leader"),
            StopReason::Failed(_) => return reason,
        };
        self.close_reason = v1::Problem::of(code, message);
        reason
    }

    /// One turn. Inputs gather while the journal syncs, so that group commit costs nothing.
    async fn turn(&mut self) -> Result<bool, StopReason> {
        if self.inputs.is_empty() {
            self.queue.wait(self.time_to_deadline());
        }
        self.absorb_backlog();
        self.queue.drain(&mut self.inputs);
        // After the drain, so that no request is judged by rules that were replaced before it arrived (A10).
        self.rules = self.access.rules();
        let space = self.journal.disk_space().map_err(StopReason::Failed)?;
        let is_full = space != DiskSpace::Plenty;
        self.grantor.set_endings_only(is_full);
        self.grantor.set_watched(self.watchers.any());
        let now = clock::now();
        let late = Metrics::lateness(&self.grantor, now.instant);
        self.metrics.clocks().turn(now, clock::now);
        let timer = self.metrics.turn_started(self.inputs.count(), is_full);
        self.step_all(now);
        self.grantor.step(now, &Input::Tick);
        self.grantor.take_output(&mut self.output);
        self.persist().await?;
        self.reply();
        self.metrics.turn_ended(timer, late.max(self.grantor.overdue()));
        if self.output.step_down {
            return Err(StopReason::SteppedDown);
        }
        Ok(!(self.inputs.stopping && self.inputs.is_empty()))
    }

    /// Time until a turn is due without any input.
    fn time_to_deadline(&self) -> Duration {
        let due = self.grantor.next_deadline().expect("a driver's grantor serves");
        Duration::from_nanos(due.0.saturating_sub(clock::now().instant.0))
    }

    /// After a stall, renewals are still in the kernel's buffers, and holders that received a late reply are about to send more.
    /// This waits for them, so that they are queued before any lease ends (L12). Ends left over from the last turn are no stall.
    fn absorb_backlog(&self) {
        let due = self.grantor.next_deadline().expect("a driver's grantor serves").max(self.grantor.last_turn());
        let late = clock::now().instant.millis_since(due);
        if late > TURN_NORMAL - TURN_EVERY {
            std::thread::sleep(Duration::from_millis((late / 4).clamp(TURN_EVERY, MAX_ABSORB_MS)));
        }
    }

    fn step_all(&mut self, now: Now) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for lease in inputs.cancellations.undelivered_grants.drain(..) {
            self.grantor.step(now, &Input::Request(Request::tagged(NO_SLOT), Command::Release(lease)));
        }
        inputs.renewals.drain(..).for_each(|renewals| self.step_renewals(now, renewals));
        inputs.priority.drain(..).for_each(|request| self.step_request(now, request));
        while self.grantor.pending_bytes() < TURN_BYTES
            && let Some(request) = inputs.requests.pop_front()
        {
            self.step_request(now, request);
        }
        inputs
            .cancellations
            .abandoned_waits
            .drain(..)
            .for_each(|(session, slot)| self.step_abandoned(now, session, slot));
        // A query sees what this turn decides; its result is sent when that is durable.
        let until = std::time::Instant::now() + MAX_QUERY_TIME;
        while let Some(query) = inputs.queries.pop_front() {
            self.query_replies.push(query(&self.grantor));
            if std::time::Instant::now() > until {
                break;
            }
        }
        self.inputs = inputs;
    }

    fn step_abandoned(&mut self, now: Now, session: SessionId, slot: u64) {
        // Another request may use the slot by now.
        if self.pending.is_disconnected(slot) {
            let withdraw = Command::Withdraw { session, tag: slot };
            self.grantor.step(now, &Input::Request(Request::tagged(NO_SLOT), withdraw));
        }
    }

    fn step_renewals(&mut self, now: Now, renewals: RenewalBatch) {
        let before = self.grantor.rollback_evidence();
        let (caller, origin) = (self.rules.caller(&renewals.identity), renewals.identity.origin());
        let proof = renewals.proof;
        let tag = self.pending.register_renewals(&renewals);
        for (lease, number) in renewals.leases {
            // Zero is not a token number; the first number is never current either, so the reply is the same.
            let number = Number::new(number).unwrap_or(Number::FIRST);
            let held =
                LeaseRef { selector: LeaseSelector::Id(lease), number, session: Some(renewals.session), holder: None };
            let renew = Command::Renew(Renew { lease: held, ttl_ms: None, progress: None });
            let request = Request { caller, proof, origin, ..Request::tagged(tag) };
            self.grantor.step(now, &Input::Request(request, renew));
        }
        // Apart from the renewals, because an implausible token must not refuse them.
        if let Some(SeenToken { token, proven }) = renewals.seen {
            let proven = ProvenTokens { observed: proven, presented: false };
            let request = Request { observed: Some(token), proven, caller, origin, ..Request::tagged(NO_SLOT) };
            self.grantor.step(now, &Input::Request(request, Command::ObserveToken));
        }
        self.report_evidence(before, &renewals.identity);
    }

    fn step_request(&mut self, now: Now, queued: QueuedRequest) {
        let QueuedRequest { request, body, caller, to, caller_state, identity, alone, arrived, .. } = queued;
        let before = self.grantor.rollback_evidence();
        let tag = self.pending.register(to, &request, body, identity.clone(), arrived);
        if caller_state.is_some_and(|state| !state.register(tag)) {
            return self.pending.discard(tag);
        }
        let (caller_rights, trace) = (self.rules.caller(&identity), request.origin.trace);
        let origin = RequestOrigin { trace, ..identity.origin() };
        let request = Request { tag, caller: caller_rights, origin, alone: alone.as_deref(), ..request };
        let body = self.pending.body(tag).expect("just registered");
        let refused = match body {
            RequestPayload::Open(open, secret) => {
                self.grantor.step(now, &Input::Request(request, open.command(*secret)));
                None
            }
            RequestPayload::OpenKey(key, None) => {
                let open = Command::OpenKeySession { key: *key, command: None };
                self.grantor.step(now, &Input::Request(request, open));
                None
            }
            RequestPayload::OpenKey(key, Some(operation)) => match DecodedCommand::decode(operation, &caller) {
                Ok(command) => {
                    let open = Command::OpenKeySession { key: *key, command: Some(&command.command()) };
                    self.grantor.step(now, &Input::Request(request, open));
                    None
                }
                Err(refusal) => Some(refusal),
            },
            RequestPayload::Resume(session, secret) => {
                let resume = Command::ResumeSession { session: *session, secret: *secret };
                self.grantor.step(now, &Input::Request(request, resume));
                None
            }
            RequestPayload::Operation(operation) => match DecodedCommand::decode(operation, &caller) {
                Ok(command) => {
                    let (mut request, mut command) = (request, command.command());
                    if let Command::Approve { proposal, proposer, .. } = &mut command {
                        // The identity that proposed it must still have the right to do it.
                        let principal = self.grantor.proposer_of(*proposal);
                        *proposer = principal.map(|principal| self.rules.rights_of(principal));
                        request.origin.proposal = Some(*proposal);
                    }
                    self.grantor.step(now, &Input::Request(request, command));
                    None
                }
                Err(refusal) => Some(refusal),
            },
        };
        if let Some(refusal) = refused {
            self.pending.deliver(Reply { tag, answer: Answer::Refused(refusal) });
        }
        self.report_evidence(before, &identity);
    }

    /// Logs and counts a presented token that this journal never issued (T9). Without access rules it may be forged, and with them it
    /// may have had no effect (A9), so the caller is named.
    fn report_evidence(&self, before: RollbackEvidence, identity: &Identity) {
        let evidence = self.grantor.rollback_evidence();
        if evidence == before {
            return;
        }
        let token_number = evidence.last.map_or(0, Number::get);
        let (proofs, unproven) = (evidence.proofs - before.proofs, evidence.unproven - before.unproven);
        if unproven > 0 {
            self.metrics.unproven_tokens(unproven);
            self.unproven_tokens.unissued_number(identity, token_number, UnissuedNumber::Ignored);
        }
        self.metrics.rollback_proofs(proofs);
        let repeated = evidence.repeated - before.repeated;
        if repeated > 0 {
            self.repeated_reports.unissued_number(identity, token_number, UnissuedNumber::ReportedAgain);
        }
        if proofs == repeated {
            return;
        }
        tracing::warn!(
            principal = &*identity.principal,
            via = identity.via.word(),
            credential = &*identity.credential,
            peer = identity.peer_text(),
            token_number,
            "ROLLED_BACK: a presented token was never issued by this journal; nothing is granted for one maximum ttl; \
             find out whether the journal was rolled back or the token is forged"
        );
    }

    /// Makes the records durable, or confirms ownership if there are none, before any reply is sent. On a full disk it retries, so
    /// that no decision is lost.
    async fn persist(&mut self) -> Result<(), StopReason> {
        if self.output.batch.is_empty() {
            if self.output.replies.is_empty() && self.query_replies.is_empty() {
                return Ok(());
            }
            let confirmed = tokio::select! {
                biased;
                confirmed = self.journal.confirm() => confirmed,
                error = shutdown_timeout(&self.queue) => Err(error),
            };
            return match confirmed {
                Ok(WriterStatus::Current) => Ok(()),
                Ok(WriterStatus::Fenced) => Err(StopReason::Fenced),
                Err(error) => Err(StopReason::Failed(error)),
            };
        }
        loop {
            let sequence = self.journal.next();
            let started = std::time::Instant::now();
            let appended = tokio::select! {
                biased;
                appended = self.journal.append(sequence, &self.output.batch) => appended,
                error = shutdown_timeout(&self.queue) => Err(error),
            };
            match appended {
                Ok(AppendOutcome::Durable) => {
                    self.metrics.batch_synced(self.output.batch.len(), started.elapsed());
                    self.snapshots.appended(self.output.batch.len());
                    return Ok(());
                }
                Ok(AppendOutcome::Fenced) => return Err(StopReason::Fenced),
                // No reply depends on the batch yet, so a shutdown does not wait for disk space.
                Err(JournalError::Full) if self.queue.is_stopping() => {
                    return Err(StopReason::Failed(JournalError::Full));
                }
                Err(JournalError::Full) => {
                    self.metrics.append_full();
                    std::thread::sleep(FULL_RETRY);
                }
                Err(error) => return Err(StopReason::Failed(error)),
            }
        }
    }

    /// Counts and logs the requests of this turn that the access rules do not allow (A13).
    fn report_denials(&mut self) {
        if self.output.denials.is_empty() {
            return;
        }
        let ownership: HashMap<u64, DenialReason> =
            self.output.replies.iter().filter_map(|reply| Some((reply.tag, ownership_denial(reply)?))).collect();
        for Denial { tag, action, hidden } in self.output.denials.drain(..) {
            let reason = match hidden {
                true => DenialReason::Hidden,
                false => ownership.get(&tag).copied().unwrap_or(DenialReason::Role),
            };
            match self.pending.identity(tag) {
                Some(identity) => self.denials.denied(&self.metrics, identity, action, reason),
                // The token of a batch of renewals, which are denied themselves.
                None => self.metrics.rejections().denied(action, reason),
            }
        }
    }

    /// Reports dangerous commands of this turn that one identity executed alone (A14): the audit log has the same.
    fn report_acts_alone(&mut self) {
        for ActAlone { tag, action, resource, reason } in self.output.acts_alone.drain(..) {
            self.metrics.acted_alone(action);
            let Some(identity) = self.pending.identity(tag) else { continue };
            tracing::warn!(
                act = action.word(),
                principal = &*identity.principal,
                via = identity.via.word(),
                credential = &*identity.credential,
                peer = identity.peer_text(),
                resource = &*resource,
                reason = &*reason,
                "ACTED_ALONE: one identity executed a command that needs two; find out whether the reason holds"
            );
        }
    }

    fn reply(&mut self) {
        // All replies of this turn depend on the last batch, whether this turn made it or not (E1).
        let position = self.journal.next() - 1;
        self.pending.set_position(position);
        self.metrics.set_position(position);
        self.metrics.rejections().replies(&self.output.replies, |slot| self.pending.is_renewal(slot));
        self.report_denials();
        self.report_acts_alone();
        if let Some(spans) = &self.spans {
            spans.offer(&mut self.output.ended_holds);
        }
        let stamps = self.sealer.stamps();
        for mut reply in self.output.replies.drain(..) {
            if let Answer::Refused(Refusal::Exhausted { limit, .. }) = &reply.answer
                && limit.is_of_identity()
                && let Some(identity) = self.pending.identity(reply.tag)
            {
                self.denials.limit_reached(identity, limit.word());
            }
            if let Answer::Refused(refusal @ Refusal::Deadlock(_)) = &mut reply.answer
                && let Some(identity) = self.pending.identity(reply.tag)
            {
                hide_names(&self.rules.caller(identity), refusal);
            }
            let granted = match &reply.answer {
                Answer::Granted(grant) => Some(grant.lease),
                Answer::GrantedAll(grants) => grants.first().map(|grant| grant.lease),
                _ => None,
            };
            // The reply names the holder, also where the request left it to the session.
            if let Some(holder) = granted.and_then(|lease| self.grantor.names_of(lease)).map(|(_, holder)| holder)
                && let Some(body) = self.pending.unnamed_acquire(reply.tag)
            {
                body.set_holder(holder);
            }
            let raised = raised_token(&self.grantor, &self.pending, &reply);
            let stamp_targets = if stamps { stamp_targets(&self.grantor, &self.pending, &reply) } else { Vec::new() };
            if raised.is_some() || !stamp_targets.is_empty() {
                self.pending.set_tokens(reply.tag, ReplyTokens { raised, stamp_targets });
            }
            self.pending.deliver(reply);
        }
        self.watchers.publish(&self.output.notices, &self.grantor, position, clock::now().wall);
        for notice in self.output.notices.drain(..) {
            if let Some(session) = notice.session {
                if let SessionEvent::Ready { queue } = &notice.event {
                    self.queue_waits.ready(session, queue);
                }
                self.pending.notify(session, notice.event);
            }
        }
        self.pending.wake_connections();
        self.query_replies.drain(..).for_each(|reply| reply(position));
    }
}

/// The new token of a lease whose token a request raised.
fn raised_token(grantor: &Grantor, pending: &PendingReplies, reply: &Reply) -> Option<RaisedToken> {
    let Answer::Current(current) = &reply.answer else { return None };
    let raised = pending.raised_lease(reply.tag, current.number)?;
    let (resource, token) = grantor.token_of(raised, current.number)?;
    Some(RaisedToken { token, resource: resource.into() })
}

/// The leases of a grant or a renewal whose charters declare targets. Only the holder receives such a reply.
fn stamp_targets(grantor: &Grantor, pending: &PendingReplies, reply: &Reply) -> Vec<StampTargets> {
    let leases: Vec<(LeaseSelector<'_>, Number)> = match &reply.answer {
        Answer::Granted(grant) => vec![(LeaseSelector::Id(grant.lease), grant.number)],
        Answer::GrantedAll(all) => all.iter().map(|grant| (LeaseSelector::Id(grant.lease), grant.number)).collect(),
        Answer::Current(current) => {
            pending.renewed_lease(reply.tag).map(|lease| (lease, current.number)).into_iter().collect()
        }
        _ => return Vec::new(),
    };
    let of_lease = |(lease, number): (LeaseSelector<'_>, Number)| {
        let (resource, token) = grantor.token_of(lease, number)?;
        let targets: Vec<Box<str>> =
            grantor.charter_of(resource)?.1.targets.iter().map(|target| target.name.as_str().into()).collect();
        (!targets.is_empty()).then(|| StampTargets { token, resource: resource.into(), targets })
    };
    leases.into_iter().filter_map(of_lease).collect()
}

/// Why a reply refuses a request on a subject that the caller does not own, or does not prove to own.
fn ownership_denial(reply: &Reply) -> Option<DenialReason> {
    match &reply.answer {
        Answer::Refused(Refusal::Denied(NOT_OWNER)) => Some(DenialReason::Owner),
        Answer::Refused(Refusal::Denied(NO_LEASE_PROOF | NO_SESSION_PROOF)) => Some(DenialReason::Secret),
        _ => None,
    }
}

impl<J> Drop for Driver<J> {
    /// Ends all waiting requests, streams and watches, however the driver ends.
    fn drop(&mut self) {
        self.watchers.close();
        let (queued, drained) = (self.queue.close(&self.close_reason), std::mem::take(&mut self.inputs));
        let priority = [queued.priority, drained.priority].into_iter().flatten();
        for request in priority.chain(queued.requests).chain(drained.requests) {
            if let ReplyTo::Stream(outbox, _) = request.to {
                outbox.send(Outgoing::Close(Box::new(self.close_reason.clone())));
            }
        }
        for renewals in queued.renewals.into_iter().chain(drained.renewals) {
            renewals.to.send(Outgoing::Close(Box::new(self.close_reason.clone())));
        }
        self.pending.close_all(&self.close_reason);
        self.queue_waits.wake_all();
    }
}

/// Resolves when a shutdown has waited long enough for a journal on other machines. No reply depends on the batch yet.
async fn shutdown_timeout(queue: &RequestQueue) -> JournalError {
    loop {
        tokio::time::sleep(JOURNAL_TIMEOUT).await;
        if queue.is_stopping() {
            tokio::time::sleep(JOURNAL_TIMEOUT).await;
            return JournalError::Failed { reason: "the journal did not respond during shutdown".to_owned() };
        }
    }
}

/// Bytes of records from which on a turn steps no further request. A turn's batch fits into the space that the journal has
/// reserved, so that a full disk never stops a turn that began with enough space (V4).
const TURN_BYTES: usize = 2 << 20;
/// Time that one turn spends on queries; the rest waits for the next turn.
const MAX_QUERY_TIME: Duration = Duration::from_millis(5);
/// The tag of commands without a pending reply.
const NO_SLOT: u64 = u64::MAX;
/// Longest time that a late turn waits for delayed requests, in milliseconds.
const MAX_ABSORB_MS: u64 = 500;
/// Time for the journal to respond during a shutdown: at least this long, at most twice as long.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between appends to a full disk.
const FULL_RETRY: Duration = Duration::from_millis(100);

const _: () = assert!(TURN_BYTES < OFFER_BYTES, "requests leave space for offers");
const _: () = assert!(4 * (TURN_BYTES + OFFER_BYTES) as u64 <= SEGMENT_BYTES, "a turn fits into the reserve");
const _: () =
    assert!(TURN_BYTES + STEP_BYTES + OFFER_BYTES < BATCH_BYTES, "a batch of a turn is within the journal's limit");
