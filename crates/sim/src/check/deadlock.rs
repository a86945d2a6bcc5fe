//! D1: a reported cycle exists in the records. D2: a deadlock is reported. D3: exactly one waiter pays for it.
//!
//! Compared with brute force: the largest set of actors whose waits all need a lease of another actor in the set.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::lease::Access;
use leasehold_core::record::Record;
use leasehold_core::refusal::{Cycle, Refusal};
use leasehold_core::time::GrantorTime;

use super::recorded_state::{Model, ModelLease, WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Grantor time, in milliseconds, within which a deadlock must be reported: a few turns.
const REPORT_LIMIT: u64 = 700;

/// An actor of a session, which waits and holds.
type DeadlockNode = (u32, String);

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    let mut stuck_since: BTreeMap<u32, GrantorTime> = BTreeMap::new();
    let mut victims_left = 0;
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Deadlocked { cycle, .. }) => {
                victims_left += 1;
                if let Some(detail) = freeable_by_others(model, cycle) {
                    return broken("D1", at, detail);
                }
                for (i, member) in cycle.members.iter().enumerate() {
                    let next = &cycle.members[(i + 1) % cycle.members.len()];
                    let mut waits = model.waits.values().filter(|wait| wait.holder == member.holder);
                    let waits = waits.any(|wait| wait.wanted.iter().any(|(name, _)| *name == member.waits_for));
                    let mut held = model.leases.values().filter(|lease| lease.resource == member.waits_for);
                    if !waits || !held.any(|lease| lease.holder == next.holder) {
                        let detail = format!("{} does not wait for what {} holds", member.holder, next.holder);
                        return broken("D1", at, detail);
                    }
                }
            }
            WalkStep::Before(Record::WaitEnded { refusal: Refusal::Deadlock(_), .. }) => {
                if victims_left == 0 {
                    return broken("D3", at, "more than one waiter pays for a deadlock");
                }
                victims_left -= 1;
            }
            WalkStep::Batch => {
                let stuck = stuck(model);
                stuck_since.retain(|waiter, _| stuck.contains(waiter));
                for waiter in stuck {
                    let since = *stuck_since.entry(waiter).or_insert(model.time);
                    if model.time > since.max(model.opened).plus(REPORT_LIMIT) {
                        let holder = &model.waits[&waiter].holder;
                        return broken(
                            "D2",
                            at,
                            format!("{holder} is deadlocked since {since}, and no cycle is reported"),
                        );
                    }
                }
            }
            WalkStep::JournalReverted => stuck_since.clear(),
            _ => {}
        }
        Ok(())
    })
}

/// Describes a member of a reported cycle that could proceed, because actors outside the cycle hold enough of what it waits
/// for.
fn freeable_by_others(model: &Model, cycle: &Cycle) -> Option<String> {
    cycle.members.iter().find_map(|member| {
        let waits = model.waits.values().filter(|wait| wait.holder == member.holder);
        let access = waits.flat_map(|wait| &wait.wanted).find(|(name, _)| *name == member.waits_for)?.1;
        let wanted = match access {
            Access::Slot => 1,
            Access::Units(units) => u64::from(units),
            Access::Exclusive | Access::Shared => return None,
        };
        let on_it = model.leases.values().filter(|lease| lease.resource == member.waits_for && !lease.overlapped);
        let outside = on_it.filter(|lease| !model.waits.values().any(|wait| wait.holder == lease.holder));
        let freed: u64 = outside.map(ModelLease::units).sum();
        let limit = model.capacity.get(&*member.waits_for).copied().unwrap_or(1);
        let enough = freed > 0 && model.used(&member.waits_for) - freed + wanted <= limit;
        enough.then(|| format!("{} waits for {}, which others could free", member.holder, member.waits_for))
    })
}

/// Waits of all actors that can never proceed, by brute force: start with all waiting actors, and remove those with a wait that
/// needs nothing held by the rest.
fn stuck(model: &Model) -> BTreeSet<u32> {
    let is_alive = |session: u32| model.sessions.get(&session).is_some_and(|s| s.alive_in == model.tenure);
    let mut waits: BTreeMap<DeadlockNode, Vec<u32>> = BTreeMap::new();
    for (id, wait) in &model.waits {
        if is_alive(wait.session) {
            waits.entry((wait.session, wait.holder.clone())).or_default().push(*id);
        }
    }
    loop {
        let needs = |id: &u32| {
            let wait = &model.waits[id];
            // Any holder can free units; only an exclusive lease surely depends on its holder.
            wait.wanted.iter().filter(|(_, access)| *access == Access::Exclusive).any(|(name, _)| {
                model.leases.values().any(|lease| {
                    lease.resource == *name
                        && !lease.draining
                        && lease.max_hold.is_none()
                        && lease.progress.is_none()
                        && lease.session.is_some_and(|session| waits.contains_key(&(session, lease.holder.clone())))
                })
            })
        };
        let free: Vec<DeadlockNode> =
            waits.iter().filter(|(_, ids)| !ids.iter().all(needs)).map(|(node, _)| node.clone()).collect();
        if free.is_empty() {
            return waits.into_values().flatten().collect();
        }
        free.iter().for_each(|node| {
            waits.remove(node);
        });
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::refusal::CycleMember;

    use super::super::sample_histories::*;
    use super::*;
    use crate::history::HistoryEvent;

    fn holds(slot: u32, number: u64, name: &'static str, of: u32, holder: &'static str) -> Record<'static> {
        let Record::Granted(mut grant) = granted(slot, number, name) else { panic!("a grant") };
        (grant.session, grant.holder) = (Some(of), holder);
        Record::Granted(grant)
    }

    /// `a` holds jobs/a and waits for jobs/b, which `b` holds; `b` waits for `b_waits_for`.
    fn two_actors(b_waits_for: &'static str) -> HistoryEvent {
        batch(&[
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
        let member = |holder: &str, waits_for: &str| CycleMember { holder: holder.into(), waits_for: waits_for.into() };
        let cycle = Cycle { members: vec![member("a", "jobs/b"), member("b", "jobs/a")], length: 2 };
        Record::Deadlocked { cycle, victim: "b", policy: 1 }
    }

    fn victim(waiter: u32) -> Record<'static> {
        Record::WaitEnded { waiter, refusal: Refusal::Deadlock(Box::default()) }
    }

    #[test]
    fn an_existing_cycle_may_be_reported_and_an_absent_one_may_not() {
        assert_eq!(check(&history([two_actors("jobs/a"), batch_at(100, &[reported(), victim(1)])])), Ok(()));
        assert_eq!(
            check(&history([two_actors("jobs/c"), batch_at(100, &[reported(), victim(1)])])).unwrap_err().promise,
            "D1"
        );
    }

    #[test]
    fn a_cycle_that_others_can_free_is_no_deadlock() {
        let slot = |slot, number, of, holder| {
            let Record::Granted(mut grant) = granted(slot, number, "jobs/b") else { panic!("a grant") };
            (grant.session, grant.holder, grant.access) = (Some(of), holder, Access::Slot);
            Record::Granted(grant)
        };
        let Record::Waiting(mut wait) = waiting(0, 0, "a", "jobs/b") else { panic!("a wait") };
        wait.resources = vec![("jobs/b", Access::Slot)];
        let run = |outside: Option<Record<'static>>| {
            let two_actors = Record::Capacity { resource: "jobs/b", units: 2, lasting: true };
            let held = [
                opened(1),
                session(0, "a"),
                session(1, "b"),
                two_actors,
                holds(0, 5, "jobs/a", 0, "a"),
                slot(1, 6, 1, "b"),
            ];
            let waits = [Record::Waiting(wait.clone()), waiting(1, 1, "b", "jobs/a"), reported()];
            history([batch(&held.into_iter().chain(outside).chain(waits).collect::<Vec<_>>())])
        };
        assert_eq!(check(&run(None)), Ok(()));
        assert_eq!(check(&run(Some(slot(2, 7, 2, "c")))).unwrap_err().promise, "D1");
    }

    #[test]
    fn an_unreported_deadlock_is_found() {
        let later = || batch_at(2_000, &[Record::Idle]);
        assert_eq!(check(&history([two_actors("jobs/c"), later()])), Ok(()));
        assert_eq!(check(&history([two_actors("jobs/a"), later()])).unwrap_err().promise, "D2");
    }

    #[test]
    fn exactly_one_waiter_pays() {
        let both = history([two_actors("jobs/a"), batch_at(100, &[reported(), victim(1), victim(0)])]);
        assert_eq!(check(&both).unwrap_err().promise, "D3");
    }
}
