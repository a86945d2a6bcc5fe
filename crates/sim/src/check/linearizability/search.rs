//! Search for a linearization, with memoization and pruning.

use std::collections::HashSet;

use super::super::{CheckFinding, broken};
use super::{CallOutcome, LinearCall};
use crate::clock::SimTime;
use crate::run_constants::EXCLUSIVE;

/// Maximum number of states per group of resources.
const BUDGET: usize = 200_000;
/// A grant with an unknown number.
const UNKNOWN: u64 = u64::MAX;

/// Each resource: its possible holder, and the highest number so far.
type LockModel = [(Option<u64>, u64); EXCLUSIVE.len()];

/// State of the locks after this call, if the call is possible.
fn step(mut locks: LockModel, outcome: &CallOutcome, joined: bool) -> Option<LockModel> {
    match outcome {
        CallOutcome::Granted(grants) => {
            for (resource, number) in grants {
                if *number <= locks[*resource].1 {
                    return None;
                }
                locks[*resource] = (Some(*number), *number);
            }
        }
        CallOutcome::MaybeGranted(resource) => locks[*resource].0 = Some(UNKNOWN),
        // A waiter for several resources may block a free one.
        CallOutcome::Busy(resource) => {
            if locks[*resource].0.is_none() && !joined {
                return None;
            }
        }
        CallOutcome::Current(resource, number) => {
            if locks[*resource].0 != Some(*number) {
                return None;
            }
        }
        CallOutcome::Rotated(resource, old, new) => {
            if locks[*resource].0 != Some(*old) || *new <= locks[*resource].1 {
                return None;
            }
            locks[*resource] = (Some(*new), *new);
        }
        CallOutcome::Released(resource, number) => {
            if locks[*resource].0 != Some(*number) {
                return None;
            }
            locks[*resource].0 = None;
        }
        CallOutcome::Ended(resource, number) => {
            if locks[*resource].0 == Some(*number) {
                locks[*resource].0 = None;
            }
        }
    }
    Some(locks)
}

/// State of the search: which calls are placed, and the locks after them.
type SearchState = (Vec<u64>, LockModel);

/// Searches for one order of all calls in which every reply is correct.
///
/// Four rules prune the search without excluding a valid order. Grants are placed in the order of their numbers, as in the
/// journal (T1 is checked globally). A call that is valid and changes nothing is placed immediately. A reply that ends a lease
/// is placed only when it can wait no longer, because no reply is valid only because a lock is free. Among requests without a
/// reply for one resource, only the first is tried.
pub(super) fn search(calls: &[&LinearCall], joined: bool) -> CheckFinding {
    // When several resources are acquired together, `busy` proves nothing and needs no explanation.
    let idle = |outcome: &CallOutcome| joined && matches!(outcome, CallOutcome::MaybeGranted(_) | CallOutcome::Busy(_));
    let mut calls: Vec<&LinearCall> = calls.iter().filter(|call| !idle(&call.outcome)).copied().collect();
    calls.sort_by_key(|call| (call.from, call.op));
    let mut grants: Vec<usize> = (0..calls.len()).filter(|i| issued_number(&calls[*i].outcome).is_some()).collect();
    grants.sort_by_key(|i| issued_number(&calls[*i].outcome));
    let start = (vec![0u64; calls.len().div_ceil(64)], [(None, 0); EXCLUSIVE.len()]);
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    let mut furthest = 0;
    while let Some(state) = stack.pop() {
        let Some(bound) = bound(&calls, &state.0) else { return Ok(()) };
        furthest = furthest.max(bound);
        if seen.len() > BUDGET {
            return broken("L1", bound, format!("no order was found within {BUDGET} states"));
        }
        let lowest = grants.iter().copied().find(|i| !is_placed(&state.0, *i));
        for (i, after) in next(&calls, &state, lowest, bound, joined) {
            let mut placed = state.0.clone();
            placed[i / 64] |= 1 << (i % 64);
            if seen.insert((placed.clone(), after)) {
                stack.push((placed, after));
            }
        }
    }
    broken("L1", furthest, "no order of the calls explains their replies")
}

/// Calls that are not placed yet, by start time.
fn open<'a>(calls: &[&'a LinearCall], placed: &[u64]) -> impl Iterator<Item = (usize, &'a LinearCall)> {
    let first = 64 * placed.iter().take_while(|word| **word == u64::MAX).count();
    calls.iter().copied().enumerate().skip(first).filter(|(i, _)| !is_placed(placed, *i))
}

fn is_placed(placed: &[u64], i: usize) -> bool {
    placed[i / 64] >> (i % 64) & 1 == 1
}

/// The earliest end of a call that is not placed; `None` if all replies are placed.
fn bound(calls: &[&LinearCall], placed: &[u64]) -> Option<SimTime> {
    let mut bound = SimTime::MAX;
    for (_, call) in open(calls, placed) {
        if call.from > bound {
            break;
        }
        bound = bound.min(call.until);
    }
    (bound < SimTime::MAX).then_some(bound)
}

/// The number that a call issues.
fn issued_number(outcome: &CallOutcome) -> Option<u64> {
    match outcome {
        CallOutcome::Granted(grants) => grants.iter().map(|(_, number)| *number).min(),
        CallOutcome::Rotated(_, _, new) => Some(*new),
        _ => None,
    }
}

/// Calls that can come next, with the locks after each.
fn next(
    calls: &[&LinearCall],
    (placed, locks): &SearchState,
    lowest: Option<usize>,
    bound: SimTime,
    joined: bool,
) -> Vec<(usize, LockModel)> {
    let mut next: Vec<(usize, LockModel)> = Vec::new();
    let mut maybe = [false; EXCLUSIVE.len()];
    for (i, call) in open(calls, placed).take_while(|(_, call)| call.from <= bound) {
        if issued_number(&call.outcome).is_some() && lowest != Some(i) {
            continue;
        }
        if let CallOutcome::MaybeGranted(resource) = call.outcome {
            // It only helps to explain another call's `busy`; it may as well not have been executed.
            if call.until < SimTime::MAX {
                next.push((i, *locks));
            } else if std::mem::replace(&mut maybe[resource], true) {
                continue;
            }
            if locks[resource].0.is_some() {
                continue;
            }
        }
        let Some(after) = step(*locks, &call.outcome, joined) else { continue };
        if after == *locks {
            // It is valid here and changes nothing: placing it now excludes no other order.
            return vec![(i, after)];
        }
        if matches!(call.outcome, CallOutcome::Ended(..)) && call.until > bound {
            continue;
        }
        next.push((i, after));
    }
    next
}
