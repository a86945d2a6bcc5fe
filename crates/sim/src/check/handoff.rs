//! H3: whatever was announced to end has ended soon after its time, whichever side is gone.

use leasehold_core::limits::TURN_NORMAL;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::{Event, History};

/// A turn may be late by this much without counting as a stall, and the one after it too.
const SLACK: u64 = 3 * TURN_NORMAL;

/// Reads the records.
pub fn check(history: &History) -> Finding {
    let mut stood = 0;
    walk(history, |at, ledger, met| {
        match met {
            Met::Other(Event::Stood { ms, .. }) => stood = *ms,
            Met::Batch => {
                let over = |until: &leasehold_core::time::Millis| ledger.time > until.plus(SLACK + stood);
                if let Some(lease) = ledger.leases.values().find(|lease| lease.until.as_ref().is_some_and(over)) {
                    let why = format!("{} was to go by {:?} and is held at {}", lease.number, lease.until, ledger.time);
                    return broken("H3", at, why);
                }
                stood = 0;
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::{Cause, Record};
    use leasehold_core::time::Millis;

    use super::super::sample::*;
    use super::*;

    #[test]
    fn what_was_to_go_is_gone_unless_that_is_off() {
        let told = || {
            let cause = Cause::Priority;
            landed(&[granted(0, 5, "jobs/a"), Record::Draining { lease: 0, cause, until: Millis(400) }])
        };
        assert_eq!(check(&history([told(), landed_at(500, &[Record::Idle])])), Ok(()));
        assert_eq!(check(&history([told(), landed_at(5_000, &[Record::Idle])])).unwrap_err().promise, "H3");
        let off = landed_at(300, &[Record::DrainDropped { lease: 0 }]);
        assert_eq!(check(&history([told(), off, landed_at(5_000, &[Record::Idle])])), Ok(()));
    }
}
