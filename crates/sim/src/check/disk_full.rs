//! V4: no lease is granted while the disk is full.

use leasehold_core::command::Answer;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::fault::Fault;
use crate::history::{History, HistoryEvent};

/// Checks decisions made while the disk was full against the records at that time.
pub fn check(history: &History) -> CheckFinding {
    let mut full = false;
    walk(history, |at, model, step| {
        match step {
            WalkStep::Other(HistoryEvent::FaultInjected { fault: Fault::DiskFull, .. }) => full = !full,
            WalkStep::Other(HistoryEvent::Healed) => full = false,
            WalkStep::Other(HistoryEvent::Decided { answer: Answer::Granted(grant), generation, .. })
                // The reply to an earlier grant may be repeated, even when the disk is full.
                if full && *generation == model.generation && !model.numbers.contains_key(&grant.number.get()) =>
            {
                return broken("V4", at, format!("{} is granted while the disk is full", grant.number));
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
    fn a_full_disk_grants_nothing_new_and_may_repeat_a_reply() {
        let full = || HistoryEvent::FaultInjected { fault: Fault::DiskFull, detail: String::new() };
        let start = || batch(&[opened(1)]);
        let decide = || decided(1, 1, 0, grant(5));
        assert_eq!(check(&history([start(), decide()])), Ok(()));
        let again = [start(), batch(&[granted(0, 5, "jobs/a")]), full(), decide()];
        assert_eq!(check(&history(again)), Ok(()));
        assert_eq!(check(&history([start(), full(), decide()])).unwrap_err().promise, "V4");
    }
}
