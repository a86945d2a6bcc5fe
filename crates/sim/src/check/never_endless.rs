//! L9: a lease that is not renewed ends within its bound, across stalls and failovers. L10: no lease is endless.

use leasehold_core::command::Answer;
use leasehold_core::limits::TURN_NORMAL;
use leasehold_core::time::GrantorTime;

use super::last_renewals::{DeadlineEntry, DeadlineKey, Deadlines, ends};
use super::recorded_state::{Model, WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::run_constants::MAX_TTL;

/// A turn may be this late without counting as a stall, and the following one too.
const SLACK: u64 = 3 * TURN_NORMAL;

/// Checks the records against decisions.
pub fn check(history: &History) -> CheckFinding {
    let mut deadlines = Deadlines::new(false);
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(record) => {
                for key in ends(model, record) {
                    let Some(entry) = deadlines.entries.get(&key) else { continue };
                    let latest = latest(&deadlines, model, entry);
                    if model.time > latest {
                        let detail = format!("{key:?} ends at {}, after {latest}", model.time);
                        return broken("L9", at, detail);
                    }
                }
            }
            WalkStep::After(record) => deadlines.record(model, record),
            WalkStep::JournalReverted => deadlines.journal_reverted(),
            WalkStep::Other(HistoryEvent::RunEnded { served: Some(served) }) => {
                model.time = *served;
                for lease in model.leases.values() {
                    let Some(entry) = deadlines.entries.get(&DeadlineKey::Lease(lease.number)) else { continue };
                    if *served > latest(&deadlines, model, entry) {
                        return broken("L9", at, format!("{} is still held at {served}", lease.number));
                    }
                }
            }
            WalkStep::Other(event) => {
                if let HistoryEvent::ReplySent { time, answer, .. } = event {
                    check_bound(model, *time, answer).or_else(|detail| broken("L10", at, detail))?;
                }
                deadlines.event(event);
            }
            WalkStep::Batch => {}
        }
        Ok(())
    })
}

pub(super) fn latest(deadlines: &Deadlines, model: &Model, entry: &DeadlineEntry) -> GrantorTime {
    let base = deadlines.base(entry, model.generation);
    let credit = deadlines.stalled_since(model.generation, base).min(entry.ttl);
    // Credit of the renewal's tenure stays used, and is at most one ttl in total.
    let credit = if entry.generation == model.generation { credit } else { entry.ttl };
    base.plus(entry.ttl + credit + SLACK + deadlines.stalled_at(model.generation, model.time))
}

/// Checks that a reply's remaining time is within its maximum.
fn check_bound(model: &Model, now: GrantorTime, answer: &Answer) -> Result<(), String> {
    let (number, remaining) = match answer {
        Answer::Granted(grant) => (grant.number, grant.remaining_ms),
        Answer::Current(current) => (current.number, current.remaining_ms),
        _ => return Ok(()),
    };
    // Up to one ttl of credit on top of the ttl.
    if remaining > 2 * MAX_TTL {
        return Err(format!("the reply for {number} has {remaining} ms remaining"));
    }
    let lease = model.leases.values().find(|lease| lease.number == number.get());
    let end = lease.and_then(|lease| Some(lease.granted.plus(lease.max_hold?)));
    match end {
        Some(end) if now.plus(remaining) > end => {
            Err(format!("the reply for {number} lasts until {}, beyond its maximum hold {end}", now.plus(remaining)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::EndReason;
    use leasehold_core::record::Record;

    use super::super::sample_histories::*;
    use super::*;

    fn end() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: EndReason::Ttl, hold: false, comment: "" }
    }

    #[test]
    fn an_end_within_a_turn_of_the_deadline_is_legal_and_one_much_later_is_not() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), batch_at(1_200, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), batch_at(2_000, &[end()])])).unwrap_err().promise, "L9");
    }

    #[test]
    fn an_opening_extends_only_renewals_before_it() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let opening = |generation, time| batch_at(time, &[opened(generation)]);
        let legal = history([grant(), opening(2, 600), batch_at(1_650, &[end()])]);
        assert_eq!(check(&legal), Ok(()));
        let again = [opening(3, 1_100), opening(4, 1_600), opening(5, 2_100), opening(6, 2_600)];
        let endless = history([grant(), opening(2, 600)].into_iter().chain(again).chain([batch_at(3_600, &[end()])]));
        assert_eq!(check(&endless).unwrap_err().promise, "L9");
    }

    #[test]
    fn a_reply_with_an_endless_lease_is_found() {
        let Answer::Granted(mut endless) = grant(5) else { panic!("a grant") };
        endless.remaining_ms = u64::MAX;
        let replied = history([requested(1), reply_sent(1, 1, 0, Answer::Granted(endless))]);
        assert_eq!(check(&replied).unwrap_err().promise, "L10");
    }
}
