//! L4: a renewal succeeds only if the lease was current at some instant inside the call, and a told end is on record.
//! L5: only under its own token. L6: what was revoked is over when that is told.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::refusal::Refusal;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads answers against the records.
pub fn check(history: &History) -> Finding {
    let mut asked: BTreeMap<u64, (u64, Ask, u64)> = BTreeMap::new();
    let mut over: BTreeMap<u64, u64> = BTreeMap::new();
    walk(history, |at, ledger, met| {
        match met {
            Met::Batch if ledger.ended.len() > over.len() => {
                for number in ledger.ended.keys() {
                    over.entry(*number).or_insert(at);
                }
            }
            Met::SetBack => over.clear(),
            Met::Other(Event::Asked { op, ask, .. }) => {
                let highest = ledger.numbers.keys().next_back().copied().unwrap_or(0);
                asked.insert(*op, (at, ask.clone(), highest));
            }
            Met::Other(Event::Told { op, answer, .. }) => match (asked.get(op), answer) {
                (Some((since, Ask::Renew { held, .. } | Ask::Confirm { held }, _)), Answer::Current(current)) => {
                    if current.number != held.number {
                        return broken("L5", at, format!("{} was shown and {} renewed", held.number, current.number));
                    }
                    let carried = ledger.leases.values().find(|lease| lease.number == held.number.get());
                    if let (Some(other), Some(session)) = (held.session, carried.and_then(|lease| lease.session))
                        && other.slot != session
                    {
                        return broken(
                            "L5",
                            at,
                            format!("{} is another session's, and {other} was told of it", held.number),
                        );
                    }
                    if over.get(&held.number.get()).is_some_and(|over| over < since) {
                        return broken(
                            "L4",
                            at,
                            format!("{} is renewed; it was over when that was asked", held.number),
                        );
                    }
                }
                (
                    Some((_, Ask::Renew { held, .. } | Ask::Confirm { held }, _)),
                    Answer::Refused(Refusal::Lost(reason)),
                ) => {
                    let number = held.number.get();
                    if ledger.numbers.contains_key(&number) && !ledger.ended.contains_key(&number) {
                        return broken(
                            "L4",
                            at,
                            format!("{number} is told to be over ({reason}), which is not on record"),
                        );
                    }
                }
                (Some((_, Ask::Revoke { resource, grace: 0 }, highest)), Answer::Done) => {
                    let mut left = ledger.leases.values().filter(|lease| lease.resource == *resource);
                    if let Some(left) = left.find(|lease| lease.number <= *highest) {
                        return broken("L6", at, format!("{} is told to be revoked and is held", left.number));
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
    use leasehold_core::lease::Reason;
    use leasehold_core::record::Record;

    use super::super::sample::*;
    use super::*;

    fn end() -> Event {
        landed(&[Record::Ended { lease: 0, number: n(5), reason: Reason::Operator, hold: false, why: "" }])
    }

    fn grant() -> Event {
        landed(&[granted(0, 5, "jobs/a")])
    }

    #[test]
    fn a_renewal_that_overlaps_the_end_is_legal_and_one_asked_after_it_is_not() {
        let overlaps = history([grant(), asked_to_renew(1, 0, 5), end(), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&overlaps), Ok(()));
        let after = history([grant(), end(), asked_to_renew(1, 0, 5), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&after).unwrap_err().promise, "L4");
    }

    #[test]
    fn an_end_is_told_when_it_is_on_record() {
        let lost = || tells(1, 1, 0, Answer::Refused(Refusal::Lost(Reason::Ttl)));
        assert_eq!(check(&history([grant(), asked_to_renew(1, 0, 5), end(), lost()])), Ok(()));
        assert_eq!(check(&history([grant(), asked_to_renew(1, 0, 5), lost(), end()])).unwrap_err().promise, "L4");
    }

    #[test]
    fn nobody_renews_under_another_token() {
        let other = history([grant(), asked_to_renew(1, 0, 4), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&other).unwrap_err().promise, "L5");
    }

    #[test]
    fn nobody_confirms_what_another_session_carries() {
        let Record::Granted(mut carried) = granted(0, 5, "jobs/a") else { panic!("a grant") };
        carried.session = Some(1);
        let asks = |slot| {
            let session = Some(leasehold_core::ids::SessionId { slot, reuse: 0 });
            let held = crate::ask::Known { lease: id(0), number: n(5), session };
            Event::Asked { op: 1, who: 8, ask: Ask::Confirm { held } }
        };
        let run = |slot| history([landed(&[Record::Granted(carried)]), asks(slot), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&run(1)), Ok(()));
        assert_eq!(check(&run(2)).unwrap_err().promise, "L5");
    }

    #[test]
    fn what_is_told_to_be_revoked_is_over() {
        let asks = || Event::Asked { op: 1, who: 7, ask: Ask::Revoke { resource: "jobs/a", grace: 0 } };
        assert_eq!(check(&history([grant(), asks(), end(), tells(1, 1, 0, Answer::Done)])), Ok(()));
        assert_eq!(check(&history([grant(), asks(), tells(1, 1, 0, Answer::Done)])).unwrap_err().promise, "L6");
    }
}
