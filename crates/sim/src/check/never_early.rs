//! L2, L12: no lease expires before its last renewal, as replied, plus its ttl, plus the time its grantor was stalled. No
//! holder with a correct clock believes that it holds an expired lease.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::GrantorTime;

use super::last_renewals::{Deadlines, ends};
use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::fault::Fault;
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks the records against replies, and holders' actions against the records.
pub fn check(history: &History) -> CheckFinding {
    let mut deadlines = Deadlines::new(true);
    let mut server_clocks_ok = true;
    let mut requested = BTreeMap::new();
    let mut stalled = (0, GrantorTime(0));
    // Numbers up to this were issued before the journal was reverted: replies about them are lost.
    let mut reverted = 0;
    let mut highest = 0;
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(record) => {
                for key in ends(model, record) {
                    let Some(entry) = deadlines.entries.get(&key) else { continue };
                    let base = deadlines.base(entry, model.generation);
                    let same = entry.generation == model.generation;
                    let stalled = if same { deadlines.stalled_since(model.generation, base).min(entry.ttl) } else { 0 };
                    let deadline = base.plus(entry.ttl + stalled);
                    if model.time < deadline {
                        let promise = if stalled > 0 && model.time >= base.plus(entry.ttl) { "L12" } else { "L2" };
                        let detail = format!("{key:?} ends at {}, before its deadline {deadline}", model.time);
                        return broken(promise, at, detail);
                    }
                }
            }
            WalkStep::After(record) => {
                deadlines.record(model, record);
                highest = model.numbers.keys().next_back().copied().unwrap_or(0).max(highest);
            }
            WalkStep::JournalReverted => {
                deadlines.journal_reverted();
                reverted = highest;
            }
            WalkStep::Other(HistoryEvent::FaultInjected { fault: Fault::ServerDrift, .. }) => server_clocks_ok = false,
            WalkStep::Other(HistoryEvent::HolderActed { actor, number, clock_ok: true })
                if server_clocks_ok && number.get() > reverted =>
            {
                // After a rollback a session id may belong to another session; only the fence stops a holder that still uses
                // it.
                if let Some(reason @ (EndReason::Ttl | EndReason::Session | EndReason::MaxHold | EndReason::HandedOff)) =
                    model.ended.get(&number.get())
                    && (*reason != EndReason::Session || reverted == 0)
                {
                    let detail = format!("actor {actor} believes that it holds under {number}, which ended: {reason}");
                    return broken("L2", at, detail);
                }
            }
            WalkStep::Other(event @ HistoryEvent::Stalled { generation, time, .. }) => {
                stalled = (*generation, *time);
                deadlines.event(event);
            }
            WalkStep::Other(HistoryEvent::Requested { op, request: SimRequest::Renew { held, .. }, .. }) => {
                requested.insert(*op, held.number.get());
                deadlines.event(&HistoryEvent::Requested {
                    op: *op,
                    actor: 0,
                    request: SimRequest::Renew { held: *held, progress: None },
                });
            }
            // A stalled grantor processes queued requests before it ends leases.
            WalkStep::Other(HistoryEvent::Decided {
                op,
                generation,
                time,
                answer: Answer::Refused(Refusal::Lost(EndReason::Ttl)),
                ..
            }) => {
                let waits =
                    requested.get(op).filter(|number| model.leases.values().any(|lease| lease.number == **number));
                if let Some(number) =
                    waits.filter(|_| stalled == (*generation, *time) && *generation == model.generation)
                {
                    return broken(
                        "L12",
                        at,
                        format!("the renewal of {number} is refused after a stall of the grantor"),
                    );
                }
            }
            WalkStep::Other(event) => deadlines.event(event),
            WalkStep::Batch => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::Record;

    use super::super::sample_histories::*;
    use super::*;

    fn end() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: EndReason::Ttl, hold: false, comment: "" }
    }

    #[test]
    fn an_end_at_the_deadline_is_legal_and_one_before_it_is_not() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), batch_at(1_100, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), batch_at(1_099, &[end()])])).unwrap_err().promise, "L2");
    }

    #[test]
    fn a_renewal_moves_the_deadline_only_if_its_reply_was_sent() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let replied =
            history([grant(), renew_requested(1, 0, 5), reply_sent(1, 1, 600, current(5)), batch_at(1_200, &[end()])]);
        assert_eq!(check(&replied).unwrap_err().promise, "L2");
        let decided =
            history([grant(), renew_requested(1, 0, 5), decided(1, 1, 600, current(5)), batch_at(1_200, &[end()])]);
        assert_eq!(check(&decided), Ok(()));
    }

    #[test]
    fn a_stalled_grantor_credits_the_stall() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let stalled = || HistoryEvent::Stalled { server: 0, generation: 1, time: GrantorTime(900), ms: 400 };
        assert_eq!(check(&history([grant(), stalled(), batch_at(1_500, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), stalled(), batch_at(1_300, &[end()])])).unwrap_err().promise, "L12");
    }

    #[test]
    fn a_stalled_grantor_processes_queued_renewals_first() {
        let start = || [batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]), renew_requested(1, 0, 5)].into_iter();
        let stalled = HistoryEvent::Stalled { server: 0, generation: 1, time: GrantorTime(2_000), ms: 900 };
        let reverted = || decided(1, 1, 2_000, Answer::Refused(Refusal::Lost(EndReason::Ttl)));
        assert_eq!(check(&history(start().chain([reverted()]))), Ok(()));
        assert_eq!(check(&history(start().chain([stalled, reverted()]))).unwrap_err().promise, "L12");
    }

    #[test]
    fn a_belief_in_an_expired_lease_is_found_unless_the_clock_is_wrong() {
        let grant = || batch_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let acts = |clock_ok| HistoryEvent::HolderActed { actor: 8, number: n(5), clock_ok };
        assert_eq!(check(&history([grant(), acts(true), batch_at(1_100, &[end()])])), Ok(()));
        assert!(check(&history([grant(), batch_at(1_100, &[end()]), acts(true)])).is_err());
        assert_eq!(check(&history([grant(), batch_at(1_100, &[end()]), acts(false)])), Ok(()));
    }
}
