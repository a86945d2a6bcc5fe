//! Idempotent requests: a retry gets the same answer, also after a failover (L11).

use super::Grantor;
use super::reply_codec::{RECEIVED, from_values, to_values};
use crate::command::{Answer, Command, Handoff, LeaseRef, Request, RequestId};
use crate::ids::LeaseId;
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::payload::{cache, delivery};
use crate::record::{Record, StoredOutcome};
use crate::refusal::{Limit, Refusal, RefusalSubject};

impl Grantor {
    /// The stored answer to this request, if it is a retry.
    pub(super) fn find_stored_answer(
        &mut self,
        request: &Request<'_>,
        id: &RequestId,
        command: &Command<'_>,
    ) -> Result<Option<Answer>, Refusal> {
        let slot = match self.live_session(id.session) {
            // The lease of the request may live without that session, so its end must not be reported (L4).
            Err(Refusal::Lost(_)) if self.refers_to_held(command) => {
                return Err(Refusal::NotFound(RefusalSubject::Session));
            }
            found => found?,
        };
        let session = self.table.session(slot);
        if id.sequence == 0 || id.lowest > id.sequence {
            return Err(Refusal::Invalid {
                field: "sequence",
                reason: "must be at least 1 and not below the lowest outstanding sequence",
            });
        }
        if id.sequence < session.lowest {
            let lowest = session.lowest;
            return if mutants::on(Mutant::OldRequestIsNew) { Ok(None) } else { Err(Refusal::TooOld { lowest }) };
        }
        let Some(known) = session.stored_reply(id.sequence) else {
            let outstanding = session.requests.iter().filter(|known| known.sequence >= id.lowest).count();
            if outstanding >= limits::REQUESTS_PER_SESSION && !mutants::on(Mutant::RequestsUnbounded) {
                let max = limits::REQUESTS_PER_SESSION as u64;
                return Err(Refusal::Exhausted { limit: Limit::SessionRequests, max, got: max + 1 });
            }
            return Ok(None);
        };
        if known.digest != id.digest {
            return Err(Refusal::Conflict(RefusalSubject::Request));
        }
        let outcome = known.outcome.clone();
        self.repeat_answer(request, id, slot, command, outcome).map(Some)
    }

    fn refers_to_held(&self, command: &Command<'_>) -> bool {
        use cache::CacheCommand::{Abort, Commit, Filled, Invalidated, RenewRead};
        use delivery::DeliveryCommand::{Ack, Extend, Nack};
        match command {
            Command::Release(lease)
            | Command::Rotate(lease)
            | Command::Drained(lease)
            | Command::ConfirmHold(lease)
            | Command::Progress { lease, .. }
            | Command::ResizeHold { lease, .. }
            | Command::Veto { lease, .. }
            | Command::Pin { lease, .. }
            | Command::Put { lease, .. } => self.is_held(lease),
            Command::Renew(renew) => self.is_held(&renew.lease),
            Command::Handoff(Handoff { selector, number: Some(number), .. }) => {
                self.is_held(&LeaseRef { selector: *selector, number: *number, session: None, holder: None })
            }
            Command::Delivery(
                Ack { item, receipt, .. } | Nack { item, receipt, .. } | Extend { item, receipt, .. },
            ) => self.is_received(*item, *receipt),
            Command::Cache(
                RenewRead { lease: number, .. }
                | Invalidated { lease: number, .. }
                | Commit { intent: number, .. }
                | Abort { number, .. }
                | Filled { token: number, .. },
            ) => self.table.cache.holder_of(*number).is_some(),
            _ => false,
        }
    }

    fn repeat_answer(
        &mut self,
        request: &Request<'_>,
        id: &RequestId,
        session: u32,
        command: &Command<'_>,
        outcome: StoredOutcome,
    ) -> Result<Answer, Refusal> {
        match outcome {
            StoredOutcome::Done => Ok(Answer::Done),
            StoredOutcome::Refused(refusal) => Err(refusal),
            StoredOutcome::Waiting => {
                let Some(waiter) = self.waiter_of(session, id.sequence) else {
                    return Err(Refusal::NotFound(RefusalSubject::Wait));
                };
                // The retry receives the outcome of the wait from now on.
                self.table.waiters.at_mut(waiter).expect("found").tag = Some(request.tag);
                Ok(Answer::Waiting { position: self.queue_position_of(waiter) })
            }
            StoredOutcome::Granted(leases) => self.repeat_grant(&leases, matches!(command, Command::AcquireAll(_))),
            StoredOutcome::Values(values) => Ok(self.repeat_values(&values)),
        }
    }

    /// The answer to a retried acquire: the current state of the grant, or its end reason if it ended meanwhile.
    fn repeat_grant(&mut self, leases: &[LeaseId], atomic: bool) -> Result<Answer, Refusal> {
        let mut grants = Vec::with_capacity(leases.len());
        for id in leases {
            if self.table.live(*id).is_none() {
                let ended = self.table.leases.tombstone(id.slot, id.reuse).map(|lease| lease.end_reason());
                return Err(Refusal::Lost(ended.unwrap_or(EndReason::Released)));
            }
            grants.push(self.grant_answer(id.slot));
        }
        match grants.first() {
            Some(grant) if !atomic => Ok(Answer::Granted(*grant)),
            _ => Ok(Answer::GrantedAll(grants.into())),
        }
    }

    fn repeat_values(&self, values: &[u64]) -> Answer {
        match values {
            [RECEIVED, pairs @ ..] => Answer::Delivery(Box::new(self.repeat_receive(pairs))),
            _ => from_values(values, self.now()).unwrap_or(Answer::Done),
        }
    }

    /// Records the answer, so that a retry gets the same one. An answer that follows from the request alone needs no record.
    pub(super) fn store_answer(&mut self, id: &RequestId, answer: &Result<Answer, Refusal>) {
        let outcome = match answer {
            Ok(Answer::Granted(grant)) => StoredOutcome::Granted(vec![grant.lease]),
            Ok(Answer::GrantedAll(grants)) => StoredOutcome::Granted(grants.iter().map(|grant| grant.lease).collect()),
            Ok(Answer::Waiting { .. }) => StoredOutcome::Waiting,
            Ok(other) => to_values(other, self.now()).map_or(StoredOutcome::Done, StoredOutcome::Values),
            Err(refusal) if refusal.depends_on_state() => StoredOutcome::Refused(refusal.clone()),
            Err(_) => return,
        };
        // The request may have ended its own session.
        if self.table.sessions.live(id.session.slot, id.session.reuse).is_none() || mutants::on(Mutant::AnswerNotStored)
        {
            return;
        }
        self.record(&Record::Answered {
            session: id.session.slot,
            sequence: id.sequence,
            lowest: id.lowest,
            digest: id.digest,
            outcome,
        });
    }
}
