//! The grantor: the state machine that decides about leases.
//!
//! A step produces records and replies as values; the driver makes the records durable and then sends the replies.

mod acquire;
mod attribution;
mod audit;
mod authorize;
mod capacity;
mod deadlock;
mod fence_reports;
mod grant;
mod handoff;
mod idempotency;
mod lag_gauges;
mod lease_listing;
mod lease_ops;
mod lookups;
mod max_ttl;
mod operator;
mod payloads;
mod pins;
mod priority;
mod proposals;
mod query;
mod query_budget;
mod queue_consumers;
mod recovery;
mod reply_codec;
mod reservations;
mod rollback_detection;
mod sessions;
pub(crate) mod table;
mod tick;
mod view;
mod waiters;

pub use audit::AuditChange;
pub use authorize::Denial;
pub use lease_listing::{LeaseFilter, LeaseSort, LeaseSortKey, ListedLease};
pub use proposals::{ActAlone, ProposalView};
pub use query::{Query, QueryAnswer, QueryOutcome, QueuePage, hide_names};
pub use query_budget::QueryBudget;
pub use recovery::{
    ChangeSink, CorruptionError, JournalInfo, OpenTenureError, RecoveredGrantor, RestoreSpec, TenureOptions, recover,
};
pub use rollback_detection::RollbackEvidence;
pub use table::Deadlock;
pub use table::ended::{EndedLease, Usage};
pub use table::ended_holds::{EndedHold, HoldDrain};
pub use view::{ContendedResourceView, LeaseView, ResourceView, SessionView, Status, WaiterView};

use sha2::{Digest, Sha256};

use crate::access::{Attribution, IdentityUsage, LOCAL_PRINCIPAL, RequestOrigin, check_principal};
use crate::command::{Answer, Command, Input, Notice, Reply, Request, SessionEvent};
use crate::coverage::{CheckCounts, TargetSlot};
use crate::ids::SessionId;
use crate::lease::Validity;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{BatchHeader, ExpiredBatch, Record};
use crate::refusal::{Refusal, RefusalSubject};
use crate::time::{GrantorTime, Instant, Now};
use crate::token::{Number, next_number};
use attribution::BatchAttribution;
use authorize::Authorization;
use deadlock::DeadlockDetector;
use table::GrantorTable;

/// The lease protocol. A driver runs it in turns: `step` each input, `step` an [`Input::Tick`], then call
/// [`Grantor::take_output`]. It makes the batch durable, and only then sends replies and notices.
pub struct Grantor {
    table: GrantorTable,
    validity: Validity,
    /// The longest ttl that the operator of this tenure states. A state that was rolled back does not know of a later raise.
    stated_max_ttl: u64,
    /// When service started in this tenure, and grantor time at that moment. `None` until the opening is durable.
    serving: Option<(Instant, GrantorTime)>,
    turn: Option<Turn>,
    last_turn: Instant,
    out: Output,
    deadlock_detector: DeadlockDetector,
    /// Actors that may have lost their inherited priority, and actors whose inherited priority must be recomputed.
    priority_drops: std::collections::VecDeque<u32>,
    priority_raises: std::collections::VecDeque<u32>,
    /// The journal has space only for ends (V4).
    only_endings: bool,
    /// Watchers want all events.
    watched: bool,
    /// Whether waiters were offered resources after the end of a quarantine.
    quarantine_seen: bool,
    rollback_evidence: RollbackEvidence,
    /// Reporters whose numbers started a quarantine in this tenure.
    quarantine_reporters: std::collections::BTreeSet<Box<str>>,
    /// Check counts of fences in this tenure. They are not recorded, because a check must not cost a commit.
    check_counts: std::collections::BTreeMap<Box<str>, std::collections::BTreeMap<TargetSlot, CheckCounts>>,
    /// The sum of the checks in `check_counts`.
    total_checks: u128,
    /// Consumers that wait for messages.
    idle: queue_consumers::IdleConsumers,
    /// Buffers for names that are read from the table while it changes.
    scratch: (String, String),
    due: Vec<u32>,
    /// Plain expiries of a tick that are recorded together.
    expiring: ExpiredBatch,
    /// Which identity the records of the turn's batch are attributed to.
    attribution: BatchAttribution,
}

/// State shared by all steps of one turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The grantor stalled before this turn, so queued renewals are still accepted (L12).
    late: bool,
}

/// The output of a turn, to be processed in this order.
#[derive(Debug, Default)]
pub struct Output {
    /// The batch to append atomically to the journal. If it is empty, confirming leadership is enough.
    pub batch: Vec<u8>,
    /// Replies to send after that.
    pub replies: Vec<Reply>,
    /// Notices to send after that.
    pub notices: Vec<Notice>,
    /// Requests that the access rules refused, for metrics and logs.
    pub denials: Vec<Denial>,
    /// Dangerous commands that were executed without a second identity, for metrics and logs.
    pub acts_alone: Vec<ActAlone>,
    /// Holds that ended, if [`Grantor::set_holds_collected`] asks for them.
    pub ended_holds: Vec<EndedHold>,
    /// Whether to take no further turn, because another server shall lead.
    pub step_down: bool,
}

impl Output {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.replies.is_empty() && self.notices.is_empty() && !self.step_down
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.replies.clear();
        self.notices.clear();
        self.denials.clear();
        self.acts_alone.clear();
        self.ended_holds.clear();
        self.step_down = false;
    }
}

impl Grantor {
    /// Processes one input. All inputs of a turn use the same `now`, sampled after the driver drained its queue.
    pub fn step(&mut self, now: Now, input: &Input<'_>) {
        assert!(self.serving.is_some(), "a grantor serves only after its opening is durable");
        self.begin_turn(now);
        match input {
            Input::Request(request, command) => self.handle_request(request, command),
            Input::Tick => {
                let start = self.begin_attribution();
                self.tick();
                self.end_attribution(start, None);
            }
        }
    }

    /// Ends the turn and moves its output to `into`, whose buffers are reused.
    pub fn take_output(&mut self, into: &mut Output) {
        self.turn = None;
        into.clear();
        std::mem::swap(&mut self.out, into);
        std::mem::swap(&mut self.table.due.holds.ended, &mut into.ended_holds);
        self.attribution.clear();
        if !into.batch.is_empty() {
            self.table.chain = Sha256::digest(&into.batch).into();
            self.table.recorded = (self.table.time, self.table.wall);
        }
    }

    /// Size of this turn's batch so far, in bytes. A driver that stops taking input above a limit has batches that fit its
    /// journal even when the disk is full (V4).
    pub fn pending_bytes(&self) -> usize {
        self.out.batch.len()
    }

    /// When the driver should take the next turn, if no input arrives earlier.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (anchor, base) = self.serving?;
        if self.has_more_to_do() {
            return Some(self.last_turn);
        }
        let idle = self.table.recorded.0.plus(limits::IDLE_RECORD_EVERY);
        let due = [self.table.due.leases.next(), self.table.due.sessions.next(), self.table.due.waiters.next()];
        let due = due.into_iter().chain([self.payload_deadline(), self.quarantine_deadline()]).flatten();
        let next = due.fold(idle, GrantorTime::min);
        let next = anchor.plus_millis(base.until(next));
        // While leases are held, turns are frequent enough to distinguish a stall from a pause.
        let soon = self.last_turn.plus_millis(limits::TURN_EVERY);
        Some(if self.is_quiet() { next } else { next.min(soon) })
    }

    /// Digest of the whole state: equal records give an equal digest (V1).
    pub fn state_hash(&self) -> [u8; 32] {
        Sha256::digest(self.snapshot()).into()
    }

    /// The whole state as bytes. Must be called between turns.
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
        self.table.advance_time(base.plus(now.instant.millis_since(anchor)));
        self.table.wall = now.wall;
        if stall > 0 && !self.is_quiet() {
            self.record(&Record::Stalled { ms: stall });
        }
    }

    fn handle_request(&mut self, request: &Request<'_>, command: &Command<'_>) {
        let start = self.begin_attribution();
        let answer = self.check_and_decide(request, command).unwrap_or_else(Answer::Refused);
        let attribution = match request.caller.principal {
            LOCAL_PRINCIPAL => {
                let trace = request.origin.trace;
                let origin = RequestOrigin { trace, ..RequestOrigin::LOCAL };
                trace.map(|_| Attribution { principal: LOCAL_PRINCIPAL, origin })
            }
            principal => Some(Attribution { principal, origin: request.origin }),
        };
        self.end_attribution(start, attribution.as_ref());
        self.reply(request.tag, answer);
    }

    /// Checks the caller before the request has any effect (A4), then decides.
    fn check_and_decide(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<Answer, Refusal> {
        if mutants::on(Mutant::PresentedBeforeCheck) {
            self.observe_tokens(request, command)?;
        }
        let authorization = self.authorize(request, command)?;
        // What follows may be recorded with it.
        check_principal(&request.caller)?;
        if let Command::OpenKeySession { command: Some(under_key), .. } = command {
            let opened = self.decide_checked(authorization, request, command);
            return opened.or_else(|refusal| self.observe_refused(request, under_key, refusal));
        }
        self.observe_tokens(request, command)?;
        self.decide_checked(authorization, request, command)
    }

    fn decide_checked(
        &mut self,
        authorization: Authorization,
        request: &Request<'_>,
        command: &Command<'_>,
    ) -> Result<Answer, Refusal> {
        self.authorize_subject(authorization, request, command)?;
        self.settle_priorities(limits::EDGES_PER_STEP);
        self.decide(authorization, request, command)
    }

    /// Processes the tokens of a request that is not executed, because no session was opened for its key. They count as they would
    /// without a key: if the rights of the caller cover the request (T9, A4). With a session, they count when it is executed.
    fn observe_refused(
        &mut self,
        request: &Request<'_>,
        under_key: &Command<'_>,
        refusal: Refusal,
    ) -> Result<Answer, Refusal> {
        if self.is_covered(request, under_key) && !mutants::on(Mutant::KeyHidesRollback) {
            self.observe_tokens(request, under_key)?;
        }
        Err(refusal)
    }

    fn decide(
        &mut self,
        authorization: Authorization,
        request: &Request<'_>,
        command: &Command<'_>,
    ) -> Result<Answer, Refusal> {
        if mutants::on(Mutant::RenewalsCounted) && matches!(command, Command::Renew(_) | Command::RenewSession { .. }) {
            let one = IdentityUsage { sessions: 1, leases: 1, ..IdentityUsage::default() };
            self.check_identity_limits(&request.caller, one)?;
        }
        // Renewals are the hot path. Repeating one has no further effect, so they need no stored answer.
        match (command, authorization) {
            (Command::Renew(renew), Authorization::OwnLease(slot)) => return self.renew_held(slot, renew),
            (Command::Confirm(_), Authorization::OwnLease(slot)) => return self.confirm_held(slot),
            _ => {}
        }
        match command {
            Command::Renew(renew) if request.id.is_none() || self.table.due.rotating == 0 => return self.renew(renew),
            Command::RenewSession { session, held } => return self.renew_session(*session, *held),
            Command::Confirm(lease) => return self.confirm(lease),
            Command::ObserveToken => return Ok(Answer::Done),
            _ => {}
        }
        let Some(id) = &request.id else {
            return self.perform(request, command);
        };
        if let Some(answer) = self.find_stored_answer(request, id, command)? {
            return Ok(answer);
        }
        let answer = self.perform(request, command);
        self.store_answer(id, &answer);
        answer
    }

    /// Sets whether watchers exist. Sessions receive their own events either way.
    pub fn set_watched(&mut self, enabled: bool) {
        self.watched = enabled;
    }

    /// Sets whether outputs contain the holds that ended, for traces. Off by default; then nothing is collected.
    pub fn set_holds_collected(&mut self, enabled: bool) {
        self.table.due.holds.set_enabled(enabled);
    }

    /// Sets whether the journal has space only for ends. Leases are then renewed and end as usual, and nothing new starts
    /// (V4).
    pub fn set_endings_only(&mut self, enabled: bool) {
        self.only_endings = enabled;
    }

    /// Executes a command that is not a retry.
    fn perform(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<Answer, Refusal> {
        if self.only_endings && !command.only_ends() && !mutants::on(Mutant::FullJournalGrants) {
            return Err(Refusal::StorageFull);
        }
        self.check_approval(request, command)?;
        self.execute(request, command)
    }

    /// Executes a command that needs no approval, or that was approved.
    fn execute(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<Answer, Refusal> {
        match command {
            Command::OpenSession(open) => self.open_session(&request.caller, open),
            Command::OpenKeySession { key, command } => self.open_key_session(request, *key, *command),
            Command::ResumeSession { session, secret } => self.resume_session(*session, *secret),
            Command::Reconcile { session, leases, range: part } => self.reconcile(*session, leases, *part),
            Command::CloseSession { session } => self.close_session(*session),
            Command::Acquire(acquire) => self.acquire(request, acquire),
            Command::AcquireAll(acquire) => self.acquire_all(request, acquire),
            Command::Cancel { session, sequence } => self.cancel(*session, *sequence),
            Command::Withdraw { session, tag } => self.withdraw(*session, *tag),
            Command::Release(lease) => self.release(lease),
            Command::Rotate(lease) => self.rotate(lease),
            Command::Progress { lease, at } => self.progress(lease, *at),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Free { resource, comment } => self.free(resource, comment),
            Command::Handoff(handoff) => self.handoff(handoff),
            Command::Drained(lease) => self.drained(lease),
            Command::SetCapacity { resource, units } => self.set_capacity(resource, *units),
            Command::ConfirmHold(lease) => self.confirm_hold(lease),
            Command::ResizeHold { lease, units } => self.resize_hold(lease, *units),
            Command::Veto { lease, for_ms } => self.veto(lease, *for_ms),
            Command::Pin { lease, at } => self.pin(lease, *at),
            Command::Collect { resource, below } => self.collect(resource, *below),
            Command::Put { lease, key, bytes, expect } => self.put(&request.caller, lease, key, *bytes, *expect),
            Command::Delivery(command) => self.delivery_command(&request.caller, command),
            Command::Cache(command) => self.cache_command(&request.caller, command),
            Command::SetCharter { prefix, charter, comment } => {
                self.set_charter(&request.caller, prefix, charter, comment)
            }
            Command::RemoveCharter { prefix, comment } => self.remove_charter(prefix, comment),
            Command::Report { cluster, reports } => self.report(request, *cluster, reports),
            Command::ForgetTarget { resource, target, comment } => self.forget_target(resource, target, comment),
            Command::WaiveQuarantine { comment } => self.waive_quarantine(comment),
            Command::SetMaxTtl { max_ttl_ms, comment } => self.set_max_ttl(*max_ttl_ms, comment),
            Command::StepDown => self.step_down(),
            Command::Approve { proposal, digest, proposer } => self.approve(request, *proposal, digest, *proposer),
            Command::CancelProposal { proposal } => self.cancel_proposal(request, *proposal),
            // Where renewals rotate the token, a retry must get the same answer.
            Command::Renew(renew) => self.renew(renew),
            Command::RenewSession { .. } | Command::Confirm(_) | Command::ObserveToken => {
                unreachable!("answered before")
            }
        }
    }

    /// Requests that another server leads; only a cluster with standbys has one.
    fn step_down(&mut self) -> Result<Answer, Refusal> {
        self.check_step_down()?;
        self.out.step_down = true;
        Ok(Answer::Done)
    }

    fn check_step_down(&self) -> Result<(), Refusal> {
        if self.validity != Validity::Quorum {
            return Err(Refusal::NotFound(RefusalSubject::Standby));
        }
        Ok(())
    }

    /// Records a fact and applies it to the state; the two never differ.
    fn record(&mut self, record: &Record<'_>) {
        if let Err(problem) = self.table.apply(record) {
            panic!("a decided record does not apply to the state: {problem}: {record:?}");
        }
        if self.out.batch.is_empty() {
            let header = BatchHeader { chain: self.table.chain, time: self.table.time, wall: self.table.wall };
            header.encode(&mut self.out.batch);
            self.attribution.batch_started(self.out.batch.len());
        }
        self.attribution.recorded(record);
        let omitted = mutants::on(Mutant::GrantNotRecorded) && matches!(record, Record::Granted(_));
        if !omitted {
            record.encode(&mut self.out.batch);
        }
    }

    fn reply(&mut self, tag: u64, answer: Answer) {
        self.out.replies.push(Reply { tag, answer });
    }

    fn notify(&mut self, session: Option<SessionId>, event: SessionEvent) {
        self.out.notices.push(Notice { session, event });
    }

    fn now(&self) -> GrantorTime {
        self.table.time
    }

    fn turn(&self) -> Turn {
        self.turn.expect("inside a turn")
    }

    /// The number of the next grant, raised to the wall clock in every granting turn (T4).
    fn next_number(&self) -> Result<Number, Refusal> {
        let next = if mutants::on(Mutant::NumberNotLifted) {
            self.table.counter.checked_add(1).and_then(Number::new)
        } else if mutants::on(Mutant::CounterIgnored) {
            next_number(0, self.table.wall)
        } else if mutants::on(Mutant::ExhaustionIgnored) {
            Some(next_number(self.table.counter, self.table.wall).unwrap_or(Number::MAX))
        } else {
            next_number(self.table.counter, self.table.wall)
        };
        next.ok_or(Refusal::TokensExhausted)
    }

    /// Whether there are no leases, sessions and payload deadlines, so that a stall affects no one.
    fn is_quiet(&self) -> bool {
        self.table.leases.count() == 0 && self.table.sessions.count() == 0 && self.payload_deadline().is_none()
    }

    fn has_more_to_do(&self) -> bool {
        let may_grant = !self.only_endings && self.check_quarantine().is_ok() && self.next_number().is_ok();
        (may_grant && !self.table.due.offers.is_empty())
            || self.deadlock_detector.has_work()
            || self.has_priorities_to_settle()
    }
}
