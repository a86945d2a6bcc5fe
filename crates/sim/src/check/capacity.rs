//! C1: no grant and no resize uses more units than the capacity. C3: a smaller capacity ends no lease. C4: only current
//! reservations are confirmed.

use leasehold_core::lease::EndReason;
use leasehold_core::record::Record;

use super::recorded_state::{ModelLease, WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    let mut before = 0;
    walk(history, |at, model, step| {
        let changed = match step {
            WalkStep::Before(Record::HoldResized { lease, .. }) => {
                before = model.leases.get(lease).map_or(0, |lease| model.used(&lease.resource));
                None
            }
            WalkStep::After(Record::Granted(granted)) => model.leases.get(&granted.lease.slot),
            // Releasing units is allowed, even if a smaller capacity is already oversold.
            WalkStep::After(Record::HoldResized { lease, .. }) => {
                model.leases.get(lease).filter(|lease| model.used(&lease.resource) > before)
            }
            WalkStep::Before(Record::HoldConfirmed { lease, number }) => {
                let held = model.leases.get(lease).filter(|lease| lease.number == number.get());
                let over =
                    |lease: &ModelLease| lease.max_hold.is_some_and(|limit| model.time >= lease.granted.plus(limit));
                return if held.is_some_and(|lease| !over(lease)) {
                    Ok(())
                } else {
                    broken("C4", at, format!("{number} is confirmed and not held"))
                };
            }
            // No simulated policy ends leases.
            WalkStep::Before(Record::Ended { number, reason: EndReason::Policy, .. }) => {
                return broken("C3", at, format!("{number} is ended by a smaller capacity"));
            }
            _ => None,
        };
        let Some(lease) = changed.filter(|lease| lease.units() > 0) else { return Ok(()) };
        let limit = model.capacity.get(&lease.resource).copied().unwrap_or(1);
        let used = model.used(&lease.resource);
        if used > limit {
            return broken("C1", at, format!("{} has {used} of {limit} units in use", lease.resource));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Access;

    use super::super::sample_histories::*;
    use super::*;

    fn grant_units(slot: u32, number: u64, units: u32) -> Record<'static> {
        let Record::Granted(mut grant) = granted(slot, number, "units/u") else { panic!("a grant") };
        grant.access = Access::Units(units);
        Record::Granted(grant)
    }

    const TEN: Record<'static> = Record::Capacity { resource: "units/u", units: 10, lasting: true };

    #[test]
    fn grants_use_at_most_the_capacity() {
        assert_eq!(check(&history([batch(&[TEN, grant_units(0, 5, 6), grant_units(1, 6, 4)])])), Ok(()));
        assert_eq!(
            check(&history([batch(&[TEN, grant_units(0, 5, 6), grant_units(1, 6, 5)])])).unwrap_err().promise,
            "C1"
        );
        let grown = [TEN, grant_units(0, 5, 6), grant_units(1, 6, 4), Record::HoldResized { lease: 1, units: 5 }];
        assert_eq!(check(&history([batch(&grown)])).unwrap_err().promise, "C1");
    }

    #[test]
    fn confirmed_units_stay_used_and_only_held_units_are_confirmed() {
        let confirm = || Record::HoldConfirmed { lease: 0, number: n(5) };
        let beside = [TEN, grant_units(0, 5, 6), confirm(), grant_units(1, 6, 5)];
        assert_eq!(check(&history([batch(&beside)])).unwrap_err().promise, "C1");
        assert_eq!(check(&history([batch(&[confirm()])])).unwrap_err().promise, "C4");
        let Record::Granted(mut short) = grant_units(0, 5, 6) else { panic!("a grant") };
        short.max_hold = Some(500);
        let late = |time| history([batch(&[TEN, Record::Granted(short)]), batch_at(time, &[confirm()])]);
        assert_eq!(check(&late(499)), Ok(()));
        assert_eq!(check(&late(500)).unwrap_err().promise, "C4");
    }

    #[test]
    fn a_smaller_capacity_ends_no_lease() {
        let taken = Record::Ended { lease: 0, number: n(5), reason: EndReason::Policy, hold: false, comment: "" };
        assert_eq!(check(&history([batch(&[TEN, grant_units(0, 5, 6), taken])])).unwrap_err().promise, "C3");
    }
}
