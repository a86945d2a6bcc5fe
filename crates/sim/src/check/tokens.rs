//! T1, T3: numbers rise in the order of the records, each is given out once. T2, T4, T5, T9: whatever was told before
//! something was asked has a lower number than what that is granted, over crashes, failovers, rollbacks and restores.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::Answer;
use leasehold_core::payload::delivery;
use leasehold_core::record::Record;
use leasehold_core::token::Number;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads records and answers.
pub fn check(history: &History) -> Finding {
    let mut highest = 0;
    let mut told = 0;
    let mut asked: BTreeMap<u64, u64> = BTreeMap::new();
    let mut rotates = BTreeSet::new();
    let wrong = history.has_wrong_clocks();
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(record) => {
                if let Record::Rotated { lease, number } = record
                    && let Some(held) = ledger.leases.get(lease).filter(|held| !rotates.contains(&held.number))
                {
                    return broken("T3", at, format!("{} becomes {number}, which nobody asked for", held.number));
                }
                for number in numbers(record) {
                    if number <= highest && !wrong {
                        return broken("T1", at, format!("{number} is given out after {highest}"));
                    }
                    highest = number;
                }
            }
            // What nobody was told binds nobody; what was told stays above.
            Met::SetBack => highest = told.max(ledger.numbers.keys().next_back().copied().unwrap_or(0)),
            Met::Other(Event::Asked { op, ask, .. }) => {
                if let Ask::Rotate { held } = ask {
                    rotates.insert(held.number.get());
                }
                // What is entered again has its number already.
                let again = matches!(ask, Ask::Acquire { how, .. } if how.again);
                asked.insert(*op, if again { 0 } else { told });
            }
            Met::Other(Event::Told { op, answer, .. }) => {
                for number in granted(answer) {
                    let before = asked.get(op).copied().unwrap_or(0);
                    if number <= before && !wrong {
                        return broken(
                            "T2",
                            at,
                            format!("{number} is told; {before} was told before it was asked for"),
                        );
                    }
                }
            }
            Met::Other(Event::Answered { answer, .. }) => {
                told = granted(answer).into_iter().fold(told, u64::max);
            }
            _ => {}
        }
        Ok(())
    })
}

/// The numbers that a record gives out.
pub(super) fn numbers(record: &Record<'_>) -> Vec<u64> {
    match record {
        Record::Granted(granted) => vec![granted.number.get()],
        Record::Rotated { number, .. } => vec![number.get()],
        Record::Cache(fact) => fact.numbers().into_iter().map(Number::get).collect(),
        Record::Delivery(delivery::Fact::Delivered { first, items, .. }) => {
            (0..items.len() as u64).map(|i| first.get() + i).collect()
        }
        _ => Vec::new(),
    }
}

/// The numbers of the grants that an answer tells. Those of a renewal are old ones.
pub(super) fn granted(answer: &Answer) -> Vec<u64> {
    match answer {
        Answer::Granted(grant) => vec![grant.number.get()],
        Answer::GrantedAll(grants) => grants.iter().map(|grant| grant.number.get()).collect(),
        Answer::Delivery(told) => match &**told {
            delivery::Answer::Received(items) => items.iter().map(|item| item.receipt.get()).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{self, granted, history, landed};
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn numbers_that_rise_are_legal_and_one_that_comes_again_is_not() {
        assert_eq!(check(&history([landed(&[granted(0, 5, "jobs/a")]), landed(&[granted(1, 6, "jobs/b")])])), Ok(()));
        let again = history([landed(&[granted(0, 5, "jobs/a")]), landed(&[granted(1, 5, "jobs/b")])]);
        assert_eq!(check(&again).unwrap_err().promise, "T1");
    }

    #[test]
    fn after_a_rollback_what_nobody_was_told_may_come_again_and_what_was_told_may_not() {
        let lost = || Event::SetBack { why: Fault::Rollback, batches: vec![] };
        let grant = || landed(&[granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), lost(), grant()])), Ok(()));
        let told = history([grant(), sample::answered(1, 5), lost(), grant()]);
        assert_eq!(check(&told).unwrap_err().promise, "T1");
    }

    #[test]
    fn a_number_is_replaced_only_where_that_was_asked_for() {
        let rotated = || landed(&[granted(0, 5, "jobs/a"), Record::Rotated { lease: 0, number: sample::n(6) }]);
        let held = crate::ask::Known { lease: sample::id(0), number: sample::n(5), session: None };
        let asks = Event::Asked { op: 1, who: 8, ask: Ask::Rotate { held } };
        assert_eq!(check(&history([asks, rotated()])), Ok(()));
        assert_eq!(check(&history([rotated()])).unwrap_err().promise, "T3");
    }

    #[test]
    fn what_is_asked_for_later_is_granted_higher() {
        let legal = history([sample::asked(1), sample::answered(1, 5), sample::asked(2), sample::told(2, 6)]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([sample::asked(1), sample::answered(1, 5), sample::asked(2), sample::told(2, 4)]);
        assert_eq!(check(&illegal).unwrap_err().promise, "T2");
    }
}
