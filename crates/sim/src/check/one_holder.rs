//! L1: at every point of the journal an exclusive lease is alone on its resource; H2: in an overlap its predecessor is
//! counted apart, there is one at most, and nobody begins beside another unless that was asked for.

use std::collections::BTreeSet;

use leasehold_core::lease::Access;
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads the records.
pub fn check(history: &History) -> Finding {
    let mut overlaps = BTreeSet::new();
    walk(history, |at, ledger, met| {
        if let Met::Other(Event::Asked { ask: Ask::HandOff { resource, overlap: true, .. }, .. }) = met {
            overlaps.insert(*resource);
        }
        let Met::After(Record::Granted(granted)) = met else { return Ok(()) };
        if granted.overlaps.is_some() && !overlaps.contains(granted.resource) {
            let why = format!(
                "{} on {} begins beside its predecessor, and nobody asked for that",
                granted.number, granted.resource
            );
            return broken("H2", at, why);
        }
        let on_it = || ledger.leases.values().filter(|lease| lease.resource == granted.resource);
        let alone = on_it().any(|lease| lease.access == Access::Exclusive && !lease.apart);
        let current = on_it().filter(|lease| !lease.apart).count();
        if alone && current > 1 {
            let numbers: Vec<_> = on_it().map(|lease| lease.number).collect();
            return broken("L1", at, format!("{} is held under {numbers:?} at once", granted.resource));
        }
        if on_it().filter(|lease| lease.apart).count() > 1 && alone {
            return broken("H2", at, format!("{} has several predecessors that still drain", granted.resource));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Reason;

    use super::super::sample::*;
    use super::*;

    #[test]
    fn a_successor_after_the_end_is_legal_and_one_beside_the_holder_is_not() {
        let end = Record::Ended { lease: 0, number: n(5), reason: Reason::Ttl, hold: false, why: "" };
        let legal = history([landed(&[granted(0, 5, "jobs/a"), end, granted(1, 6, "jobs/a")])]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([landed(&[granted(0, 5, "jobs/a"), granted(1, 6, "jobs/a")])]);
        assert_eq!(check(&illegal).unwrap_err().promise, "L1");
    }

    #[test]
    fn the_predecessor_of_an_overlap_is_counted_apart() {
        let Record::Granted(mut successor) = granted(1, 6, "jobs/a") else { panic!("a grant") };
        successor.overlaps = Some(0);
        let asks = |overlap| {
            let ask = Ask::HandOff { resource: "jobs/a", overlap, drain: 100 };
            Event::Asked { op: 1, who: 7, ask }
        };
        let run = |overlap| history([asks(overlap), landed(&[granted(0, 5, "jobs/a"), Record::Granted(successor)])]);
        assert_eq!(check(&run(true)), Ok(()));
        assert_eq!(check(&run(false)).unwrap_err().promise, "H2");
    }
}
