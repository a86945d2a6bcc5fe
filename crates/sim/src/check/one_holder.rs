//! L1: at every point of the journal, an exclusive lease is the only one on its resource. H2: the predecessor of a requested
//! overlap is the only exception.

use std::collections::BTreeSet;

use leasehold_core::lease::Access;
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    let mut overlaps = BTreeSet::new();
    walk(history, |at, model, step| {
        if let WalkStep::Other(HistoryEvent::Requested {
            request: SimRequest::Handoff { resource, overlap: true, .. },
            ..
        }) = step
        {
            overlaps.insert(*resource);
        }
        let WalkStep::After(Record::Granted(granted)) = step else { return Ok(()) };
        if granted.overlaps.is_some() && !overlaps.contains(granted.resource) {
            let detail =
                format!("{} on {} overlaps its predecessor without a request", granted.number, granted.resource);
            return broken("H2", at, detail);
        }
        let on_it = || model.leases.values().filter(|lease| lease.resource == granted.resource);
        let alone = on_it().any(|lease| lease.access == Access::Exclusive && !lease.overlapped);
        let current = on_it().filter(|lease| !lease.overlapped).count();
        if alone && current > 1 {
            let numbers: Vec<_> = on_it().map(|lease| lease.number).collect();
            return broken("L1", at, format!("{} is held under {numbers:?} at the same time", granted.resource));
        }
        if on_it().filter(|lease| lease.overlapped).count() > 1 && alone {
            return broken("H2", at, format!("{} has several predecessors that still drain", granted.resource));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::EndReason;

    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn a_successor_after_the_end_is_legal_and_one_before_it_is_not() {
        let end = Record::Ended { lease: 0, number: n(5), reason: EndReason::Ttl, hold: false, comment: "" };
        let legal = history([batch(&[granted(0, 5, "jobs/a"), end, granted(1, 6, "jobs/a")])]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([batch(&[granted(0, 5, "jobs/a"), granted(1, 6, "jobs/a")])]);
        assert_eq!(check(&illegal).unwrap_err().promise, "L1");
    }

    #[test]
    fn only_a_requested_overlap_allows_a_predecessor() {
        let Record::Granted(mut successor) = granted(1, 6, "jobs/a") else { panic!("a grant") };
        successor.overlaps = Some(0);
        let asks = |overlap| {
            let request = SimRequest::Handoff { resource: "jobs/a", overlap, drain: 100 };
            HistoryEvent::Requested { op: 1, actor: 7, request }
        };
        let run = |overlap| history([asks(overlap), batch(&[granted(0, 5, "jobs/a"), Record::Granted(successor)])]);
        assert_eq!(check(&run(true)), Ok(()));
        assert_eq!(check(&run(false)).unwrap_err().promise, "H2");
    }
}
