//! How a holder handles messages: replies to its requests, and notices of its session.

use leasehold_core::command::{Answer, CurrentLease, Grant, SessionEvent};
use leasehold_core::holder::{ReceivedGrant, ReceivedRenewal, Renewal, RenewalAnswer, Timing};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::name::Name;
use leasehold_core::payload::delivery;
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::token::{FenceKey, Incarnation, Token};

use super::{HolderMode, PendingRequest, SimHolder, SimLease};
use crate::history::HistoryEvent;
use crate::message::Message;
use crate::mutants::PlantedFault;
use crate::request::{KnownLease, SimRequest};
use crate::run_constants::CLUSTER;
use crate::scheduler::Scheduler;

impl SimHolder {
    pub(super) fn handle_message(&mut self, scheduler: &mut Scheduler, message: Message) {
        match message {
            Message::Reply { op, answer, incarnation } => self.on_reply(scheduler, op, answer, incarnation),
            Message::NotServing { op, tries } => {
                // A duplicate says nothing about the server that was tried since: that one may have executed the request.
                if let Some(pending) = self.pending.get_mut(&op).filter(|pending| pending.tries == tries) {
                    pending.not_served = true;
                    pending.retry = self.clock.instant(scheduler.now).plus_millis(scheduler.rng.between(40, 200));
                }
            }
            Message::Notice { event, .. } => self.on_notice(scheduler, &event),
            Message::Written { .. } | Message::Request(_) | Message::Write { .. } => {}
        }
    }

    fn on_notice(&mut self, scheduler: &mut Scheduler, event: &SessionEvent) {
        let now = self.clock.instant(scheduler.now);
        match event {
            SessionEvent::Ended { lease, number, reason } => {
                for entry in &mut self.leases {
                    if entry.known.lease == *lease && entry.known.number == *number {
                        entry.renewal.handle_end(*reason);
                    }
                }
            }
            SessionEvent::Draining { lease, .. } => {
                for entry in &mut self.leases {
                    if entry.known.lease == *lease {
                        entry.renewal.renew_now(now);
                    }
                }
            }
            // Most requests to drop a copy are obeyed.
            SessionEvent::Invalidate { lease, .. } if scheduler.rng.below(5) < 4 => {
                self.copies.retain(|copy| copy != lease);
                self.request(scheduler, SimRequest::Dropped { lease: *lease });
            }
            _ => {}
        }
    }

    fn on_reply(&mut self, scheduler: &mut Scheduler, op: u64, answer: Answer, incarnation: Incarnation) {
        let Some(pending) = self.pending.remove(&op) else { return };
        self.server = pending.to;
        let actor = self.actor().index() as u32;
        if let Answer::Waiting { .. } = answer {
            let retry = self.clock.instant(scheduler.now).plus_millis(700);
            self.pending.insert(op, PendingRequest { retry, ..pending });
            return;
        }
        scheduler.record(HistoryEvent::ReplyReceived { op, actor, answer: answer.clone() });
        let another = matches!(&pending.request, SimRequest::Resume { session, .. } if Some(*session) != self.session);
        if let Answer::Refused(Refusal::Lost(EndReason::Session) | Refusal::NotFound(RefusalSubject::Session)) = &answer
            && !another
        {
            self.on_session_end(scheduler);
        }
        match (&pending.request, answer) {
            (SimRequest::Open { .. }, Answer::Session(grant)) => {
                self.session = Some(grant.session);
                self.sequence = 0;
                self.session_renew = pending.sent.plus_millis(self.ttl / 4);
            }
            (SimRequest::Acquire { resource, access, session, .. }, Answer::Granted(grant)) => {
                self.on_grant(scheduler, &pending, resource, *access, session.is_some(), &grant, incarnation);
                // In an overlap the successor stores its starting checkpoint immediately.
                let begun = self.leases.last().filter(|entry| grant.overlaps_ms.is_some() && entry.target().is_some());
                if let Some(held) = begun.map(|entry| entry.known) {
                    let value = scheduler.next_op();
                    self.request(scheduler, SimRequest::Put { held, value });
                }
            }
            (SimRequest::AcquireAll { resources, .. }, Answer::GrantedAll(grants)) => {
                for (resource, grant) in resources.iter().zip(&grants[..]) {
                    self.on_grant(scheduler, &pending, resource, Access::Exclusive, true, grant, incarnation);
                }
            }
            (SimRequest::Renew { held, .. }, answer) => self.on_renewal(scheduler, &pending, *held, answer),
            (SimRequest::Rotate { held }, Answer::Current(current)) => {
                self.on_rotation(scheduler, &pending, *held, current)
            }
            (SimRequest::ConfirmHold { held } | SimRequest::Drained { held }, _) => {
                let left = self.leases.iter_mut().filter(|entry| entry.known.number == held.number);
                left.for_each(|entry| entry.depth -= 1);
                self.leases.retain(|entry| entry.depth > 0);
            }
            (_, Answer::Cache(answer)) => self.on_cache_answer(&answer),
            (SimRequest::Commit { .. } | SimRequest::Abort { .. }, Answer::Refused(detail))
                if !matches!(detail, Refusal::Busy { .. }) =>
            {
                self.intent = None;
            }
            (SimRequest::Receive { .. }, Answer::Delivery(answer)) => {
                if let delivery::DeliveryAnswer::Received(items) = *answer {
                    self.receipts.extend(items.iter().map(|item| (item.item, item.receipt)));
                    let over = self.receipts.len().saturating_sub(6);
                    self.receipts.drain(..over);
                }
            }
            (SimRequest::Close { session }, _) if self.session == Some(*session) => self.on_session_end(scheduler),
            _ => {}
        }
    }

    /// Handles the end of the session. The holder may still believe in its leases until their renewal fails.
    fn on_session_end(&mut self, scheduler: &mut Scheduler) {
        let Some(session) = self.session.take() else { return };
        let gone = self.pending.iter().filter(|(_, pending)| pending.id.is_some_and(|id| id.session == session));
        let gone: Vec<u64> = gone.map(|(op, _)| *op).collect();
        for op in gone {
            self.pending.remove(&op);
            scheduler.record(HistoryEvent::Abandoned { op, reason: "session ended" });
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the grant and the context of its request")]
    fn on_grant(
        &mut self,
        scheduler: &mut Scheduler,
        pending: &PendingRequest,
        resource: &'static str,
        access: Access,
        in_session: bool,
        grant: &Grant,
        incarnation: Incarnation,
    ) {
        let session = self.session.filter(|_| in_session && self.mode == HolderMode::Session);
        let known = KnownLease { lease: grant.lease, number: grant.number, session };
        let name = Name::parse(resource).expect("resource names are valid");
        let resource_hash = FenceKey::new(CLUSTER, name, 0).resource;
        let token =
            Token { cluster: CLUSTER, incarnation, resource: resource_hash, scope: grant.scope, number: grant.number };
        self.observe_token(token);
        let now = self.clock.instant(scheduler.now);
        let sent = if scheduler.is_planted(PlantedFault::CountsFromReply) { now } else { pending.sent };
        let granted = ReceivedGrant {
            token: grant.number,
            sent,
            received: now,
            ttl_ms: grant.remaining_ms,
            drain_ms: Some(grant.drain_ms),
            rotates: grant.rotates,
        };
        let Ok(timing) = Timing::new(grant.ttl_ms, self.rate(scheduler)) else { return };
        let Ok(renewal) = Renewal::new(timing, granted) else { return };
        if let Some(entry) = self.leases.iter_mut().find(|entry| entry.known.number == grant.number) {
            // A reentrant acquire needs one more release. The reported depth may not include releases in flight.
            entry.depth += 1;
            return;
        }
        // A reply to a reentrant acquire that arrives after the holder reported itself drained is ignored.
        if self.drained.contains(&grant.number) {
            return;
        }
        // The first act is the claim, immediately if the holder believes that it holds the lease.
        if crate::run_constants::EXCLUSIVE.contains(&resource) && renewal.may_act(now) {
            let (actor, clock_ok) = (self.actor().index() as u32, self.clock_ok);
            scheduler.record(HistoryEvent::HolderActed { actor, number: grant.number, clock_ok });
        }
        self.leases.push(SimLease {
            known,
            token,
            resource,
            access,
            ttl: grant.ttl_ms,
            renewal,
            claimed: false,
            draining: false,
            depth: 1,
            sequence: 0,
            work: 1,
            stuck: false,
        });
    }

    fn observe_token(&mut self, token: Token) {
        let newer = |seen: &Token| seen.incarnation != token.incarnation || seen.number < token.number;
        if self.newest_token.as_ref().is_none_or(newer) {
            self.newest_token = Some(token);
        }
    }

    fn on_renewal(&mut self, scheduler: &Scheduler, pending: &PendingRequest, held: KnownLease, answer: Answer) {
        let now = self.clock.instant(scheduler.now);
        let Some(attempt) = pending.attempt else { return };
        let Some(entry) = self.leases.iter_mut().find(|entry| entry.known.number == held.number) else { return };
        let answer = match answer {
            Answer::Current(CurrentLease { number, remaining_ms, drain_ms, .. }) => {
                RenewalAnswer::Renewed(ReceivedRenewal { token: number, remaining_ms, draining_ms: drain_ms })
            }
            Answer::Refused(Refusal::Lost(reason)) => RenewalAnswer::Ended(reason),
            Answer::Refused(Refusal::NotCurrent(_)) => RenewalAnswer::NotCurrent,
            _ => RenewalAnswer::Unavailable,
        };
        entry.renewal.handle_answer(attempt, now, answer);
    }

    fn on_rotation(
        &mut self,
        scheduler: &Scheduler,
        pending: &PendingRequest,
        held: KnownLease,
        current: CurrentLease,
    ) {
        let rate = self.rate(scheduler);
        let Some(entry) = self.leases.iter_mut().find(|entry| entry.known.number == held.number) else { return };
        let granted = ReceivedGrant {
            token: current.number,
            sent: pending.sent,
            received: self.clock.instant(scheduler.now),
            ttl_ms: current.remaining_ms,
            drain_ms: None,
            rotates: false,
        };
        let Ok(timing) = Timing::new(entry.ttl, rate) else { return };
        let Ok(renewal) = Renewal::new(timing, granted) else { return };
        entry.known.number = current.number;
        entry.token.number = current.number;
        entry.renewal = renewal;
        entry.claimed = false;
        let token = entry.token;
        self.observe_token(token);
    }
}
