//! A4, A5: a request outside of the caller's rights is denied, or answered like one about nothing. A6: only the identity that was
//! granted something acts on it, and no copy of a request gives another identity, or a process without the secrets, anything.

use std::collections::BTreeMap;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::refusal::{NotCurrent, Refusal, RefusalSubject};

use super::{CheckFinding, broken};
use crate::clock::SimTime;
use crate::history::{Batch, History, HistoryEvent};
use crate::impostor::{ImpostorAttempt, ImpostorEffect, ImpostorKind, identity_of, names_what_is_owned};
use crate::message::{SERVERS, SimActor};
use crate::request::SimRequest;

/// Checks the copies of impostors, and that every answered request is the owner's.
pub fn check(history: &History) -> CheckFinding {
    let mut owners = RecordedOwners::default();
    let mut requested: BTreeMap<u64, (u32, SimRequest)> = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::ImpostorAnswered(attempt) => check_attempt(*at, attempt)?,
            HistoryEvent::BatchDurable { batch, .. } => owners.read(batch),
            HistoryEvent::JournalReverted { batches, .. } => {
                owners = RecordedOwners::default();
                batches.iter().for_each(|batch| owners.read(batch));
            }
            HistoryEvent::Requested { op, actor, request } => {
                requested.insert(*op, (*actor, request.clone()));
            }
            HistoryEvent::ReplySent { op, answer, .. } => {
                if let Some((actor, request)) = requested.get(op)
                    && let Some(identity) = identity_of_actor(*actor)
                    && let Some(number) = acts_on(request, answer)
                    && let Some(owner) = owners.by_number.get(&number)
                    && owner.as_deref().is_some_and(|owner| owner != identity)
                {
                    return broken("A6", *at, format!("{identity} acts on {number}, which is of {owner:?}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_attempt(at: SimTime, attempt: &ImpostorAttempt) -> CheckFinding {
    let ImpostorAttempt { kind, request, answer, effect } = attempt;
    let refusal = match (answer, effect) {
        (Answer::Refused(refusal), ImpostorEffect::None) => refusal,
        _ => {
            let promise = match (kind, effect) {
                (ImpostorKind::Neighbor | ImpostorKind::Twin, ImpostorEffect::Lifted) => "A9",
                (ImpostorKind::Neighbor | ImpostorKind::Twin, _) => "A6",
                (ImpostorKind::Outsider | ImpostorKind::Stranger, _) => "A4",
            };
            return broken(promise, at, format!("a copy of {request:?} is answered {answer:?}, effect: {effect:?}"));
        }
    };
    match kind {
        // Whatever the reason, it gained nothing.
        ImpostorKind::Neighbor | ImpostorKind::Twin | ImpostorKind::Stranger => Ok(()),
        ImpostorKind::Outsider if *refusal == expected_outside(request) => Ok(()),
        ImpostorKind::Outsider if matches!(refusal, Refusal::Denied(_)) && is_denied_outside(request) => Ok(()),
        ImpostorKind::Outsider => broken("A5", at, format!("an outsider's copy of {request:?} learns {refusal:?}")),
    }
}

/// The answer to an outsider about something that it may not see.
fn expected_outside(request: &SimRequest) -> Refusal {
    match request {
        SimRequest::RenewSession { .. }
        | SimRequest::Close { .. }
        | SimRequest::Cancel { .. }
        | SimRequest::Resume { .. } => Refusal::NotFound(RefusalSubject::Session),
        SimRequest::Ack { .. } | SimRequest::Nack { .. } | SimRequest::Extend { .. } => {
            Refusal::NotFound(RefusalSubject::Message)
        }
        _ => Refusal::NotCurrent(NotCurrent::Unknown),
    }
}

/// Whether the request needs nothing that exists, so that its denial reveals nothing.
const fn is_denied_outside(request: &SimRequest) -> bool {
    matches!(
        request,
        SimRequest::Acquire { .. }
            | SimRequest::AcquireAll { .. }
            | SimRequest::Enqueue { .. }
            | SimRequest::Receive { .. }
            | SimRequest::Read { .. }
            | SimRequest::Intend { .. }
            | SimRequest::Collect { .. }
            | SimRequest::Report { .. }
    )
}

/// The number of the lease that a request changed, according to its answer.
fn acts_on(request: &SimRequest, answer: &Answer) -> Option<u64> {
    let done = !matches!(answer, Answer::Refused(_)) && names_what_is_owned(request);
    match request {
        SimRequest::Renew { held, .. }
        | SimRequest::Release { held }
        | SimRequest::Rotate { held }
        | SimRequest::Drained { held }
        | SimRequest::ConfirmHold { held }
        | SimRequest::ResizeHold { held, .. }
        | SimRequest::Put { held, .. }
        | SimRequest::Pin { held, .. } => done.then_some(held.number.get()),
        _ => None,
    }
}

fn identity_of_actor(actor: u32) -> Option<String> {
    let first = SimActor::Holder(0).index();
    debug_assert!(first > SERVERS, "holders come after servers");
    (actor as usize).checked_sub(first).map(identity_of)
}

/// The owner of each lease and session in the records; `None` is `local`.
#[derive(Default)]
struct RecordedOwners {
    sessions: BTreeMap<u32, Option<String>>,
    leases: BTreeMap<u32, Option<String>>,
    by_number: BTreeMap<u64, Option<String>>,
}

impl RecordedOwners {
    fn read(&mut self, batch: &Batch) {
        let mut from = Reader::new(batch);
        if BatchHeader::decode(&mut from).is_err() {
            return;
        }
        while !from.is_empty() {
            let Ok(record) = Record::decode(&mut from) else { return };
            match record {
                Record::SessionOpened { session, owner, .. } => {
                    self.sessions.insert(session.slot, owner.map(str::to_owned));
                }
                Record::Granted(granted) => {
                    let owner = match granted.session {
                        Some(session) => self.sessions.get(&session).cloned().flatten(),
                        None => granted.owner.map(str::to_owned),
                    };
                    self.leases.insert(granted.lease.slot, owner.clone());
                    self.by_number.insert(granted.number.get(), owner);
                }
                Record::Rotated { lease, number } => {
                    let owner = self.leases.get(&lease).cloned().flatten();
                    self.by_number.insert(number.get(), owner);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::command::CurrentLease;
    use leasehold_core::ids::LeaseId;
    use leasehold_core::record::GrantRecord;

    use super::super::sample_histories::*;
    use super::*;
    use crate::request::KnownLease;

    fn renew() -> SimRequest {
        let held = KnownLease { lease: LeaseId { slot: 0, reuse: 0 }, number: n(5), session: None };
        SimRequest::Renew { held, progress: None }
    }

    fn attempt(kind: ImpostorKind, answer: Answer, effect: ImpostorEffect) -> CheckFinding {
        let attempt = ImpostorAttempt { kind, request: renew(), answer, effect };
        check(&history([HistoryEvent::ImpostorAnswered(Box::new(attempt))]))
    }

    fn current() -> Answer {
        Answer::Current(CurrentLease { number: n(5), remaining_ms: 1, drain_ms: None, overlaps_ms: None })
    }

    #[test]
    fn a_copy_of_a_request_is_refused_and_an_outsider_learns_nothing() {
        use ImpostorEffect::{Lifted, None, Recorded};
        let denied = || Answer::Refused(Refusal::Denied("not yours"));
        let unknown = || Answer::Refused(Refusal::NotCurrent(NotCurrent::Unknown));
        assert_eq!(attempt(ImpostorKind::Neighbor, denied(), None), Ok(()));
        assert_eq!(attempt(ImpostorKind::Outsider, unknown(), None), Ok(()));
        assert_eq!(attempt(ImpostorKind::Neighbor, current(), None).unwrap_err().promise, "A6");
        assert_eq!(attempt(ImpostorKind::Neighbor, denied(), Recorded).unwrap_err().promise, "A6");
        assert_eq!(attempt(ImpostorKind::Neighbor, denied(), Lifted).unwrap_err().promise, "A9");
        assert_eq!(attempt(ImpostorKind::Twin, denied(), None), Ok(()));
        assert_eq!(attempt(ImpostorKind::Twin, current(), None).unwrap_err().promise, "A6");
        assert_eq!(attempt(ImpostorKind::Outsider, unknown(), Lifted).unwrap_err().promise, "A4");
        assert_eq!(attempt(ImpostorKind::Outsider, denied(), None).unwrap_err().promise, "A5");
        assert_eq!(attempt(ImpostorKind::Stranger, denied(), None), Ok(()));
        assert_eq!(attempt(ImpostorKind::Stranger, denied(), Lifted).unwrap_err().promise, "A4");
    }

    #[test]
    fn only_the_owner_of_a_lease_renews_it() {
        let run = |owner: &str| {
            let Record::Granted(granted) = granted(0, 5, "jobs/a") else { panic!("a grant") };
            let record = Record::Granted(GrantRecord { owner: Some(owner), ..granted });
            let actor = SimActor::Holder(3).index() as u32;
            let asks = HistoryEvent::Requested { op: 1, actor, request: renew() };
            history([batch(&[record]), asks, reply_sent(1, 1, 0, current())])
        };
        assert_eq!(check(&run(&identity_of(3))), Ok(()));
        assert_eq!(check(&run(&identity_of(4))).unwrap_err().promise, "A6");
    }
}
