//! F6: a zombie that a target refused and reported is on record when the report is acknowledged.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::coverage::Fact;
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads the reports against the records.
pub fn check(history: &History) -> Finding {
    let mut reported = BTreeMap::new();
    let mut known = Vec::new();
    walk(history, |at, _, met| {
        match met {
            Met::Before(Record::Coverage(Fact::Zombie { presented, .. })) => known.push(*presented),
            Met::Other(Event::Asked { op, ask: Ask::Report { presented, .. }, .. }) => {
                reported.insert(*op, *presented);
            }
            Met::Other(Event::Told { op, answer: Answer::Done, .. }) => {
                if let Some(presented) = reported.get(op).filter(|presented| !known.contains(presented)) {
                    return broken("F6", at, format!("the zombie under {presented} was reported and is not on record"));
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
    fn a_reported_zombie_is_on_record() {
        let report = || Event::Asked { op: 1, who: 7, ask: Ask::Report { target: 0, presented: n(5), mark: n(6) } };
        let (resource, target, holder) = ("jobs/a".into(), "target".into(), "a".into());
        let fact = Fact::Zombie { resource, slot: 0, target, presented: n(5), mark: n(6), times: 1, holder };
        let told = || tells(1, 1, 0, Answer::Done);
        assert_eq!(check(&history([report(), landed(&[Record::Coverage(fact)]), told()])), Ok(()));
        assert_eq!(check(&history([report(), told()])).unwrap_err().promise, "F6");
    }
}
