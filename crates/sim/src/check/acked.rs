//! L3: what was told to be granted is on record when it is told. L7, E1: a deposed grantor tells nothing to who asks later,
//! reads included. X3: nobody takes silence for an answer.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{Met, walk};
use super::tokens;
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads answers against the records.
pub fn check(history: &History) -> Finding {
    let mut asked = BTreeMap::new();
    let mut reigns = (0, 0);
    let mut told = BTreeSet::new();
    walk(history, |at, ledger, met| {
        match met {
            Met::Other(Event::Asked { op, ask, .. }) => {
                let reads = matches!(ask, Ask::Confirm { .. } | Ask::Show);
                asked.insert(*op, (at, if reads { "E1" } else { "L7" }));
            }
            Met::Other(Event::Answered { op, answer, .. }) if !told.contains(op) => {
                return broken("X3", at, format!("#{op} is taken for {answer:?}, which nobody told"));
            }
            Met::Other(Event::Serving { generation, .. }) if *generation > reigns.0 => reigns = (*generation, at),
            Met::Other(Event::Told { op, generation, answer, .. }) => {
                told.insert(*op);
                if let Some((_, promise)) =
                    asked.get(op).filter(|(asked, _)| *generation < reigns.0 && *asked > reigns.1)
                {
                    let why = format!("generation {generation} answers #{op}, which was asked under {}", reigns.0);
                    return broken(promise, at, why);
                }
                let is_receipt = matches!(answer, leasehold_core::command::Answer::Delivery(_));
                for number in tokens::granted(answer) {
                    if !is_receipt && !ledger.numbers.contains_key(&number) {
                        return broken("L3", at, format!("{number} is told to be granted and is not on record"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn a_grant_is_told_after_it_is_on_record_and_never_before() {
        assert_eq!(check(&history([asked(1), landed(&[granted(0, 5, "jobs/a")]), told(1, 5)])), Ok(()));
        let early = history([asked(1), told(1, 5), landed(&[granted(0, 5, "jobs/a")])]);
        assert_eq!(check(&early).unwrap_err().promise, "L3");
    }

    #[test]
    fn silence_is_no_answer() {
        let lands = || landed(&[granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([asked(1), lands(), told(1, 5), answered(1, 5)])), Ok(()));
        assert_eq!(check(&history([asked(1), lands(), answered(1, 5)])).unwrap_err().promise, "X3");
    }

    #[test]
    fn a_deposed_grantor_may_answer_what_was_asked_before_and_nothing_later() {
        let serving = |generation| Event::Serving { server: 0, generation };
        let legal = history([serving(1), asked_to_renew(1, 0, 5), serving(2), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([serving(1), serving(2), asked_to_renew(1, 0, 5), tells(1, 1, 0, current(5))]);
        assert_eq!(check(&illegal).unwrap_err().promise, "L7");
    }
}
