//! P1: a preempted holder gets its grace. Also the effective priority of each wait for P2: a wait inherits the priority of
//! waits for what its actor holds, transitively.

use std::collections::BTreeMap;

use leasehold_core::lease::EndReason;
use leasehold_core::record::{DrainCause, Record};

use super::recorded_state::{Model, ModelWait, WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;
use crate::run_constants::RUSH_GRACE;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Draining { lease, cause: DrainCause::Priority, until }) => {
                let Some(held) = model.leases.get(lease) else { return Ok(()) };
                if *until < model.time.plus(RUSH_GRACE) {
                    return broken(
                        "P1",
                        at,
                        format!("{} is preempted at {} with only until {until}", held.number, model.time),
                    );
                }
            }
            WalkStep::Before(Record::Ended { lease, number, reason: EndReason::Priority, .. }) => {
                let until = model.leases.get(lease).and_then(|lease| lease.until);
                if until.is_none_or(|until| model.time < until) {
                    return broken(
                        "P1",
                        at,
                        format!("{number} is ended at {}, but its grace lasts until {until:?}", model.time),
                    );
                }
            }
            _ => {}
        }
        Ok(())
    })
}

/// Effective priority of each wait.
pub fn effective_priorities(model: &Model) -> BTreeMap<u32, u8> {
    let mut priorities: BTreeMap<u32, u8> = model.waits.iter().map(|(id, wait)| (*id, wait.priority)).collect();
    loop {
        let mut raised = false;
        for (id, wait) in &model.waits {
            let highest = inherited_priority(model, &priorities, wait);
            let own = priorities.get_mut(id).expect("every wait has a priority");
            raised |= highest > *own;
            *own = highest.max(*own);
        }
        if !raised {
            return priorities;
        }
    }
}

/// Highest priority of the waits for any lease of this wait's actor.
fn inherited_priority(model: &Model, priorities: &BTreeMap<u32, u8>, wait: &ModelWait) -> u8 {
    let held = model.leases.values().filter(|of| of.session == Some(wait.session) && of.holder == wait.holder);
    let waits_for = |name: &String| {
        let waits =
            model.waits.iter().filter(move |(_, other)| other.wanted.iter().any(|(requested, _)| requested == name));
        waits.map(|(id, _)| priorities[id]).max().unwrap_or(0)
    };
    held.map(|lease| waits_for(&lease.resource)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::GrantorTime;

    use super::super::sample_histories::*;
    use super::*;

    fn draining(until: u64) -> Record<'static> {
        Record::Draining { lease: 0, cause: DrainCause::Priority, until: GrantorTime(until) }
    }

    fn preempted() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: EndReason::Priority, hold: false, comment: "" }
    }

    #[test]
    fn a_preempted_holder_gets_its_grace() {
        let legal = [batch(&[granted(0, 5, "rush/p"), draining(RUSH_GRACE)]), batch_at(RUSH_GRACE, &[preempted()])];
        assert_eq!(check(&history(legal)), Ok(()));
        let short = history([batch(&[granted(0, 5, "rush/p"), draining(RUSH_GRACE - 1)])]);
        assert_eq!(check(&short).unwrap_err().promise, "P1");
        let early = [batch(&[granted(0, 5, "rush/p"), draining(RUSH_GRACE)]), batch_at(RUSH_GRACE - 1, &[preempted()])];
        assert_eq!(check(&history(early)).unwrap_err().promise, "P1");
        assert_eq!(check(&history([batch(&[granted(0, 5, "rush/p"), preempted()])])).unwrap_err().promise, "P1");
    }

    #[test]
    fn a_wait_inherits_the_priority_of_waits_for_its_actors_leases() {
        let wait = |waiter, name, resource, priority| {
            let Record::Waiting(mut wait) = waiting(waiter, waiter, name, resource) else { panic!("a wait") };
            wait.priority = priority;
            Record::Waiting(wait)
        };
        let Record::Granted(mut held) = granted(0, 5, "jobs/b") else { panic!("a grant") };
        (held.session, held.holder) = (Some(0), "a");
        let records = [opened(1), Record::Granted(held), wait(0, "a", "jobs/a", 100), wait(1, "b", "jobs/b", 200)];
        let mut seen = BTreeMap::new();
        let walked: Result<(), ()> = walk(&history([batch(&records)]), |_, model, step| {
            if let WalkStep::Batch = step {
                seen = effective_priorities(model);
            }
            Ok(())
        });
        assert_eq!((walked, seen), (Ok(()), BTreeMap::from([(0, 200), (1, 200)])));
    }
}
