//! Linearizability (Wing and Gong, with Lowe's memory): the answers about exclusive leases are those of one lock after the
//! other, each taken at some instant inside its call. Resources that are asked for together are looked at together.
//!
//! A lease may end by itself at any instant, so only what that cannot explain is a violation: two holders that are both
//! told to be current, a holder that is current again after it was not, `busy` where nobody can hold. A request without an
//! answer may have been done or not, also after the end. Running out of budget is a failure.

use std::collections::{BTreeMap, HashSet};

use leasehold_core::command::Answer;
use leasehold_core::ids::LeaseId;
use leasehold_core::refusal::{NotCurrent, Refusal};

use super::ledger::{Met, walk};
use super::{Finding, Violation, broken};
use crate::ask::{Ask, EXCLUSIVE, Known};
use crate::clock::At;
use crate::history::{Event, History};

/// How many states one group of resources may take.
const BUDGET: usize = 200_000;
/// A grant whose number nobody knows.
const UNKNOWN: u64 = u64::MAX;

/// What was done, as far as the answer tells.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    /// These resources are held under these numbers.
    Granted(Vec<(usize, u64)>),
    /// Perhaps this resource is held under a number that nobody knows.
    Perhaps(usize),
    Busy(usize),
    Current(usize, u64),
    Rotated(usize, u64, u64),
    Released(usize, u64),
    Over(usize, u64),
}

#[derive(Clone, Debug)]
struct Call {
    op: u64,
    from: At,
    /// Without end, if nobody answered.
    until: At,
    done: Done,
}

/// Each resource: who holds it perhaps, and the highest number so far.
type Locks = [(Option<u64>, u64); EXCLUSIVE.len()];

/// Reads calls and answers.
pub fn check(history: &History) -> Finding {
    // What a rollback or a restore takes back cannot be explained by one order; the tokens and the fence answer for that.
    if history.was_set_back() {
        return Ok(());
    }
    let (calls, mut group, overlaps) = calls(history);
    for (resource, overlaps) in overlaps.iter().enumerate() {
        // In an overlap two are told to be current on purpose.
        if *overlaps {
            let skipped = group[resource];
            group.iter_mut().filter(|of| **of == skipped).for_each(|of| *of = usize::MAX);
        }
    }
    for first in 0..EXCLUSIVE.len() {
        let members: Vec<usize> = (0..EXCLUSIVE.len()).filter(|resource| group[*resource] == first).collect();
        if members.is_empty() {
            continue;
        }
        let own: Vec<&Call> = calls.iter().filter(|call| members.contains(&resource_of(&call.done))).collect();
        search(&own, members.len() > 1)?;
    }
    Ok(())
}

fn resource_of(done: &Done) -> usize {
    match done {
        Done::Granted(grants) => grants[0].0,
        Done::Perhaps(resource)
        | Done::Busy(resource)
        | Done::Current(resource, _)
        | Done::Rotated(resource, ..)
        | Done::Released(resource, _)
        | Done::Over(resource, _) => *resource,
    }
}

fn place(name: &str) -> Option<usize> {
    EXCLUSIVE.iter().position(|known| *known == name)
}

type Groups = [usize; EXCLUSIVE.len()];

fn calls(history: &History) -> (Vec<Call>, Groups, [bool; EXCLUSIVE.len()]) {
    let mut numbers = BTreeMap::new();
    let mut leases = BTreeMap::new();
    let mut asked: BTreeMap<u64, (At, Ask)> = BTreeMap::new();
    let mut group: Groups = std::array::from_fn(|i| i);
    let mut overlaps = [false; EXCLUSIVE.len()];
    let mut calls = Vec::new();
    let walked = walk(history, |at, ledger, met| {
        match met {
            Met::Batch => numbers.clone_from(&ledger.numbers),
            Met::Other(Event::Asked { op, ask, .. }) => {
                match ask {
                    Ask::AcquireAll { resources, .. } => {
                        let places: Vec<usize> = resources.iter().filter_map(|name| place(name)).collect();
                        let joined = group[places[0]];
                        for other in places {
                            let old = group[other];
                            group.iter_mut().filter(|of| **of == old).for_each(|of| *of = joined);
                        }
                    }
                    Ask::HandOff { resource, overlap: true, .. } => {
                        place(resource).into_iter().for_each(|resource| overlaps[resource] = true);
                    }
                    _ => {}
                }
                asked.insert(*op, (at, ask.clone()));
            }
            Met::Other(Event::Answered { op, answer, .. }) => {
                if let Some((from, ask)) = asked.remove(op) {
                    note(&mut leases, &ask, answer);
                    // Who mixes up a lease and another one's number is told nothing about either.
                    let done = match held(&ask) {
                        Some(held) if leases.get(&held.number.get()) != Some(&held.lease) => None,
                        _ => done(&ask, answer, |number| numbers.get(&number).and_then(|name| place(name))),
                    };
                    calls.extend(done.map(|done| Call { op: *op, from, until: at, done }));
                }
            }
            _ => {}
        }
        Ok::<(), Violation>(())
    });
    debug_assert!(walked.is_ok());
    for (op, (from, ask)) in asked {
        if let Ask::Acquire { resource, .. } = ask
            && let Some(resource) = place(resource)
        {
            calls.push(Call { op, from, until: At::MAX, done: Done::Perhaps(resource) });
        }
    }
    // Whoever leads a group is its lowest member.
    let leads: Groups = std::array::from_fn(|i| (0..EXCLUSIVE.len()).find(|j| group[*j] == group[i]).unwrap_or(i));
    (calls, leads, overlaps)
}

/// What a request shows of a lease that it is about.
const fn held(ask: &Ask) -> Option<&Known> {
    match ask {
        Ask::Renew { held } | Ask::Confirm { held } | Ask::Release { held } | Ask::Rotate { held } => Some(held),
        _ => None,
    }
}

/// Which lease a number was told for.
fn note(leases: &mut BTreeMap<u64, LeaseId>, ask: &Ask, answer: &Answer) {
    match (ask, answer) {
        (_, Answer::Granted(grant)) => drop(leases.insert(grant.number.get(), grant.lease)),
        (_, Answer::GrantedAll(grants)) => leases.extend(grants.iter().map(|of| (of.number.get(), of.lease))),
        (Ask::Rotate { held } | Ask::Renew { held }, Answer::Current(current)) => {
            leases.insert(current.number.get(), held.lease);
        }
        _ => {}
    }
}

fn done(ask: &Ask, answer: &Answer, of: impl Fn(u64) -> Option<usize>) -> Option<Done> {
    match (ask, answer) {
        (Ask::Acquire { resource, .. }, Answer::Granted(grant)) => {
            Some(Done::Granted(vec![(place(resource)?, grant.number.get())]))
        }
        (Ask::AcquireAll { resources, .. }, Answer::GrantedAll(grants)) => {
            let all = resources.iter().zip(&grants[..]);
            let all: Option<Vec<_>> = all.map(|(name, grant)| Some((place(name)?, grant.number.get()))).collect();
            Some(Done::Granted(all?))
        }
        (Ask::Acquire { resource, .. }, Answer::Refused(Refusal::Busy { .. })) => Some(Done::Busy(place(resource)?)),
        // It was granted once and has ended since, or its session did: nobody knows under which number.
        (Ask::Acquire { resource, .. }, Answer::Refused(Refusal::Lost(_))) => Some(Done::Perhaps(place(resource)?)),
        (Ask::Renew { held } | Ask::Confirm { held }, Answer::Current(_)) => {
            Some(Done::Current(of(held.number.get())?, held.number.get()))
        }
        (Ask::Rotate { held }, Answer::Current(current)) => {
            Some(Done::Rotated(of(held.number.get())?, held.number.get(), current.number.get()))
        }
        (Ask::Release { held }, Answer::Done) => Some(Done::Released(of(held.number.get())?, held.number.get())),
        (
            Ask::Renew { held } | Ask::Confirm { held } | Ask::Release { held },
            Answer::Refused(Refusal::Lost(_) | Refusal::NotCurrent(NotCurrent::Unknown | NotCurrent::Superseded)),
        ) => Some(Done::Over(of(held.number.get())?, held.number.get())),
        _ => None,
    }
}

/// What the locks are after this, if it can be so.
fn step(mut locks: Locks, done: &Done, joined: bool) -> Option<Locks> {
    match done {
        Done::Granted(grants) => {
            for (resource, number) in grants {
                if *number <= locks[*resource].1 {
                    return None;
                }
                locks[*resource] = (Some(*number), *number);
            }
        }
        Done::Perhaps(resource) => locks[*resource].0 = Some(UNKNOWN),
        // Who waits for several may hold up what is free.
        Done::Busy(resource) => {
            if locks[*resource].0.is_none() && !joined {
                return None;
            }
        }
        Done::Current(resource, number) => {
            if locks[*resource].0 != Some(*number) {
                return None;
            }
        }
        Done::Rotated(resource, old, new) => {
            if locks[*resource].0 != Some(*old) || *new <= locks[*resource].1 {
                return None;
            }
            locks[*resource] = (Some(*new), *new);
        }
        Done::Released(resource, number) => {
            if locks[*resource].0 != Some(*number) {
                return None;
            }
            locks[*resource].0 = None;
        }
        Done::Over(resource, number) => {
            if locks[*resource].0 == Some(*number) {
                locks[*resource].0 = None;
            }
        }
    }
    Some(locks)
}

/// Looks for one order of all calls in which every answer is right.
fn search(calls: &[&Call], joined: bool) -> Finding {
    let mut calls: Vec<&Call> = calls.to_vec();
    calls.sort_by_key(|call| (call.from, call.op));
    let start = (vec![0u64; calls.len().div_ceil(64)], [(None, 0); EXCLUSIVE.len()]);
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    let mut furthest = 0;
    while let Some((taken, locks)) = stack.pop() {
        let is_taken = |i: usize| taken[i / 64] >> (i % 64) & 1 == 1;
        let open = || (0..calls.len()).filter(|i| !is_taken(*i));
        let Some(bound) = open().map(|i| calls[i].until).filter(|until| *until < At::MAX).min() else {
            return Ok(());
        };
        furthest = furthest.max(bound);
        if seen.len() > BUDGET {
            return broken("L1", bound, format!("no order was found within {BUDGET} states"));
        }
        let mut next: Vec<(usize, Locks)> = Vec::new();
        for i in open().take_while(|i| calls[*i].from <= bound) {
            if let Done::Perhaps(resource) = calls[i].done {
                // It only helps to explain why somebody else found it busy; it may as well not have been done.
                if calls[i].until < At::MAX {
                    next.push((i, locks));
                }
                if locks[resource].0.is_some() {
                    continue;
                }
            }
            let Some(after) = step(locks, &calls[i].done, joined) else { continue };
            if after == locks {
                // It is right here and changes nothing: taking it now takes no other order away.
                next = vec![(i, after)];
                break;
            }
            next.push((i, after));
        }
        for (i, after) in next {
            let mut taken = taken.clone();
            taken[i / 64] |= 1 << (i % 64);
            if seen.insert((taken.clone(), after)) {
                stack.push((taken, after));
            }
        }
    }
    broken("L1", furthest, "no order of the answers about a lease explains them")
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Reason;

    use super::super::sample::*;
    use super::*;

    fn records() -> Event {
        landed(&[granted(0, 5, "jobs/a"), granted(1, 6, "jobs/a")])
    }

    fn busy(op: u64) -> Event {
        answers(op, Answer::Refused(Refusal::Busy { position: 1 }))
    }

    #[test]
    fn one_after_the_other_is_legal_and_two_at_once_are_not() {
        let renew = |op, number| [asked_to_renew(op, 0, number), answers(op, current(number))];
        let take = |op, number| [asked(op), answered(op, number)];
        let legal = [take(1, 5), renew(2, 5), take(3, 6), renew(4, 6)];
        assert_eq!(check(&history([records()].into_iter().chain(legal.into_iter().flatten()))), Ok(()));
        let both = [take(1, 5), take(2, 6), renew(3, 6), renew(4, 5)];
        assert!(check(&history([records()].into_iter().chain(both.into_iter().flatten()))).is_err());
    }

    #[test]
    fn calls_that_overlap_may_take_place_in_either_order() {
        let legal = [records(), asked(1), asked_to_renew(2, 0, 5), answered(1, 5), answers(2, current(5))];
        assert_eq!(check(&history(legal)), Ok(()));
    }

    #[test]
    fn nobody_is_busy_with_what_was_given_back_unless_somebody_may_have_taken_it() {
        let given_back = || [records(), asked(1), answered(1, 5), asked_to_release(2, 0, 5), answers(2, Answer::Done)];
        let illegal = history(given_back().into_iter().chain([asked(3), busy(3)]));
        assert_eq!(check(&illegal).unwrap_err().promise, "L1");
        let unknown = history([asked(9)].into_iter().chain(given_back()).chain([asked(3), busy(3)]));
        assert_eq!(check(&unknown), Ok(()), "#9 has no answer and may hold it");
    }

    #[test]
    fn what_was_told_to_be_over_is_not_current_again() {
        let lost = answers(2, Answer::Refused(Refusal::Lost(Reason::Ttl)));
        let again = [asked_to_renew(2, 0, 5), lost, asked_to_renew(3, 0, 5), answers(3, current(5))];
        assert!(check(&history([records(), asked(1), answered(1, 5)].into_iter().chain(again))).is_err());
    }
}
