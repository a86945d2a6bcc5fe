//! The search for one order of calls, with memory, and what keeps it small.

use std::collections::HashSet;

use super::super::{Finding, broken};
use super::{Call, Done};
use crate::ask::EXCLUSIVE;
use crate::clock::At;

/// How many states one group of resources may take.
const BUDGET: usize = 200_000;
/// A grant whose number nobody knows.
const UNKNOWN: u64 = u64::MAX;

/// Each resource: who holds it perhaps, and the highest number so far.
type Locks = [(Option<u64>, u64); EXCLUSIVE.len()];

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

/// What a search has: which calls are placed, and the locks after them.
type Place = (Vec<u64>, Locks);

/// Looks for one order of all calls in which every answer is right.
///
/// Four things keep it small, and none takes an order away that could be right. Grants stand in the order of their numbers,
/// as in the journal (T1 is checked globally). What is right here and changes nothing is placed at once. A lease is ended
/// by an answer that says so only when that answer can wait no longer, for nothing is ever right because nobody holds. Of
/// the requests without an answer for one resource the first will do.
pub(super) fn search(calls: &[&Call], joined: bool) -> Finding {
    // Where several are waited for together `busy` says nothing, and so nobody is needed to explain it.
    let idle = |done: &Done| joined && matches!(done, Done::Perhaps(_) | Done::Busy(_));
    let mut calls: Vec<&Call> = calls.iter().filter(|call| !idle(&call.done)).copied().collect();
    calls.sort_by_key(|call| (call.from, call.op));
    let mut grants: Vec<usize> = (0..calls.len()).filter(|i| gives(&calls[*i].done).is_some()).collect();
    grants.sort_by_key(|i| gives(&calls[*i].done));
    let start = (vec![0u64; calls.len().div_ceil(64)], [(None, 0); EXCLUSIVE.len()]);
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    let mut furthest = 0;
    while let Some(place) = stack.pop() {
        let Some(bound) = bound(&calls, &place.0) else { return Ok(()) };
        furthest = furthest.max(bound);
        if seen.len() > BUDGET {
            return broken("L1", bound, format!("no order was found within {BUDGET} states"));
        }
        let lowest = grants.iter().copied().find(|i| !is_taken(&place.0, *i));
        for (i, after) in next(&calls, &place, lowest, bound, joined) {
            let mut taken = place.0.clone();
            taken[i / 64] |= 1 << (i % 64);
            if seen.insert((taken.clone(), after)) {
                stack.push((taken, after));
            }
        }
    }
    broken("L1", furthest, "no order of the answers about a lease explains them")
}

/// The calls that are not placed yet, in the order of their beginnings.
fn open<'a>(calls: &[&'a Call], taken: &[u64]) -> impl Iterator<Item = (usize, &'a Call)> {
    let first = 64 * taken.iter().take_while(|word| **word == u64::MAX).count();
    calls.iter().copied().enumerate().skip(first).filter(|(i, _)| !is_taken(taken, *i))
}

fn is_taken(taken: &[u64], i: usize) -> bool {
    taken[i / 64] >> (i % 64) & 1 == 1
}

/// The first end of a call that is not placed; none if every answer is.
fn bound(calls: &[&Call], taken: &[u64]) -> Option<At> {
    let mut bound = At::MAX;
    for (_, call) in open(calls, taken) {
        if call.from > bound {
            break;
        }
        bound = bound.min(call.until);
    }
    (bound < At::MAX).then_some(bound)
}

/// The number that a call gives out.
fn gives(done: &Done) -> Option<u64> {
    match done {
        Done::Granted(grants) => grants.iter().map(|(_, number)| *number).min(),
        Done::Rotated(_, _, new) => Some(*new),
        _ => None,
    }
}

/// Which calls can come next, with the locks after each.
fn next(
    calls: &[&Call],
    (taken, locks): &Place,
    lowest: Option<usize>,
    bound: At,
    joined: bool,
) -> Vec<(usize, Locks)> {
    let mut next: Vec<(usize, Locks)> = Vec::new();
    let mut perhaps = [false; EXCLUSIVE.len()];
    for (i, call) in open(calls, taken).take_while(|(_, call)| call.from <= bound) {
        if gives(&call.done).is_some() && lowest != Some(i) {
            continue;
        }
        if let Done::Perhaps(resource) = call.done {
            // It only helps to explain why somebody else found it busy; it may as well not have been done.
            if call.until < At::MAX {
                next.push((i, *locks));
            } else if std::mem::replace(&mut perhaps[resource], true) {
                continue;
            }
            if locks[resource].0.is_some() {
                continue;
            }
        }
        let Some(after) = step(*locks, &call.done, joined) else { continue };
        if after == *locks {
            // It is right here and changes nothing: taking it now takes no other order away.
            return vec![(i, after)];
        }
        if matches!(call.done, Done::Over(..)) && call.until > bound {
            continue;
        }
        next.push((i, after));
    }
    next
}
