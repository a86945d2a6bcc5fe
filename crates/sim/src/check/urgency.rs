//! P1: who must go for somebody more urgent is given its grace. And how urgent each wait is, as P2 has it: as urgent as
//! whoever waits for what its actor holds, over any number of steps.

use std::collections::BTreeMap;

use leasehold_core::lease::Reason;
use leasehold_core::record::{Cause, Record};

use super::ledger::{Ledger, Met, Wait, walk};
use super::{Finding, broken};
use crate::ask::RUSH_GRACE;
use crate::history::History;

/// Reads the records.
pub fn check(history: &History) -> Finding {
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Draining { lease, cause: Cause::Priority, until }) => {
                let Some(held) = ledger.leases.get(lease) else { return Ok(()) };
                if *until < ledger.time.plus(RUSH_GRACE) {
                    return broken("P1", at, format!("{} is told at {} to go by {until}", held.number, ledger.time));
                }
            }
            Met::Before(Record::Ended { lease, number, reason: Reason::Priority, .. }) => {
                let until = ledger.leases.get(lease).and_then(|lease| lease.until);
                if until.is_none_or(|until| ledger.time < until) {
                    return broken("P1", at, format!("{number} must go at {}, and was told {until:?}", ledger.time));
                }
            }
            _ => {}
        }
        Ok(())
    })
}

/// How urgent each wait is, by its place.
pub fn effective(ledger: &Ledger) -> BTreeMap<u32, u8> {
    let mut urgent: BTreeMap<u32, u8> = ledger.waits.iter().map(|(id, wait)| (*id, wait.priority)).collect();
    loop {
        let mut raised = false;
        for (id, wait) in &ledger.waits {
            let highest = inherits(ledger, &urgent, wait);
            let own = urgent.get_mut(id).expect("every wait is listed");
            raised |= highest > *own;
            *own = highest.max(*own);
        }
        if !raised {
            return urgent;
        }
    }
}

/// The most urgent wait for anything that this one's actor holds.
fn inherits(ledger: &Ledger, urgent: &BTreeMap<u32, u8>, wait: &Wait) -> u8 {
    let held = ledger.leases.values().filter(|of| of.session == Some(wait.session) && of.holder == wait.holder);
    let waits_for = |name: &String| {
        let waits = ledger.waits.iter().filter(move |(_, other)| other.asks.iter().any(|(asked, _)| asked == name));
        waits.map(|(id, _)| urgent[id]).max().unwrap_or(0)
    };
    held.map(|lease| waits_for(&lease.resource)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Millis;

    use super::super::sample::*;
    use super::*;

    fn told(until: u64) -> Record<'static> {
        Record::Draining { lease: 0, cause: Cause::Priority, until: Millis(until) }
    }

    fn gone() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: Reason::Priority, hold: false, why: "" }
    }

    #[test]
    fn who_must_go_is_told_and_has_its_grace() {
        let legal = [landed(&[granted(0, 5, "rush/p"), told(RUSH_GRACE)]), landed_at(RUSH_GRACE, &[gone()])];
        assert_eq!(check(&history(legal)), Ok(()));
        let short = history([landed(&[granted(0, 5, "rush/p"), told(RUSH_GRACE - 1)])]);
        assert_eq!(check(&short).unwrap_err().promise, "P1");
        let early = [landed(&[granted(0, 5, "rush/p"), told(RUSH_GRACE)]), landed_at(RUSH_GRACE - 1, &[gone()])];
        assert_eq!(check(&history(early)).unwrap_err().promise, "P1");
        assert_eq!(check(&history([landed(&[granted(0, 5, "rush/p"), gone()])])).unwrap_err().promise, "P1");
    }

    #[test]
    fn who_is_waited_for_is_as_urgent_as_who_waits() {
        let wait = |waiter, name, resource, priority| {
            let Record::Waiting(mut wait) = waiting(waiter, waiter, name, resource) else { panic!("a wait") };
            wait.priority = priority;
            Record::Waiting(wait)
        };
        let Record::Granted(mut held) = granted(0, 5, "jobs/b") else { panic!("a grant") };
        (held.session, held.holder) = (Some(0), "a");
        let records = [opened(1), Record::Granted(held), wait(0, "a", "jobs/a", 100), wait(1, "b", "jobs/b", 200)];
        let mut seen = BTreeMap::new();
        let walked: Result<(), ()> = walk(&history([landed(&records)]), |_, ledger, met| {
            if let Met::Batch = met {
                seen = effective(ledger);
            }
            Ok(())
        });
        assert_eq!((walked, seen), (Ok(()), BTreeMap::from([(0, 200), (1, 200)])));
    }
}
