//! W1: first come, first granted, and nobody passes who waits and is as urgent. W4: nor do readers pass a writer. W2: nobody waits in vain for what is free. W3: a wait that
//! was taken back or has run out is over. L8: only a waiter whose session was heard in this tenure is granted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::lease::Access;
use leasehold_core::record::{Granted, Record};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Millis;

use super::ledger::{Ledger, Met, Wait, walk};
use super::{Finding, broken, urgency};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::history::{Event, History};

/// How long what is free may stay unoffered: a few turns.
const OFFERED: u64 = 600;

/// Reads the records, and the answers to cancels.
pub fn check(history: &History) -> Finding {
    let mut free: BTreeMap<u64, Millis> = BTreeMap::new();
    let mut cancels = BTreeMap::new();
    let mut full = false;
    let mut stood = (0, Millis(0), 0);
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Granted(granted)) => {
                let waiter = granted.waiter.and_then(|waiter| ledger.waits.get(&waiter));
                if let Some(wait) = waiter
                    && !is_heard(ledger, wait)
                {
                    return broken("L8", at, format!("{} is granted to a session that was not heard", granted.number));
                }
                let passed = is_passed(ledger, granted);
                // The grants of one wait for several come one after the other; its wait is gone after the first.
                if let Some(passed) = passed
                    && is_plain(ledger)
                    && (granted.waiter.is_none() || waiter.is_some())
                    && granted.overlaps.is_none()
                {
                    let why = format!("{} on {} passes {}, who waits", granted.number, granted.resource, passed.holder);
                    return broken(if granted.access == Access::Shared { "W4" } else { "W1" }, at, why);
                }
            }
            Met::Before(Record::WaitEnded { waiter, why: Refusal::Timeout }) => {
                let Some(wait) = ledger.waits.get(waiter) else { return Ok(()) };
                // A wait gets no credit for a stall: what came free while its grantor stood still was never offered.
                let still = if (ledger.generation, ledger.time) == (stood.0, stood.1) { stood.2 } else { 0 };
                let since = free.get(&wait.order).filter(|_| !full);
                if let Some(since) = since.filter(|since| ledger.time > since.plus(OFFERED + still)) {
                    let (holder, resource) = (&wait.holder, &wait.asks[0].0);
                    return broken(
                        "W2",
                        at,
                        format!("{holder} waited in vain for {resource}, which was free since {since}"),
                    );
                }
            }
            Met::Before(_) => {}
            Met::After(_) => {}
            Met::Batch => {
                let could: Vec<u64> = could_have(ledger);
                free.retain(|order, _| could.contains(order));
                for order in could {
                    free.entry(order).or_insert(ledger.time);
                }
                let late = ledger.waits.values().find(|wait| ledger.time > wait.until.plus(OFFERED));
                if let Some(wait) = late {
                    return broken("W3", at, format!("{} waits beyond {}", wait.holder, wait.until));
                }
            }
            Met::SetBack => free.clear(),
            Met::Other(Event::Struck { fault: Fault::Full, .. }) => full = true,
            Met::Other(Event::Stood { generation, time, ms, .. }) => stood = (*generation, *time, *ms),
            Met::Other(Event::Asked { op, ask: Ask::Cancel { session, sequence }, .. }) => {
                cancels.insert(*op, (*session, *sequence));
            }
            Met::Other(Event::Told { op, answer: Answer::Done, .. }) => {
                if let Some((session, sequence)) = cancels.get(op) {
                    let mut waits = ledger.waits.values();
                    if waits.any(|wait| wait.session == session.slot && wait.sequence == Some(*sequence)) {
                        return broken("W3", at, format!("wait {sequence} of {session} is told to be over, and waits"));
                    }
                }
            }
            Met::Other(_) => {}
        }
        Ok(())
    })
}

/// The waits that nothing stands in the way of, by their order: for one exclusive lease that nobody has, first in its queue,
/// of a session that was heard, and in no quarantine.
fn could_have(ledger: &Ledger) -> Vec<u64> {
    let is_free = |name: &str| !ledger.leases.values().any(|lease| lease.resource == name);
    let mut waits = ledger.waits.iter().filter_map(|(id, wait)| match &wait.asks[..] {
        [(name, Access::Exclusive)] if is_free(name) && is_heard(ledger, wait) => Some((id, wait, name)),
        _ => None,
    });
    let Some(first) = waits.next().filter(|_| ledger.time >= ledger.quarantine) else { return Vec::new() };
    let urgent = urgency::effective(ledger);
    let place = |id: &u32, wait: &Wait| (Reverse(urgent[id]), wait.order);
    let is_first = |(id, wait, name): &(&u32, &Wait, &String)| {
        let others = ledger.waits.iter().filter(|(_, other)| other.asks.iter().any(|(asked, _)| asked == *name));
        others.into_iter().all(|(other, there)| place(other, there) >= place(id, wait))
    };
    std::iter::once(first).chain(waits).filter(is_first).map(|(_, wait, _)| wait.order).collect()
}

fn is_heard(ledger: &Ledger, wait: &Wait) -> bool {
    ledger.sessions.get(&wait.session).is_some_and(|session| session.heard == ledger.tenure)
}

/// Whether nobody waits for several things. Who does can make others stuck by the order of the queues alone, and those may
/// then pass.
fn is_plain(ledger: &Ledger) -> bool {
    let mut waiting = std::collections::BTreeSet::new();
    ledger.waits.values().all(|wait| wait.asks.len() == 1 && waiting.insert(wait.session))
}

/// The wait that a grant passes: for that resource alone and not shared, heard, and before the granted one by urgency and
/// then by order.
fn is_passed<'a>(ledger: &'a Ledger, granted: &Granted<'_>) -> Option<&'a Wait> {
    let urgent = urgency::effective(ledger);
    let place = |id: &u32, wait: &Wait| (Reverse(urgent[id]), wait.order);
    let own = match granted.waiter {
        None => (Reverse(granted.priority), u64::MAX),
        Some(waiter) => {
            let wait = ledger.waits.get(&waiter).filter(|wait| wait.asks.len() == 1)?;
            // Who holds something may be whom the waiting writer waits for in the end; then it may pass, and nobody else.
            let holds = || ledger.leases.values().any(|lease| lease.session == Some(wait.session));
            if granted.access == Access::Shared && holds() {
                return None;
            }
            place(&waiter, wait)
        }
    };
    let waits = ledger.waits.iter().filter(|(_, wait)| {
        matches!(&wait.asks[..], [(name, Access::Exclusive)] if name == granted.resource) && is_heard(ledger, wait)
    });
    waits.filter(|(id, wait)| place(id, wait) < own).map(|(_, wait)| wait).next()
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::Waiting;

    use super::super::sample::*;
    use super::*;

    fn granted_to(waiter: u32, number: u64) -> Record<'static> {
        let Record::Granted(mut grant) = granted(9, number, "jobs/a") else { panic!("a grant") };
        grant.waiter = Some(waiter);
        Record::Granted(grant)
    }

    fn two_wait() -> Event {
        landed(&[
            opened(1),
            session(0, "a"),
            session(1, "b"),
            waiting(0, 0, "a", "jobs/a"),
            waiting(1, 1, "b", "jobs/a"),
        ])
    }

    #[test]
    fn the_first_is_granted_first() {
        assert_eq!(check(&history([two_wait(), landed(&[granted_to(0, 5)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), landed(&[granted_to(1, 5)])])).unwrap_err().promise, "W1");
        assert_eq!(check(&history([two_wait(), landed(&[granted(9, 5, "jobs/a")])])).unwrap_err().promise, "W1");
    }

    #[test]
    fn a_reader_that_holds_something_may_pass_a_writer_and_takes_no_other_along() {
        let Record::Waiting(mut reads) = waiting(1, 1, "b", "jobs/a") else { panic!("a wait") };
        reads.asks = vec![("jobs/a", Access::Shared)];
        let again = Record::Waiting(Waiting { waiter: 2, session: 2, holder: "c", ..reads.clone() });
        let Record::Granted(mut held) = granted(8, 4, "jobs/a") else { panic!("a grant") };
        (held.access, held.session) = (Access::Shared, Some(2));
        let sessions = [opened(1), session(0, "a"), session(1, "b"), session(2, "c"), Record::Granted(held)];
        let waits = [waiting(0, 0, "a", "jobs/a"), Record::Waiting(reads), again];
        let passes = |waiter| {
            let Record::Granted(grant) = granted_to(waiter, 5) else { panic!("a grant") };
            let grant = landed(&[Record::Granted(Granted { access: Access::Shared, ..grant })]);
            check(&history([landed(&sessions), landed(&waits), grant]))
        };
        assert_eq!(passes(2), Ok(()), "the writer waits for it");
        assert_eq!(passes(1).unwrap_err().promise, "W4");
    }

    #[test]
    fn who_was_not_heard_in_this_tenure_keeps_its_place_and_is_not_granted() {
        let again = || landed(&[opened(2), Record::SessionAlive { session: 1 }]);
        assert_eq!(check(&history([two_wait(), again(), landed(&[granted_to(1, 5)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), again(), landed(&[granted_to(0, 5)])])).unwrap_err().promise, "L8");
    }

    #[test]
    fn a_wait_for_what_is_held_may_run_out_and_one_for_what_is_free_may_not() {
        let out = |time| landed_at(time, &[Record::WaitEnded { waiter: 0, why: Refusal::Timeout }]);
        let held = landed(&[granted(9, 5, "jobs/a"), session(0, "a"), waiting(0, 0, "a", "jobs/a")]);
        assert_eq!(check(&history([held, out(5_000)])), Ok(()));
        let Record::Waiting(mut urgent) = waiting(2, 1, "b", "jobs/a") else { panic!("a wait") };
        (urgent.priority, urgent.asks) = (200, vec![("jobs/a", Access::Exclusive), ("jobs/b", Access::Exclusive)]);
        let before = landed(&[granted(9, 5, "jobs/b"), Record::Waiting(urgent)]);
        assert_eq!(check(&history([two_wait(), before, out(5_000)])), Ok(()), "somebody urgent stands before it");
        assert_eq!(check(&history([two_wait(), out(5_000)])).unwrap_err().promise, "W2");
        let stood = |ms| Event::Stood { server: 0, generation: 1, time: Millis(5_000), ms };
        assert_eq!(check(&history([two_wait(), stood(4_900), out(5_000)])), Ok(()), "it was free while nobody looked");
        assert_eq!(check(&history([two_wait(), stood(900), out(5_000)])).unwrap_err().promise, "W2");
    }

    #[test]
    fn a_wait_that_has_run_out_is_over() {
        assert_eq!(check(&history([two_wait(), landed_at(60_100, &[opened(2)])])), Ok(()));
        assert_eq!(check(&history([two_wait(), landed_at(61_000, &[opened(2)])])).unwrap_err().promise, "W3");
    }
}
