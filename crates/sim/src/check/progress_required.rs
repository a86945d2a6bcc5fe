//! G1: a holder that must report progress and does not loses its lease, however often it renews, across failovers.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::record::Record;

use super::last_renewals::{DeadlineEntry, DeadlineKey, Deadlines};
use super::never_endless::latest;
use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks the records against reported progress.
pub fn check(history: &History) -> CheckFinding {
    let mut deadlines = Deadlines::new(false);
    let mut reported: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut recorded: BTreeMap<u64, u64> = BTreeMap::new();
    walk(history, |at, model, step| {
        match step {
            WalkStep::After(record @ Record::Opened { .. }) => {
                deadlines.record(model, record);
                // A new grantor knows only recorded progress; unrecorded progress may be reported again.
                highest.clone_from(&recorded);
            }
            WalkStep::After(Record::Progressed { lease, at }) => {
                recorded.extend(model.leases.get(lease).map(|lease| (lease.number, *at)));
            }
            WalkStep::After(Record::Granted(granted)) => {
                if let Some(window) = granted.progress {
                    let entry = DeadlineEntry { ttl: window, generation: model.generation, time: model.time };
                    deadlines.entries.insert(DeadlineKey::Lease(granted.number.get()), entry);
                }
            }
            WalkStep::JournalReverted => {
                deadlines.journal_reverted();
                highest.clear();
                recorded.clear();
            }
            WalkStep::Batch => {
                for lease in model.leases.values().filter(|lease| lease.progress.is_some()) {
                    let Some(entry) = deadlines.entries.get(&DeadlineKey::Lease(lease.number)) else { continue };
                    let latest = latest(&deadlines, model, entry);
                    if model.time > latest {
                        let detail = format!("{} reports no progress until {latest} and is held", lease.number);
                        return broken("G1", at, detail);
                    }
                }
            }
            WalkStep::Other(HistoryEvent::Requested {
                op,
                request: SimRequest::Renew { held, progress: Some(progress) },
                ..
            }) => {
                reported.insert(*op, (held.number.get(), *progress));
            }
            WalkStep::Other(HistoryEvent::Decided { op, generation, time, answer: Answer::Current(_), .. }) => {
                let Some((number, progress)) = reported.get(op) else { return Ok(()) };
                // A successor does not know what a deposed grantor received.
                if *generation == model.generation
                    && *progress > highest.get(number).copied().unwrap_or(0)
                    && let Some(entry) = deadlines.entries.get_mut(&DeadlineKey::Lease(*number))
                {
                    (entry.generation, entry.time) = (*generation, *time);
                    highest.insert(*number, *progress);
                }
            }
            WalkStep::Other(event @ HistoryEvent::Stalled { .. }) => deadlines.event(event),
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Number;

    use super::super::sample_histories::*;
    use super::*;
    use crate::request::KnownLease;

    fn held() -> HistoryEvent {
        let Record::Granted(mut grant) = granted(0, 5, "work/w") else { panic!("a grant") };
        grant.progress = Some(1_000);
        batch_at(100, &[opened(1), Record::Granted(grant)])
    }

    fn report_progress(op: u64, progress: u64, time: u64) -> [HistoryEvent; 2] {
        let held = KnownLease { lease: id(0), number: Number::new(5).expect("a number"), session: None };
        let request = SimRequest::Renew { held, progress: Some(progress) };
        [HistoryEvent::Requested { op, actor: 8, request }, decided(op, 1, time, current(5))]
    }

    #[test]
    fn progress_keeps_a_lease_and_renewals_alone_do_not() {
        let idle = |time| batch_at(time, &[Record::Idle]);
        let run = |again| {
            history(
                [held()]
                    .into_iter()
                    .chain(report_progress(1, 1, 900))
                    .chain(report_progress(2, again, 1_800))
                    .chain([idle(2_700)]),
            )
        };
        assert_eq!(check(&run(2)), Ok(()));
        assert_eq!(check(&run(1)).unwrap_err().promise, "G1");
    }
}
