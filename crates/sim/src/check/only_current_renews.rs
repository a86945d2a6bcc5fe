//! L4: a renewal succeeds only if the lease was current at some instant within the call, and a reported end is on record. L5:
//! only under the lease's own token. L6: a revoked lease is over when the reply is sent.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::refusal::Refusal;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks replies against the records.
pub fn check(history: &History) -> CheckFinding {
    let mut requested: BTreeMap<u64, (u64, SimRequest, u64)> = BTreeMap::new();
    let mut over: BTreeMap<u64, u64> = BTreeMap::new();
    walk(history, |at, model, step| {
        match step {
            WalkStep::Batch if model.ended.len() > over.len() => {
                for number in model.ended.keys() {
                    over.entry(*number).or_insert(at);
                }
            }
            WalkStep::JournalReverted => over.clear(),
            WalkStep::Other(HistoryEvent::Requested { op, request, .. }) => {
                let highest = model.numbers.keys().next_back().copied().unwrap_or(0);
                requested.insert(*op, (at, request.clone(), highest));
            }
            WalkStep::Other(HistoryEvent::ReplySent { op, answer, .. }) => match (requested.get(op), answer) {
                (
                    Some((since, SimRequest::Renew { held, .. } | SimRequest::Confirm { held }, _)),
                    Answer::Current(current),
                ) => {
                    if current.number != held.number {
                        return broken(
                            "L5",
                            at,
                            format!("{} was presented and {} renewed", held.number, current.number),
                        );
                    }
                    let carried = model.leases.values().find(|lease| lease.number == held.number.get());
                    if let (Some(other), Some(session)) = (held.session, carried.and_then(|lease| lease.session))
                        && other.slot != session
                    {
                        return broken("L5", at, format!("{} belongs to another session than {other}", held.number));
                    }
                    if over.get(&held.number.get()).is_some_and(|over| over < since) {
                        return broken(
                            "L4",
                            at,
                            format!("{} is renewed, but had ended before the request", held.number),
                        );
                    }
                }
                (
                    Some((_, SimRequest::Renew { held, .. } | SimRequest::Confirm { held }, _)),
                    Answer::Refused(Refusal::Lost(reason)),
                ) => {
                    let number = held.number.get();
                    if model.numbers.contains_key(&number) && !model.ended.contains_key(&number) {
                        return broken(
                            "L4",
                            at,
                            format!("{number} is reported as ended ({reason}), but its end is not on record"),
                        );
                    }
                }
                (Some((_, SimRequest::Revoke { resource, grace: 0 }, highest)), Answer::Done) => {
                    let mut left = model.leases.values().filter(|lease| lease.resource == *resource);
                    if let Some(left) = left.find(|lease| lease.number <= *highest) {
                        return broken("L6", at, format!("{} is reported as revoked, but still held", left.number));
                    }
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::EndReason;
    use leasehold_core::record::Record;

    use super::super::sample_histories::*;
    use super::*;

    fn end() -> HistoryEvent {
        batch(&[Record::Ended { lease: 0, number: n(5), reason: EndReason::Operator, hold: false, comment: "" }])
    }

    fn grant() -> HistoryEvent {
        batch(&[granted(0, 5, "jobs/a")])
    }

    #[test]
    fn a_renewal_that_overlaps_the_end_is_legal_and_one_requested_after_it_is_not() {
        let overlaps = history([grant(), renew_requested(1, 0, 5), end(), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&overlaps), Ok(()));
        let after = history([grant(), end(), renew_requested(1, 0, 5), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&after).unwrap_err().promise, "L4");
    }

    #[test]
    fn an_end_is_reported_only_after_it_is_on_record() {
        let lost = || reply_sent(1, 1, 0, Answer::Refused(Refusal::Lost(EndReason::Ttl)));
        assert_eq!(check(&history([grant(), renew_requested(1, 0, 5), end(), lost()])), Ok(()));
        assert_eq!(check(&history([grant(), renew_requested(1, 0, 5), lost(), end()])).unwrap_err().promise, "L4");
    }

    #[test]
    fn a_renewal_under_another_token_is_found() {
        let other = history([grant(), renew_requested(1, 0, 4), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&other).unwrap_err().promise, "L5");
    }

    #[test]
    fn a_confirmation_by_another_session_is_found() {
        let Record::Granted(mut carried) = granted(0, 5, "jobs/a") else { panic!("a grant") };
        carried.session = Some(1);
        let asks = |slot| {
            let session = Some(leasehold_core::ids::SessionId { slot, reuse: 0 });
            let held = crate::request::KnownLease { lease: id(0), number: n(5), session };
            HistoryEvent::Requested { op: 1, actor: 8, request: SimRequest::Confirm { held } }
        };
        let run = |slot| history([batch(&[Record::Granted(carried)]), asks(slot), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&run(1)), Ok(()));
        assert_eq!(check(&run(2)).unwrap_err().promise, "L5");
    }

    #[test]
    fn a_revoked_lease_is_over_when_the_reply_is_sent() {
        let asks = || HistoryEvent::Requested {
            op: 1,
            actor: 7,
            request: SimRequest::Revoke { resource: "jobs/a", grace: 0 },
        };
        assert_eq!(check(&history([grant(), asks(), end(), reply_sent(1, 1, 0, Answer::Done)])), Ok(()));
        assert_eq!(check(&history([grant(), asks(), reply_sent(1, 1, 0, Answer::Done)])).unwrap_err().promise, "L6");
    }
}
