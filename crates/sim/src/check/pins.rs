//! B1: a collector may delete only below every live pin, and nothing below its floor is pinned later.

use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    walk(history, |at, model, step| match step {
        WalkStep::Before(Record::Pinned { lease, at: pin }) => {
            let resource = model.leases.get(lease).map(|lease| &lease.resource);
            let floor = resource.and_then(|resource| model.floors.get(resource)).copied().unwrap_or(0);
            if *pin < floor { broken("B1", at, format!("{pin} is pinned, below the floor {floor}")) } else { Ok(()) }
        }
        WalkStep::Before(Record::Floor { resource, at: floor }) => {
            let on_it = model.leases.values().filter(|lease| lease.resource == **resource);
            match on_it.filter_map(|lease| lease.pin).find(|pin| pin < floor) {
                Some(pin) => broken("B1", at, format!("everything below {floor} may be deleted, but {pin} is pinned")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::{Access, EndReason};

    use super::super::sample_histories::*;
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
    fn nothing_pinned_may_be_deleted_until_its_lease_ends() {
        let end = Record::Ended { lease: 0, number: n(5), reason: EndReason::Ttl, hold: false, comment: "" };
        assert_eq!(check(&history([batch(&[reads(), pinned(7), floor(7)])])), Ok(()));
        assert_eq!(check(&history([batch(&[reads(), pinned(7), end, floor(9)])])), Ok(()));
        assert_eq!(check(&history([batch(&[reads(), pinned(7), floor(8)])])).unwrap_err().promise, "B1");
    }

    #[test]
    fn nothing_below_the_floor_is_pinned() {
        assert_eq!(check(&history([batch(&[floor(7), reads(), pinned(7)])])), Ok(()));
        assert_eq!(check(&history([batch(&[floor(7), reads(), pinned(6)])])).unwrap_err().promise, "B1");
    }
}
