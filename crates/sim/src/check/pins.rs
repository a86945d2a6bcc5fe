//! B1: a collector is told to delete only below every live pin, and nothing below what it was told is pinned any more.

use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// Reads the records.
pub fn check(history: &History) -> Finding {
    walk(history, |at, ledger, met| match met {
        Met::Before(Record::Pinned { lease, at: pin }) => {
            let resource = ledger.leases.get(lease).map(|lease| &lease.resource);
            let floor = resource.and_then(|resource| ledger.floors.get(resource)).copied().unwrap_or(0);
            if *pin < floor { broken("B1", at, format!("{pin} is pinned, below the floor {floor}")) } else { Ok(()) }
        }
        Met::Before(Record::Floor { resource, at: floor }) => {
            let on_it = ledger.leases.values().filter(|lease| lease.resource == **resource);
            match on_it.filter_map(|lease| lease.pin).find(|pin| pin < floor) {
                Some(pin) => broken("B1", at, format!("everything below {floor} may go, and {pin} is pinned")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::{Access, Reason};

    use super::super::sample::*;
    use super::*;

    fn reads() -> Record<'static> {
        let Record::Granted(mut grant) = granted(0, 5, "read/r") else { panic!("a grant") };
        grant.access = Access::Shared;
        Record::Granted(grant)
    }

    fn floor(at: u64) -> Record<'static> {
        Record::Floor { resource: "read/r", at }
    }

    fn pinned(at: u64) -> Record<'static> {
        Record::Pinned { lease: 0, at }
    }

    #[test]
    fn what_is_pinned_stays_until_its_reader_is_gone() {
        let end = Record::Ended { lease: 0, number: n(5), reason: Reason::Ttl, hold: false, why: "" };
        assert_eq!(check(&history([landed(&[reads(), pinned(7), floor(7)])])), Ok(()));
        assert_eq!(check(&history([landed(&[reads(), pinned(7), end, floor(9)])])), Ok(()));
        assert_eq!(check(&history([landed(&[reads(), pinned(7), floor(8)])])).unwrap_err().promise, "B1");
    }

    #[test]
    fn what_may_be_deleted_is_not_pinned() {
        assert_eq!(check(&history([landed(&[floor(7), reads(), pinned(7)])])), Ok(()));
        assert_eq!(check(&history([landed(&[floor(7), reads(), pinned(6)])])).unwrap_err().promise, "B1");
    }
}
