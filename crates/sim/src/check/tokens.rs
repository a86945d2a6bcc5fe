//! T1, T3: numbers increase in record order, and each is issued once. T2, T4, T5, T9: a grant has a higher number than every
//! number received before it was requested, across crashes, failovers, rollbacks and restores.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::Answer;
use leasehold_core::payload::delivery;
use leasehold_core::record::Record;
use leasehold_core::token::Number;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks records and replies.
pub fn check(history: &History) -> CheckFinding {
    let mut highest = 0;
    let mut highest_received = 0;
    let mut requested: BTreeMap<u64, u64> = BTreeMap::new();
    let mut rotates = BTreeSet::new();
    let clocks_wrong = history.has_wrong_clocks();
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(record) => {
                if let Record::Rotated { lease, number } = record
                    && let Some(held) = model.leases.get(lease).filter(|held| !rotates.contains(&held.number))
                {
                    return broken("T3", at, format!("{} is rotated to {number} without a request", held.number));
                }
                for number in numbers(record) {
                    if number <= highest && !clocks_wrong {
                        return broken("T1", at, format!("{number} is issued after {highest}"));
                    }
                    highest = number;
                }
            }
            // A number may be reissued only if no holder received it.
            WalkStep::JournalReverted => {
                highest = highest_received.max(model.numbers.keys().next_back().copied().unwrap_or(0))
            }
            WalkStep::Other(HistoryEvent::Requested { op, request, .. }) => {
                if let SimRequest::Rotate { held } = request {
                    rotates.insert(held.number.get());
                }
                // A reentrant acquire returns the existing number.
                let again = matches!(request, SimRequest::Acquire { options, .. } if options.reentrant);
                requested.insert(*op, if again { 0 } else { highest_received });
            }
            WalkStep::Other(HistoryEvent::ReplySent { op, answer, .. }) => {
                for number in granted(answer) {
                    let before = requested.get(op).copied().unwrap_or(0);
                    if number <= before && !clocks_wrong {
                        return broken(
                            "T2",
                            at,
                            format!("{number} is granted, but {before} was received before the request"),
                        );
                    }
                }
            }
            WalkStep::Other(HistoryEvent::ReplyReceived { answer, .. }) => {
                highest_received = granted(answer).into_iter().fold(highest_received, u64::max);
            }
            _ => {}
        }
        Ok(())
    })
}

/// Numbers that a record issues.
pub(super) fn numbers(record: &Record<'_>) -> Vec<u64> {
    match record {
        Record::Granted(granted) => vec![granted.number.get()],
        Record::Rotated { number, .. } => vec![number.get()],
        Record::Cache(record) => record.numbers().into_iter().map(Number::get).collect(),
        Record::Delivery(delivery::DeliveryRecord::Delivered { first, items, .. }) => {
            (0..items.len() as u64).map(|i| first.get() + i).collect()
        }
        _ => Vec::new(),
    }
}

/// Numbers that a reply grants. A renewal's number is an old one.
pub(super) fn granted(answer: &Answer) -> Vec<u64> {
    match answer {
        Answer::Granted(grant) => vec![grant.number.get()],
        Answer::GrantedAll(grants) => grants.iter().map(|grant| grant.number.get()).collect(),
        Answer::Delivery(answer) => match &**answer {
            delivery::DeliveryAnswer::Received(items) => items.iter().map(|item| item.receipt.get()).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::{self, batch, granted, history};
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn increasing_numbers_are_legal_and_a_repeated_one_is_not() {
        assert_eq!(check(&history([batch(&[granted(0, 5, "jobs/a")]), batch(&[granted(1, 6, "jobs/b")])])), Ok(()));
        let again = history([batch(&[granted(0, 5, "jobs/a")]), batch(&[granted(1, 5, "jobs/b")])]);
        assert_eq!(check(&again).unwrap_err().promise, "T1");
    }

    #[test]
    fn after_a_rollback_only_numbers_that_no_holder_received_may_be_issued_again() {
        let lost = || HistoryEvent::JournalReverted { cause: Fault::Rollback, batches: vec![] };
        let grant = || batch(&[granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), lost(), grant()])), Ok(()));
        let highest_received = history([grant(), sample_histories::grant_received(1, 5), lost(), grant()]);
        assert_eq!(check(&highest_received).unwrap_err().promise, "T1");
    }

    #[test]
    fn a_number_is_rotated_only_on_request() {
        let rotated =
            || batch(&[granted(0, 5, "jobs/a"), Record::Rotated { lease: 0, number: sample_histories::n(6) }]);
        let held = crate::request::KnownLease {
            lease: sample_histories::id(0),
            number: sample_histories::n(5),
            session: None,
        };
        let asks = HistoryEvent::Requested { op: 1, actor: 8, request: SimRequest::Rotate { held } };
        assert_eq!(check(&history([asks, rotated()])), Ok(()));
        assert_eq!(check(&history([rotated()])).unwrap_err().promise, "T3");
    }

    #[test]
    fn a_later_request_is_granted_a_higher_number() {
        let legal = history([
            sample_histories::requested(1),
            sample_histories::grant_received(1, 5),
            sample_histories::requested(2),
            sample_histories::grant_sent(2, 6),
        ]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([
            sample_histories::requested(1),
            sample_histories::grant_received(1, 5),
            sample_histories::requested(2),
            sample_histories::grant_sent(2, 4),
        ]);
        assert_eq!(check(&illegal).unwrap_err().promise, "T2");
    }
}
