//! H3: a lease with an announced end is over soon after that time, even if one side is gone.

use leasehold_core::limits::TURN_NORMAL;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};

/// A turn may be this late without counting as a stall, and the following one too.
const SLACK: u64 = 3 * TURN_NORMAL;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    let mut stalled_ms = 0;
    walk(history, |at, model, step| {
        match step {
            WalkStep::Other(HistoryEvent::Stalled { ms, .. }) => stalled_ms = *ms,
            WalkStep::Batch => {
                let over = |until: &leasehold_core::time::GrantorTime| model.time > until.plus(SLACK + stalled_ms);
                if let Some(lease) = model.leases.values().find(|lease| lease.until.as_ref().is_some_and(over)) {
                    let detail =
                        format!("{} was to end by {:?} and is held at {}", lease.number, lease.until, model.time);
                    return broken("H3", at, detail);
                }
                stalled_ms = 0;
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::{DrainCause, Record};
    use leasehold_core::time::GrantorTime;

    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn a_drain_ends_in_time_unless_it_is_withdrawn() {
        let draining = || {
            let cause = DrainCause::Priority;
            batch(&[granted(0, 5, "jobs/a"), Record::Draining { lease: 0, cause, until: GrantorTime(400) }])
        };
        assert_eq!(check(&history([draining(), batch_at(500, &[Record::Idle])])), Ok(()));
        assert_eq!(check(&history([draining(), batch_at(5_000, &[Record::Idle])])).unwrap_err().promise, "H3");
        let off = batch_at(300, &[Record::DrainDropped { lease: 0 }]);
        assert_eq!(check(&history([draining(), off, batch_at(5_000, &[Record::Idle])])), Ok(()));
    }
}
