//! Acquiring leases: from the request to the grant, and to the caller as soon as the lease may act.

use std::sync::{Arc, Weak};

use leasehold_core::command::{Acquire, AcquireAll, AcquireOptions, Answer, Command, Grant, LeaseRef};
use leasehold_core::holder::{Loss, ReceivedGrant, Renewal, Timing};
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::Token;
use leasehold_core::trace_context::TraceContext;

use super::WorkerHandle;
use super::actor_names::ActorPool;
use super::deadline_start::counted_from;
use super::job_queue::{AcquireSpec, ReplySlot};
use super::lease_shared::{LeaseShared, LocalLeaseView, Overlap};
use super::lease_table::{LeaseEntry, LeaseTable};
use super::multi_acquire::PendingGrants;
use super::owned_lease::OwnedLease;
use super::request_table::{AcquireAttempt, RequestPurpose, UnansweredRequest};
use super::worker_state::{WorkerState, since};
use crate::{Code, Error, FencingToken, StampedToken};

impl WorkerState {
    pub(super) fn acquire(&mut self, now: Instant, slot: ReplySlot, spec: AcquireSpec, worker: Weak<WorkerHandle>) {
        let actor = spec.holder.is_none().then(|| self.actors.acquire());
        let (wait_ms, attempt) = (spec.wait_ms, AcquireAttempt { slot, spec, worker, actor, submitted_at: now });
        self.enqueue_acquire(now, wait_ms, Box::new(attempt), false);
    }

    fn enqueue_acquire(&mut self, now: Instant, wait_ms: u64, attempt: Box<AcquireAttempt>, requeued: bool) {
        let spec = &attempt.spec;
        let unnamed = attempt.actor.map(|actor| ActorPool::name(actor, &self.settings.holder));
        let terms = AcquireOptions {
            wait_ms,
            priority: spec.priority,
            reentrant: false,
            max_hold_ms: spec.max_hold_ms,
            progress_ms: spec.progress_ms,
            metadata: &spec.metadata,
        };
        let holder = unnamed.as_deref().or(spec.holder.as_deref()).unwrap_or_default();
        let (access, slots, ttl_ms) = (spec.access, spec.slots, Some(spec.timing.ttl_ms()));
        let pairs: Vec<(&str, Access)>;
        let command = match &spec.resources[..] {
            [resource] => {
                Command::Acquire(Acquire { resource, holder, session: None, access, slots, ttl_ms, options: terms })
            }
            resources => {
                pairs = resources.iter().map(|resource| (&**resource, access)).collect();
                Command::AcquireAll(AcquireAll { resources: &pairs, holder, session: None, ttl_ms, options: terms })
            }
        };
        let message = leasehold_wire::encode_command(&command).expect("a stream request");
        let key = attempt.slot.key;
        let timeout_at = now.plus_millis(self.settings.request_timeout_ms.saturating_add(wait_ms));
        let trace = attempt.spec.trace;
        let request = UnansweredRequest::detached(message, RequestPurpose::Acquire(attempt));
        self.requests.push(UnansweredRequest { key, timeout_at, requeued, trace, ..request });
    }

    /// Sends the request again under a new number, for the rest of the wait. The previous request holds nothing any more.
    pub(super) fn retry_acquire(&mut self, now: Instant, attempt: Box<AcquireAttempt>, requeued: bool) {
        let waited = now.millis_since(attempt.submitted_at);
        match attempt.spec.wait_ms {
            wait_ms if waited < wait_ms => self.enqueue_acquire(now, wait_ms - waited, attempt, requeued),
            0 if waited < self.settings.request_timeout_ms => self.enqueue_acquire(now, 0, attempt, requeued),
            _ => self.reject(attempt, Error::from(&Refusal::Timeout)),
        }
    }

    /// Handles the reply to an acquire request.
    pub(super) fn handle_acquire_reply(
        &mut self,
        now: Instant,
        sent: Instant,
        attempt: Box<AcquireAttempt>,
        answer: Result<Answer, Error>,
    ) {
        match answer {
            Ok(Answer::Granted(grant)) => self.handle_grants(now, sent, attempt, &[grant]),
            Ok(Answer::GrantedAll(grants)) => self.handle_grants(now, sent, attempt, &grants),
            Ok(_) => self.reject(attempt, Error::invalid_reply("an answer other than a grant")),
            // The reply with the grant was lost, and the lease has ended or was forgotten since.
            Err(error)
                if error.code() == Some(Code::RequestTooOld)
                    || error.end_reason().is_some_and(|reason| reason.may_retry()) =>
            {
                self.retry_acquire(now, attempt, false);
            }
            Err(error) => self.reject(attempt, error),
        }
    }

    fn reject(&mut self, attempt: Box<AcquireAttempt>, error: Error) {
        self.release_actor(attempt.actor);
        attempt.slot.reply.send(Err(error));
    }

    fn handle_grants(&mut self, now: Instant, sent: Instant, attempt: Box<AcquireAttempt>, grants: &[Grant]) {
        // A handoff ends a lease after its drain period even if its event is lost: so the drain period bounds the deadline, as the
        // ttl does.
        let received = |grant: &Grant| ReceivedGrant {
            token: grant.number,
            sent: counted_from(sent, now),
            received: now,
            ttl_ms: grant.remaining_ms,
            drain_ms: Some(grant.drain_ms),
            rotates: grant.rotates,
        };
        let timing = attempt.spec.timing;
        let renewals: Result<Vec<_>, _> = grants.iter().map(|grant| Renewal::new(timing, received(grant))).collect();
        let renewals = match renewals {
            Ok(renewals) if renewals.len() == attempt.spec.resources.len() => renewals,
            wrong => {
                grants.iter().for_each(|grant| self.return_grant(now, LeaseRef::by_id(grant.lease, grant.number)));
                let reason = wrong
                    .map_or_else(|wrong| wrong.to_string(), |_| "a grant of other leases than requested".to_owned());
                return self.reject(attempt, Error::invalid_reply(reason));
            }
        };
        let AcquireAttempt { slot, spec, worker, actor, submitted_at } = *attempt;
        let timeout_at = now.plus_millis(self.settings.request_timeout_ms);
        let pending = PendingGrants::new(slot, worker, timeout_at, submitted_at, grants.len());
        self.min_ttl_ms = self.min_ttl_ms.min(timing.ttl_ms());
        let mut indices = Vec::with_capacity(grants.len());
        for (index, ((grant, renewal), resource)) in grants.iter().zip(renewals).zip(spec.resources).enumerate() {
            if let Some(actor) = actor.filter(|_| index > 0) {
                self.actors.share(actor);
            }
            let index =
                self.track_lease(now, grant, renewal, resource, timing, actor, (pending.clone(), index), spec.trace);
            indices.push(index);
        }
        for index in indices {
            self.poll_lease(index, now);
            self.leases.defer(index);
        }
    }

    /// Starts to renew a lease. Returns its index.
    #[expect(clippy::too_many_arguments, reason = "all facts about a lease meet here, once")]
    fn track_lease(
        &mut self,
        now: Instant,
        grant: &Grant,
        renewal: Renewal,
        resource: Box<str>,
        timing: Timing,
        actor: Option<u32>,
        pending_grant: (Arc<PendingGrants>, usize),
        trace: Option<TraceContext>,
    ) -> u32 {
        let session = self.session.as_ref().expect("a grant arrives in a session");
        let token = Token {
            cluster: session.issuer.cluster,
            incarnation: session.issuer.incarnation,
            resource: resource_hash(&resource),
            scope: grant.scope,
            number: grant.number,
        };
        let token = self.with_seal(token);
        let clock_drift = self.settings.clock_drift;
        let overlap = grant.overlaps_ms.map(|drain_ms| Overlap { received: now, drain_ms, clock_drift });
        let view = LocalLeaseView {
            token,
            deadline: renewal.deadline(),
            fixed_end: renewal.fixed_end(),
            working: renewal.may_act(now),
            suspensions: 0,
            draining: None,
            overlap,
            loss: None,
            version: 0,
        };
        let (index, serial) = self.leases.next_index();
        self.servers.observe_token(token, &resource);
        let lease = LeaseShared::new(resource, grant.lease, index, session.deadline.clone(), view).traced(trace);
        lease.set_stamped(self.stamped_of(token.parsed()));
        let entry = LeaseTable::new_entry(Arc::new(lease), renewal, timing, grant.drain_ms, serial);
        let claim_from = overlap.map(|overlap| overlap.succession().claim_from());
        let rotates = grant.rotates;
        self.leases
            .insert(index, LeaseEntry { actor, rotates, claim_from, pending_grant: Some(pending_grant), ..entry });
        index
    }

    /// A token with the sealed text that arrived with it, or with its plain text if the server does not seal.
    pub(super) fn with_seal(&self, token: Token) -> FencingToken {
        let sealed = self.sealed_texts.iter().find(|sealed| sealed.parsed() == token);
        sealed.copied().unwrap_or_else(|| FencingToken::new(token))
    }

    /// The stamped texts of a token that arrived with it.
    fn stamped_of(&self, token: Token) -> Vec<StampedToken> {
        self.stamped_texts.iter().filter(|stamped| stamped.parsed() == token).cloned().collect()
    }

    /// Gives a lease whose token was raised the sealed text that arrived with the reply.
    pub(super) fn take_raised_text(&mut self, index: u32, serial: u32) {
        let Some(entry) = self.leases.get_mut(index).filter(|entry| entry.serial == serial) else { return };
        let held = entry.lease.token().parsed();
        let raised = Token { number: entry.renewal.token(), ..held };
        let sealed = self.sealed_texts.iter().copied().find(|sealed| sealed.parsed() == raised);
        // A renewal that raises nothing may bring stamps of newer keys.
        let stamped: Vec<_> = self.stamped_texts.iter().filter(|stamped| stamped.parsed() == raised).cloned().collect();
        if sealed.is_some() || !stamped.is_empty() {
            entry.lease.set_stamped(stamped);
        }
        if let Some(sealed) = sealed {
            entry.lease.update(|view| view.token = sealed);
            let resource = entry.lease.resource.clone();
            self.servers.observe_token(sealed, &resource);
        }
    }

    /// Hands a lease to its caller as soon as it may act. If the client is gone, releases it.
    pub(super) fn hand_out(&mut self, now: Instant, index: u32) {
        let ready = |entry: &&mut LeaseEntry| entry.pending_grant.is_some() && entry.renewal.may_act(now);
        let Some(entry) = self.leases.get_mut(index).filter(ready) else {
            return;
        };
        let (pending, position) = entry.pending_grant.take().expect("just checked");
        self.metrics.emit(|hook| hook.granted(&entry.lease.resource, since(pending.submitted_at, now)));
        tracing::debug!(resource = %entry.lease.resource, lease = %entry.lease.id, "lease granted");
        let lease = entry.lease.clone();
        match pending.worker.upgrade() {
            Some(worker) => pending.add(position, OwnedLease::new(lease, worker)),
            None => self.release_lease(now, 0, &lease, None),
        }
    }

    /// The grantor ended a lease.
    pub(super) fn lease_lost(&mut self, entry: LeaseEntry, loss: Loss) {
        self.metrics.emit(|hook| hook.lost(&entry.lease.resource, loss));
        tracing::warn!(resource = %entry.lease.resource, lease = %entry.lease.id, %loss, "lease lost");
        self.release_actor(entry.actor);
        if let Some((pending, _)) = entry.pending_grant {
            pending.reject(loss.into());
        }
    }

    pub(super) fn release_actor(&mut self, actor: Option<u32>) {
        if let Some(actor) = actor {
            self.actors.release(actor);
        }
    }
}
