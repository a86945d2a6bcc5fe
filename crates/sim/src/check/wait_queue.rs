//! W1: waiters are granted in order of priority and arrival. W4: readers do not pass a waiting writer. W2: no wait times out on
//! a free resource. W3: a canceled or expired wait is over. L8: only waiters of sessions alive in this tenure are granted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::lease::Access;
use leasehold_core::record::{GrantRecord, Record};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::GrantorTime;

use super::recorded_state::{Model, ModelWait, WalkStep, walk};
use super::{CheckFinding, broken, preemption};
use crate::fault::Fault;
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Grantor time, in milliseconds, within which a free resource must be offered: a few turns.
const OFFER_LIMIT: u64 = 600;

/// Checks the records and the replies to cancels.
pub fn check(history: &History) -> CheckFinding {
    let mut free: BTreeMap<u64, GrantorTime> = BTreeMap::new();
    let mut cancels = BTreeMap::new();
    let mut full = false;
    let mut stalled = (0, GrantorTime(0), 0);
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Granted(granted)) => {
                let waiter = granted.waiter.and_then(|waiter| model.waits.get(&waiter));
                if let Some(wait) = waiter
                    && !is_session_alive(model, wait)
                {
                    return broken(
                        "L8",
                        at,
                        format!("{} is granted to a session that is not alive in this tenure", granted.number),
                    );
                }
                let passed = passed_wait(model, granted);
                // A wait for several resources has one grant record for each; the first removes the wait.
                if let Some(passed) = passed
                    && waits_are_simple(model)
                    && (granted.waiter.is_none() || waiter.is_some())
                    && granted.overlaps.is_none()
                {
                    let detail =
                        format!("{} on {} passes the waiting {}", granted.number, granted.resource, passed.holder);
                    return broken(if granted.access == Access::Shared { "W4" } else { "W1" }, at, detail);
                }
            }
            WalkStep::Before(Record::WaitEnded { waiter, refusal: Refusal::Timeout }) => {
                let Some(wait) = model.waits.get(waiter) else { return Ok(()) };
                // A wait gets no credit for a stall: a resource that became free during it was never offered.
                let stalled_ms = if (model.generation, model.time) == (stalled.0, stalled.1) { stalled.2 } else { 0 };
                let since = free.get(&wait.order).filter(|_| !full);
                if let Some(since) = since.filter(|since| model.time > since.plus(OFFER_LIMIT + stalled_ms)) {
                    let (holder, resource) = (&wait.holder, &wait.wanted[0].0);
                    return broken(
                        "W2",
                        at,
                        format!("the wait of {holder} for {resource} timed out, although it was free since {since}"),
                    );
                }
            }
            WalkStep::Before(_) => {}
            WalkStep::After(_) => {}
            WalkStep::Batch => {
                let could: Vec<u64> = grantable(model);
                free.retain(|order, _| could.contains(order));
                for order in could {
                    free.entry(order).or_insert(model.time);
                }
                let late = model.waits.values().find(|wait| model.time > wait.until.plus(OFFER_LIMIT));
                if let Some(wait) = late {
                    return broken("W3", at, format!("{} waits beyond {}", wait.holder, wait.until));
                }
            }
            WalkStep::JournalReverted => free.clear(),
            WalkStep::Other(HistoryEvent::FaultInjected { fault: Fault::DiskFull, .. }) => full = true,
            WalkStep::Other(HistoryEvent::Stalled { generation, time, ms, .. }) => stalled = (*generation, *time, *ms),
            WalkStep::Other(HistoryEvent::Requested {
                op, request: SimRequest::Cancel { session, sequence }, ..
            }) => {
                cancels.insert(*op, (*session, *sequence));
            }
            WalkStep::Other(HistoryEvent::ReplySent { op, answer: Answer::Done, .. }) => {
                if let Some((session, sequence)) = cancels.get(op) {
                    let mut waits = model.waits.values();
                    if waits.any(|wait| wait.session == session.slot && wait.sequence == Some(*sequence)) {
                        return broken(
                            "W3",
                            at,
                            format!("wait {sequence} of {session} is reported as canceled, but still waits"),
                        );
                    }
                }
            }
            WalkStep::Other(_) => {}
        }
        Ok(())
    })
}

/// Waits that can be granted now, by order: for one free exclusive lease, first in the queue, of a live session, outside of a
/// quarantine.
fn grantable(model: &Model) -> Vec<u64> {
    let is_free = |name: &str| !model.leases.values().any(|lease| lease.resource == name);
    let mut waits = model.waits.iter().filter_map(|(id, wait)| match &wait.wanted[..] {
        [(name, Access::Exclusive)] if is_free(name) && is_session_alive(model, wait) => Some((id, wait, name)),
        _ => None,
    });
    let Some(first) = waits.next().filter(|_| model.time >= model.quarantine) else { return Vec::new() };
    let priorities = preemption::effective_priorities(model);
    let rank = |id: &u32, wait: &ModelWait| (Reverse(priorities[id]), wait.order);
    let is_first = |(id, wait, name): &(&u32, &ModelWait, &String)| {
        let others =
            model.waits.iter().filter(|(_, other)| other.wanted.iter().any(|(requested, _)| requested == *name));
        others.into_iter().all(|(other, there)| rank(other, there) >= rank(id, wait))
    };
    std::iter::once(first).chain(waits).filter(is_first).map(|(_, wait, _)| wait.order).collect()
}

fn is_session_alive(model: &Model, wait: &ModelWait) -> bool {
    model.sessions.get(&wait.session).is_some_and(|session| session.alive_in == model.tenure)
}

/// Whether every session waits for one resource only. Waits for several resources can block others by queue order alone, and
/// those may then pass.
fn waits_are_simple(model: &Model) -> bool {
    let mut waiting = std::collections::BTreeSet::new();
    model.waits.values().all(|wait| wait.wanted.len() == 1 && waiting.insert(wait.session))
}

/// The wait that a grant passes: exclusive, for this resource only, of a live session, and before the granted one by priority
/// and order.
fn passed_wait<'a>(model: &'a Model, granted: &GrantRecord<'_>) -> Option<&'a ModelWait> {
    let priorities = preemption::effective_priorities(model);
    let rank = |id: &u32, wait: &ModelWait| (Reverse(priorities[id]), wait.order);
    let own = match granted.waiter {
        None => (Reverse(granted.priority), u64::MAX),
        Some(waiter) => {
            let wait = model.waits.get(&waiter).filter(|wait| wait.wanted.len() == 1)?;
            // The waiting writer may depend on a session that holds something; only such a session may pass it.
            let holds = || model.leases.values().any(|lease| lease.session == Some(wait.session));
            if granted.access == Access::Shared && holds() {
                return None;
            }
            rank(&waiter, wait)
        }
    };
    let waits = model.waits.iter().filter(|(_, wait)| {
        matches!(&wait.wanted[..], [(name, Access::Exclusive)] if name == granted.resource)
            && is_session_alive(model, wait)
    });
    waits.filter(|(id, wait)| rank(id, wait) < own).map(|(_, wait)| wait).next()
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::WaitRecord;

    use super::super::sample_histories::*;
    use super::*;

    fn granted_to(waiter: u32, number: u64) -> Record<'static> {
        let Record::Granted(mut grant) = granted(9, number, "jobs/a") else { panic!("a grant") };
        grant.waiter = Some(waiter);
        Record::Granted(grant)
    }

    fn two_wait() -> HistoryEvent {
        batch(&[
            opened(1),
            session(0, "a"),
            session(1, "b"),
            waiting(0, 0, "a", "jobs/a"),
            waiting(1, 1, "b", "jobs/a"),
        ])
    }

    #[test]
    fn the_first_waiter_is_granted_first() {
        assert_eq!(check(&history([two_wait(), batch(&[granted_to(0, 5)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), batch(&[granted_to(1, 5)])])).unwrap_err().promise, "W1");
        assert_eq!(check(&history([two_wait(), batch(&[granted(9, 5, "jobs/a")])])).unwrap_err().promise, "W1");
    }

    #[test]
    fn a_reader_that_holds_a_lease_may_pass_a_writer_and_other_readers_may_not() {
        let Record::Waiting(mut reads) = waiting(1, 1, "b", "jobs/a") else { panic!("a wait") };
        reads.resources = vec![("jobs/a", Access::Shared)];
        let again = Record::Waiting(WaitRecord { waiter: 2, session: 2, holder: "c", ..reads.clone() });
        let Record::Granted(mut held) = granted(8, 4, "jobs/a") else { panic!("a grant") };
        (held.access, held.session) = (Access::Shared, Some(2));
        let sessions = [opened(1), session(0, "a"), session(1, "b"), session(2, "c"), Record::Granted(held)];
        let waits = [waiting(0, 0, "a", "jobs/a"), Record::Waiting(reads), again];
        let passes = |waiter| {
            let Record::Granted(grant) = granted_to(waiter, 5) else { panic!("a grant") };
            let grant = batch(&[Record::Granted(GrantRecord { access: Access::Shared, ..grant })]);
            check(&history([batch(&sessions), batch(&waits), grant]))
        };
        assert_eq!(passes(2), Ok(()), "the writer waits for it");
        assert_eq!(passes(1).unwrap_err().promise, "W4");
    }

    #[test]
    fn a_waiter_whose_session_is_not_alive_keeps_its_place_and_is_not_granted() {
        let again = || batch(&[opened(2), Record::SessionAlive { session: 1 }]);
        assert_eq!(check(&history([two_wait(), again(), batch(&[granted_to(1, 5)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), again(), batch(&[granted_to(0, 5)])])).unwrap_err().promise, "L8");
    }

    #[test]
    fn a_wait_may_time_out_on_a_held_resource_and_not_on_a_free_one() {
        let out = |time| batch_at(time, &[Record::WaitEnded { waiter: 0, refusal: Refusal::Timeout }]);
        let held = batch(&[granted(9, 5, "jobs/a"), session(0, "a"), waiting(0, 0, "a", "jobs/a")]);
        assert_eq!(check(&history([held, out(5_000)])), Ok(()));
        let Record::Waiting(mut priorities) = waiting(2, 1, "b", "jobs/a") else { panic!("a wait") };
        (priorities.priority, priorities.resources) =
            (200, vec![("jobs/a", Access::Exclusive), ("jobs/b", Access::Exclusive)]);
        let before = batch(&[granted(9, 5, "jobs/b"), Record::Waiting(priorities)]);
        assert_eq!(check(&history([two_wait(), before, out(5_000)])), Ok(()), "a wait of higher priority is before it");
        assert_eq!(check(&history([two_wait(), out(5_000)])).unwrap_err().promise, "W2");
        let stalled = |ms| HistoryEvent::Stalled { server: 0, generation: 1, time: GrantorTime(5_000), ms };
        assert_eq!(check(&history([two_wait(), stalled(4_900), out(5_000)])), Ok(()), "it was free during the stall");
        assert_eq!(check(&history([two_wait(), stalled(900), out(5_000)])).unwrap_err().promise, "W2");
    }

    #[test]
    fn an_expired_wait_is_over() {
        assert_eq!(check(&history([two_wait(), batch_at(60_100, &[opened(2)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), batch_at(61_000, &[opened(2)])])).unwrap_err().promise, "W3");
    }
}
