//! C1: no grant and no resize takes more units than there are. C3: shrinking takes nothing away. C4: nothing that is over
//! is confirmed.

use leasehold_core::lease::Reason;
use leasehold_core::record::Record;

use super::ledger::{Lease, Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// Reads the records.
pub fn check(history: &History) -> Finding {
    let mut before = 0;
    walk(history, |at, ledger, met| {
        let changed = match met {
            Met::Before(Record::HoldResized { lease, .. }) => {
                before = ledger.leases.get(lease).map_or(0, |lease| ledger.used(&lease.resource));
                None
            }
            Met::After(Record::Granted(granted)) => ledger.leases.get(&granted.lease.slot),
            // Giving some back is no taking, also where a smaller capacity is oversold already.
            Met::After(Record::HoldResized { lease, .. }) => {
                ledger.leases.get(lease).filter(|lease| ledger.used(&lease.resource) > before)
            }
            Met::Before(Record::HoldConfirmed { lease, number }) => {
                let held = ledger.leases.get(lease).filter(|lease| lease.number == number.get());
                let over = |lease: &Lease| lease.max_hold.is_some_and(|most| ledger.time >= lease.granted.plus(most));
                return if held.is_some_and(|lease| !over(lease)) {
                    Ok(())
                } else {
                    broken("C4", at, format!("{number} is confirmed and not held"))
                };
            }
            // Nobody in these worlds takes anything away by policy.
            Met::Before(Record::Ended { number, reason: Reason::Policy, .. }) => {
                return broken("C3", at, format!("{number} is taken away by a smaller capacity"));
            }
            _ => None,
        };
        let Some(lease) = changed.filter(|lease| lease.units() > 0) else { return Ok(()) };
        let most = ledger.capacity.get(&lease.resource).copied().unwrap_or(1);
        let used = ledger.used(&lease.resource);
        if used > most {
            return broken("C1", at, format!("{} has {used} of {most} units taken", lease.resource));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Access;

    use super::super::sample::*;
    use super::*;

    fn takes(slot: u32, number: u64, units: u32) -> Record<'static> {
        let Record::Granted(mut grant) = granted(slot, number, "units/u") else { panic!("a grant") };
        grant.access = Access::Units(units);
        Record::Granted(grant)
    }

    const TEN: Record<'static> = Record::Capacity { resource: "units/u", units: 10, lasting: true };

    #[test]
    fn as_much_as_there_is_may_be_taken_and_no_more() {
        assert_eq!(check(&history([landed(&[TEN, takes(0, 5, 6), takes(1, 6, 4)])])), Ok(()));
        assert_eq!(check(&history([landed(&[TEN, takes(0, 5, 6), takes(1, 6, 5)])])).unwrap_err().promise, "C1");
        let grown = [TEN, takes(0, 5, 6), takes(1, 6, 4), Record::HoldResized { lease: 1, units: 5 }];
        assert_eq!(check(&history([landed(&grown)])).unwrap_err().promise, "C1");
    }

    #[test]
    fn what_is_committed_stays_taken_and_only_what_is_held_is_committed() {
        let confirm = || Record::HoldConfirmed { lease: 0, number: n(5) };
        let beside = [TEN, takes(0, 5, 6), confirm(), takes(1, 6, 5)];
        assert_eq!(check(&history([landed(&beside)])).unwrap_err().promise, "C1");
        assert_eq!(check(&history([landed(&[confirm()])])).unwrap_err().promise, "C4");
        let Record::Granted(mut short) = takes(0, 5, 6) else { panic!("a grant") };
        short.max_hold = Some(500);
        let late = |time| history([landed(&[TEN, Record::Granted(short)]), landed_at(time, &[confirm()])]);
        assert_eq!(check(&late(499)), Ok(()));
        assert_eq!(check(&late(500)).unwrap_err().promise, "C4");
    }

    #[test]
    fn a_smaller_capacity_takes_nothing_away() {
        let taken = Record::Ended { lease: 0, number: n(5), reason: Reason::Policy, hold: false, why: "" };
        assert_eq!(check(&history([landed(&[TEN, takes(0, 5, 6), taken])])).unwrap_err().promise, "C3");
    }
}
