//! F6: a reported zombie is on record when the report is acknowledged.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::coverage::CoverageRecord;
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks reports against the records.
pub fn check(history: &History) -> CheckFinding {
    let mut reported = BTreeMap::new();
    let mut known = Vec::new();
    walk(history, |at, _, step| {
        match step {
            WalkStep::Before(Record::Coverage(CoverageRecord::Zombie { presented, .. })) => known.push(*presented),
            WalkStep::Other(HistoryEvent::Requested { op, request: SimRequest::Report { presented, .. }, .. }) => {
                reported.insert(*op, *presented);
            }
            WalkStep::Other(HistoryEvent::ReplySent { op, answer: Answer::Done, .. }) => {
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
    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn a_reported_zombie_is_on_record() {
        let report = || HistoryEvent::Requested {
            op: 1,
            actor: 7,
            request: SimRequest::Report { target: 0, presented: n(5), mark: n(6) },
        };
        let (resource, target, holder) = ("jobs/a".into(), "target".into(), "a".into());
        let record =
            CoverageRecord::Zombie { resource, slot: 0, target, presented: n(5), mark: n(6), times: 1, holder };
        let acknowledged = || reply_sent(1, 1, 0, Answer::Done);
        assert_eq!(check(&history([report(), batch(&[Record::Coverage(record)]), acknowledged()])), Ok(()));
        assert_eq!(check(&history([report(), acknowledged()])).unwrap_err().promise, "F6");
    }
}
