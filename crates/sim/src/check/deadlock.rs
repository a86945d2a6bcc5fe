//! D1: a reported cycle stands in the records at that point. D2: a deadlock that stands is reported. D3: one pays.
//! Against brute force: the largest set of actors each of whose waits needs what another of them holds.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::lease::Access;
use leasehold_core::record::Record;
use leasehold_core::refusal::{Cycle, Refusal};
use leasehold_core::time::Millis;

use super::ledger::{Lease, Ledger, Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// How long a deadlock may stand unreported, in served milliseconds: a few turns.
const NOTICED: u64 = 700;

/// Who waits and holds: a session's actor.
type Party = (u32, String);

/// Reads the records.
pub fn check(history: &History) -> Finding {
    let mut stands: BTreeMap<u32, Millis> = BTreeMap::new();
    let mut may_pay = 0;
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Deadlocked { cycle, .. }) => {
                may_pay += 1;
                if let Some(why) = freeable(ledger, cycle) {
                    return broken("D1", at, why);
                }
                for (i, member) in cycle.members.iter().enumerate() {
                    let next = &cycle.members[(i + 1) % cycle.members.len()];
                    let mut waits = ledger.waits.values().filter(|wait| wait.holder == member.holder);
                    let waits = waits.any(|wait| wait.asks.iter().any(|(name, _)| *name == member.waits_for));
                    let mut held = ledger.leases.values().filter(|lease| lease.resource == member.waits_for);
                    if !waits || !held.any(|lease| lease.holder == next.holder) {
                        let why = format!("{} does not wait for what {} holds", member.holder, next.holder);
                        return broken("D1", at, why);
                    }
                }
            }
            Met::Before(Record::WaitEnded { why: Refusal::Deadlock(_), .. }) => {
                if may_pay == 0 {
                    return broken("D3", at, "more than one pays for a deadlock");
                }
                may_pay -= 1;
            }
            Met::Batch => {
                let stuck = stuck(ledger);
                stands.retain(|waiter, _| stuck.contains(waiter));
                for waiter in stuck {
                    let since = *stands.entry(waiter).or_insert(ledger.time);
                    if ledger.time > since.max(ledger.opened).plus(NOTICED) {
                        let holder = &ledger.waits[&waiter].holder;
                        return broken("D2", at, format!("{holder} is stuck since {since}, and nobody is told"));
                    }
                }
            }
            Met::SetBack => stands.clear(),
            _ => {}
        }
        Ok(())
    })
}

/// Who could let a member of a reported cycle go on: somebody who waits for nothing and has enough of what it waits for.
fn freeable(ledger: &Ledger, cycle: &Cycle) -> Option<String> {
    cycle.members.iter().find_map(|member| {
        let waits = ledger.waits.values().filter(|wait| wait.holder == member.holder);
        let access = waits.flat_map(|wait| &wait.asks).find(|(name, _)| *name == member.waits_for)?.1;
        let wanted = match access {
            Access::Slot => 1,
            Access::Units(units) => u64::from(units),
            Access::Exclusive | Access::Shared => return None,
        };
        let on_it = ledger.leases.values().filter(|lease| lease.resource == member.waits_for && !lease.apart);
        let outside = on_it.filter(|lease| !ledger.waits.values().any(|wait| wait.holder == lease.holder));
        let freed: u64 = outside.map(Lease::units).sum();
        let most = ledger.capacity.get(&*member.waits_for).copied().unwrap_or(1);
        let enough = freed > 0 && ledger.used(&member.waits_for) - freed + wanted <= most;
        enough.then(|| format!("{} waits for {}, which others could free", member.holder, member.waits_for))
    })
}

/// The waits of all actors that can never go on, by brute force: begin with everybody who waits, and take away whoever
/// has a wait that needs nothing of those who are left.
fn stuck(ledger: &Ledger) -> BTreeSet<u32> {
    let heard = |session: u32| ledger.sessions.get(&session).is_some_and(|s| s.heard == ledger.tenure);
    let mut waits: BTreeMap<Party, Vec<u32>> = BTreeMap::new();
    for (id, wait) in &ledger.waits {
        if heard(wait.session) {
            waits.entry((wait.session, wait.holder.clone())).or_default().push(*id);
        }
    }
    loop {
        let needs = |id: &u32| {
            let wait = &ledger.waits[id];
            // Units can be freed by anybody who has some; only what is held alone surely waits for its holder.
            wait.asks.iter().filter(|(_, access)| *access == Access::Exclusive).any(|(name, _)| {
                ledger.leases.values().any(|lease| {
                    lease.resource == *name
                        && !lease.draining
                        && lease.max_hold.is_none()
                        && lease.progress.is_none()
                        && lease.session.is_some_and(|session| waits.contains_key(&(session, lease.holder.clone())))
                })
            })
        };
        let free: Vec<Party> =
            waits.iter().filter(|(_, ids)| !ids.iter().all(needs)).map(|(party, _)| party.clone()).collect();
        if free.is_empty() {
            return waits.into_values().flatten().collect();
        }
        free.iter().for_each(|party| {
            waits.remove(party);
        });
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::refusal::Member;

    use super::super::sample::*;
    use super::*;
    use crate::history::Event;

    fn holds(slot: u32, number: u64, name: &'static str, of: u32, holder: &'static str) -> Record<'static> {
        let Record::Granted(mut grant) = granted(slot, number, name) else { panic!("a grant") };
        (grant.session, grant.holder) = (Some(of), holder);
        Record::Granted(grant)
    }

    /// a holds jobs/a and waits for jobs/b, which b holds; b waits for what is said.
    fn two(b_waits_for: &'static str) -> Event {
        landed(&[
            opened(1),
            session(0, "a"),
            session(1, "b"),
            holds(0, 5, "jobs/a", 0, "a"),
            holds(1, 6, "jobs/b", 1, "b"),
            waiting(0, 0, "a", "jobs/b"),
            waiting(1, 1, "b", b_waits_for),
        ])
    }

    fn reported() -> Record<'static> {
        let member = |holder: &str, waits_for: &str| Member { holder: holder.into(), waits_for: waits_for.into() };
        let cycle = Cycle { members: vec![member("a", "jobs/b"), member("b", "jobs/a")], length: 2 };
        Record::Deadlocked { cycle, victim: "b", policy: 1 }
    }

    fn pays(waiter: u32) -> Record<'static> {
        Record::WaitEnded { waiter, why: Refusal::Deadlock(Box::default()) }
    }

    #[test]
    fn a_cycle_that_stands_is_reported_and_one_that_does_not_is_not() {
        assert_eq!(check(&history([two("jobs/a"), landed_at(100, &[reported(), pays(1)])])), Ok(()));
        assert_eq!(check(&history([two("jobs/c"), landed_at(100, &[reported(), pays(1)])])).unwrap_err().promise, "D1");
    }

    #[test]
    fn what_somebody_outside_can_free_is_no_deadlock() {
        let slot = |slot, number, of, holder| {
            let Record::Granted(mut grant) = granted(slot, number, "jobs/b") else { panic!("a grant") };
            (grant.session, grant.holder, grant.access) = (Some(of), holder, Access::Slot);
            Record::Granted(grant)
        };
        let Record::Waiting(mut wait) = waiting(0, 0, "a", "jobs/b") else { panic!("a wait") };
        wait.asks = vec![("jobs/b", Access::Slot)];
        let run = |outside: Option<Record<'static>>| {
            let two = Record::Capacity { resource: "jobs/b", units: 2, lasting: true };
            let held =
                [opened(1), session(0, "a"), session(1, "b"), two, holds(0, 5, "jobs/a", 0, "a"), slot(1, 6, 1, "b")];
            let waits = [Record::Waiting(wait.clone()), waiting(1, 1, "b", "jobs/a"), reported()];
            history([landed(&held.into_iter().chain(outside).chain(waits).collect::<Vec<_>>())])
        };
        assert_eq!(check(&run(None)), Ok(()));
        assert_eq!(check(&run(Some(slot(2, 7, 2, "c")))).unwrap_err().promise, "D1");
    }

    #[test]
    fn a_deadlock_that_nobody_reports_is_found() {
        let later = || landed_at(2_000, &[Record::Idle]);
        assert_eq!(check(&history([two("jobs/c"), later()])), Ok(()));
        assert_eq!(check(&history([two("jobs/a"), later()])).unwrap_err().promise, "D2");
    }

    #[test]
    fn one_pays_and_not_both() {
        let both = history([two("jobs/a"), landed_at(100, &[reported(), pays(1), pays(0)])]);
        assert_eq!(check(&both).unwrap_err().promise, "D3");
    }
}
