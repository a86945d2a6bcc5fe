//! T5, T9: a restored or rolled-back cluster issues numbers above all received ones, and grants nothing for one maximum ttl. A
//! grantor that is presented a newer number, or one that its journal lost, records the rollback before it replies. A number that
//! the journal issued never counts as lost.

use std::collections::BTreeSet;

use leasehold_core::record::Record;
use leasehold_core::time::GrantorTime;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken, tokens};
use crate::history::{History, HistoryEvent};
use crate::run_constants::MAX_TTL;

/// Checks the records against presented and received numbers.
pub fn check(history: &History) -> CheckFinding {
    let mut highest_received = 0;
    let mut pending_newer: Option<(u64, u64)> = None;
    let mut recorded = false;
    // Numbers of grants in the journal, and those that it lost and that no presented token has revealed yet.
    let (mut issued, mut lost) = (BTreeSet::new(), BTreeSet::new());
    let clocks_wrong = history.has_wrong_clocks();
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Restored { counter, quarantine, .. }) => {
                if *counter < highest_received && !clocks_wrong {
                    return broken(
                        "T5",
                        at,
                        format!("restored at {counter}, but {highest_received} was received before"),
                    );
                }
                lost.clear();
                check_length("T5", at, model.time, *quarantine)?;
            }
            WalkStep::Before(Record::RolledBack { presented, quarantine, .. }) => {
                if issued.contains(&presented.get()) {
                    return broken("T9", at, format!("{presented} was issued by this journal and counts as lost"));
                }
                recorded = true;
                lost.clear();
                check_length("T9", at, model.time, *quarantine)?;
            }
            WalkStep::Before(record) => {
                let given = tokens::numbers(record);
                if let Some(number) = given.first().filter(|_| model.time < model.quarantine) {
                    let detail =
                        format!("{number} is issued at {}, in a quarantine until {}", model.time, model.quarantine);
                    return broken("T5", at, detail);
                }
            }
            WalkStep::Batch => {
                if let Some((presented, _)) = pending_newer.take_if(|(_, generation)| *generation == model.generation)
                    && !recorded
                {
                    return broken(
                        "T9",
                        at,
                        format!("{presented} was presented, which is newer or lost, but no rollback is recorded"),
                    );
                }
                recorded = false;
            }
            WalkStep::After(record) => issued.extend(grant_number(record)),
            WalkStep::JournalReverted => {
                pending_newer = None;
                let remaining: BTreeSet<u64> = model.numbers.keys().copied().collect();
                lost.extend(issued.difference(&remaining).copied());
                issued = remaining;
            }
            // With a wrong clock the opening may not have lifted the counter over what was lost.
            WalkStep::Other(HistoryEvent::TokenPresented { presented, generation })
                if lost.contains(presented) && !clocks_wrong =>
            {
                pending_newer = Some((*presented, *generation));
            }
            WalkStep::Other(HistoryEvent::NewerTokenPresented { presented, generation }) => {
                pending_newer = Some((*presented, *generation))
            }
            WalkStep::Other(HistoryEvent::ReplyReceived { answer, .. }) => {
                highest_received = tokens::granted(answer).into_iter().fold(highest_received, u64::max);
            }
            _ => {}
        }
        Ok(())
    })
}

/// The number of a grant; those of payloads are not presented as tokens.
fn grant_number(record: &Record<'_>) -> Option<u64> {
    match record {
        Record::Granted(granted) => Some(granted.number.get()),
        Record::Rotated { number, .. } => Some(number.get()),
        _ => None,
    }
}

fn check_length(promise: &'static str, at: u64, now: GrantorTime, until: GrantorTime) -> CheckFinding {
    if until < now.plus(MAX_TTL) {
        return broken(promise, at, format!("the quarantine from {now} ends too early, at {until}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Incarnation;

    use super::super::sample_histories::*;
    use super::*;
    use crate::fault::Fault;

    fn restored(counter: u64, until: u64) -> Record<'static> {
        Record::Restored { incarnation: Incarnation(2), counter, quarantine: GrantorTime(until) }
    }

    fn rolled_back(until: u64) -> Record<'static> {
        Record::RolledBack { presented: n(9), counter: 9, quarantine: GrantorTime(until) }
    }

    #[test]
    fn a_restore_is_above_all_received_numbers_and_waits() {
        let run = |counter, until| history([grant_received(1, 5), batch(&[opened(2), restored(counter, until)])]);
        assert_eq!(check(&run(5, MAX_TTL)), Ok(()));
        assert_eq!(check(&run(4, MAX_TTL)).unwrap_err().promise, "T5");
        assert_eq!(check(&run(5, MAX_TTL - 1)).unwrap_err().promise, "T5");
        let granted_at = |time| history([batch(&[restored(5, MAX_TTL)]), batch_at(time, &[granted(0, 6, "jobs/a")])]);
        assert_eq!(check(&granted_at(MAX_TTL)), Ok(()));
        assert_eq!(check(&granted_at(MAX_TTL - 1)).unwrap_err().promise, "T5");
    }

    #[test]
    fn a_lost_number_is_recorded_once_and_an_issued_one_never() {
        let start = || batch(&[opened(1), granted(0, 4, "jobs/a")]);
        let kept = |event| match event {
            HistoryEvent::BatchDurable { batch, .. } => batch,
            other => unreachable!("{other:?}"),
        };
        let reverted = || HistoryEvent::JournalReverted { cause: Fault::Rollback, batches: vec![kept(start())] };
        let lose = || [start(), batch(&[granted(1, 9, "jobs/b")]), reverted(), batch(&[opened(2)])];
        let presented = |presented| HistoryEvent::TokenPresented { presented, generation: 2 };
        let run = |end: &[HistoryEvent]| check(&history(lose().into_iter().chain(end.iter().cloned())));
        assert_eq!(run(&[presented(9), batch(&[rolled_back(MAX_TTL)]), presented(9), batch(&[Record::Idle])]), Ok(()));
        assert_eq!(run(&[presented(4), batch(&[Record::Idle])]), Ok(()));
        assert_eq!(run(&[presented(9), batch(&[Record::Idle])]).unwrap_err().promise, "T9");
        let suspected = Record::RolledBack { presented: n(4), counter: 9, quarantine: GrantorTime(MAX_TTL) };
        assert_eq!(run(&[presented(4), batch(&[suspected])]).unwrap_err().promise, "T9");
    }

    #[test]
    fn a_newer_presented_number_is_recorded_first() {
        let presented = || HistoryEvent::NewerTokenPresented { presented: 9, generation: 1 };
        let start = || batch(&[opened(1)]);
        assert_eq!(check(&history([start(), presented(), batch(&[rolled_back(MAX_TTL)])])), Ok(()));
        assert_eq!(check(&history([start(), presented(), batch(&[Record::Idle])])).unwrap_err().promise, "T9");
        assert_eq!(check(&history([start(), presented(), batch(&[rolled_back(10)])])).unwrap_err().promise, "T9");
    }
}
