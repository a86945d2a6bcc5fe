//! The same request gives the same answer, also after a failover (L11).

use super::Grantor;
use super::answers::{RECEIVED, from_values, to_values};
use crate::command::{Answer, Command, HandOff, Held, Request, RequestId};
use crate::ids::LeaseId;
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::payload::{cache, delivery};
use crate::record::{Outcome, Record};
use crate::refusal::{Limit, Refusal, What};

impl Grantor {
    /// What was answered to this request before, if it is a retry.
    pub(super) fn answered_before(
        &mut self,
        request: &Request,
        id: &RequestId,
        command: &Command<'_>,
    ) -> Result<Option<Answer>, Refusal> {
        let slot = match self.live_session(id.session) {
            // What the request names may live without that session: nobody is told an end that is none (L4).
            Err(Refusal::Lost(_)) if self.names_what_is_held(command) => return Err(Refusal::NotFound(What::Session)),
            found => found?,
        };
        let session = self.table.session(slot);
        if id.sequence == 0 || id.lowest > id.sequence {
            return Err(Refusal::Invalid {
                field: "sequence",
                reason: "counts from 1, and the lowest outstanding is not above it",
            });
        }
        if id.sequence < session.lowest {
            let lowest = session.lowest;
            return if mutants::on(Mutant::OldRequestIsNew) { Ok(None) } else { Err(Refusal::TooOld { lowest }) };
        }
        let Some(known) = session.remembered(id.sequence) else {
            let outstanding = session.requests.iter().filter(|known| known.sequence >= id.lowest).count();
            if outstanding >= limits::REQUESTS_PER_SESSION && !mutants::on(Mutant::RequestsUnbounded) {
                let max = limits::REQUESTS_PER_SESSION as u64;
                return Err(Refusal::Exhausted { limit: Limit::SessionRequests, max, got: max + 1 });
            }
            return Ok(None);
        };
        if known.digest != id.digest {
            return Err(Refusal::Conflict(What::Request));
        }
        let outcome = known.outcome.clone();
        self.told_again(request, id, slot, command, outcome).map(Some)
    }

    fn names_what_is_held(&self, command: &Command<'_>) -> bool {
        use cache::Command::{Abort, Commit, Filled, Invalidated, RenewRead};
        use delivery::Command::{Ack, Extend, Nack};
        match command {
            Command::Release(held)
            | Command::Rotate(held)
            | Command::Drained(held)
            | Command::ConfirmHold(held)
            | Command::Progress { held, .. }
            | Command::ResizeHold { held, .. }
            | Command::Veto { held, .. }
            | Command::Pin { held, .. }
            | Command::Put { held, .. } => self.is_held(held),
            Command::Renew(renew) => self.is_held(&renew.held),
            Command::HandOff(HandOff { which, number: Some(number), .. }) => {
                self.is_held(&Held { lease: *which, number: *number, session: None, holder: None })
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

    fn told_again(
        &mut self,
        request: &Request,
        id: &RequestId,
        session: u32,
        command: &Command<'_>,
        outcome: Outcome,
    ) -> Result<Answer, Refusal> {
        match outcome {
            Outcome::Done => Ok(Answer::Done),
            Outcome::Refused(refusal) => Err(refusal),
            Outcome::Waiting => {
                let Some(waiter) = self.waiter_of(session, id.sequence) else {
                    return Err(Refusal::NotFound(What::Wait));
                };
                // Whoever asks again listens from now on.
                self.table.waiters.at_mut(waiter).expect("found").tag = Some(request.tag);
                Ok(Answer::Waiting { position: self.place_of(waiter) })
            }
            Outcome::Granted(leases) => self.granted_again(&leases, matches!(command, Command::AcquireAll(_))),
            Outcome::Values(values) => Ok(self.values_again(&values)),
        }
    }

    /// A retried grant is told as it stands now; if it has ended meanwhile, its end.
    fn granted_again(&mut self, leases: &[LeaseId], several: bool) -> Result<Answer, Refusal> {
        let mut grants = Vec::with_capacity(leases.len());
        for id in leases {
            if self.table.live(*id).is_none() {
                let ended = self.table.leases.tombstone(id.slot, id.reuse).map(|lease| lease.buried());
                return Err(Refusal::Lost(ended.unwrap_or(Reason::Released)));
            }
            grants.push(self.grant_now(id.slot));
        }
        match grants.first() {
            Some(grant) if !several => Ok(Answer::Granted(*grant)),
            _ => Ok(Answer::GrantedAll(grants.into())),
        }
    }

    fn values_again(&self, values: &[u64]) -> Answer {
        match values {
            [RECEIVED, pairs @ ..] => Answer::Delivery(Box::new(self.received_again(pairs))),
            _ => from_values(values, self.now()).unwrap_or(Answer::Done),
        }
    }

    /// Puts the answer on record, so that a retry is told the same. What follows from the request alone needs no record.
    pub(super) fn remember_answer(&mut self, id: &RequestId, answer: &Result<Answer, Refusal>) {
        let outcome = match answer {
            Ok(Answer::Granted(grant)) => Outcome::Granted(vec![grant.lease]),
            Ok(Answer::GrantedAll(grants)) => Outcome::Granted(grants.iter().map(|grant| grant.lease).collect()),
            Ok(Answer::Waiting { .. }) => Outcome::Waiting,
            Ok(other) => to_values(other, self.now()).map_or(Outcome::Done, Outcome::Values),
            Err(refusal) if refusal.depends_on_state() => Outcome::Refused(refusal.clone()),
            Err(_) => return,
        };
        // The request may have ended its own session.
        if self.table.sessions.live(id.session.slot, id.session.reuse).is_none() || mutants::on(Mutant::AnswerForgotten)
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
