//! Linearizability (Wing and Gong, with Lowe's memoization): replies about exclusive leases are those of locks whose operations
//! take effect one at a time, each at some instant within its call. Resources that are acquired together are checked together.
//!
//! A lease may end by itself at any instant, so only replies that this cannot explain are violations: two holders that are
//! current at once, a holder that is current again after its lease ended, or `busy` when no lease can be held. A request
//! without a reply may or may not have been executed, even after the end. Running out of budget is a failure.

mod search;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::Answer;
use leasehold_core::ids::LeaseId;
use leasehold_core::record::Record;
use leasehold_core::refusal::{NotCurrent, Refusal};

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, PromiseViolation};
use crate::clock::SimTime;
use crate::history::{History, HistoryEvent};
use crate::request::{KnownLease, SimRequest};
use crate::run_constants::EXCLUSIVE;

/// Effect of a call, as far as its reply shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallOutcome {
    /// These resources are held under these numbers.
    Granted(Vec<(usize, u64)>),
    /// This resource may be held under an unknown number.
    MaybeGranted(usize),
    Busy(usize),
    Current(usize, u64),
    Rotated(usize, u64, u64),
    Released(usize, u64),
    Ended(usize, u64),
}

#[derive(Clone, Debug)]
struct LinearCall {
    op: u64,
    from: SimTime,
    /// `SimTime::MAX` without a reply.
    until: SimTime,
    outcome: CallOutcome,
}

/// Checks calls and replies.
pub fn check(history: &History) -> CheckFinding {
    // One order cannot explain what a rollback or a restore loses; other checkers cover tokens and fences.
    if history.was_reverted() {
        return Ok(());
    }
    let (calls, mut group, overlaps) = calls(history);
    for (resource, overlaps) in overlaps.iter().enumerate() {
        // In an overlap, two holders are current on purpose.
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
        let own: Vec<&LinearCall> = calls.iter().filter(|call| members.contains(&resource_of(&call.outcome))).collect();
        search::search(&own, members.len() > 1)?;
    }
    Ok(())
}

fn resource_of(outcome: &CallOutcome) -> usize {
    match outcome {
        CallOutcome::Granted(grants) => grants[0].0,
        CallOutcome::MaybeGranted(resource)
        | CallOutcome::Busy(resource)
        | CallOutcome::Current(resource, _)
        | CallOutcome::Rotated(resource, ..)
        | CallOutcome::Released(resource, _)
        | CallOutcome::Ended(resource, _) => *resource,
    }
}

fn resource_index(name: &str) -> Option<usize> {
    EXCLUSIVE.iter().position(|known| *known == name)
}

type Groups = [usize; EXCLUSIVE.len()];

fn calls(history: &History) -> (Vec<LinearCall>, Groups, [bool; EXCLUSIVE.len()]) {
    let mut entered = BTreeSet::new();
    let mut rotates = BTreeMap::new();
    let mut leases = BTreeMap::new();
    let mut requested: BTreeMap<u64, (SimTime, SimRequest)> = BTreeMap::new();
    let mut group: Groups = std::array::from_fn(|i| i);
    let mut overlaps = [false; EXCLUSIVE.len()];
    let mut calls = Vec::new();
    let walked = walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Depth { lease, .. }) => {
                entered.extend(model.leases.get(lease).map(|lease| lease.number));
            }
            WalkStep::Other(HistoryEvent::Requested { op, request, .. }) => {
                match request {
                    SimRequest::AcquireAll { resources, .. } => {
                        let indexes: Vec<usize> = resources.iter().filter_map(|name| resource_index(name)).collect();
                        let joined = group[indexes[0]];
                        for other in indexes {
                            let old = group[other];
                            group.iter_mut().filter(|of| **of == old).for_each(|of| *of = joined);
                        }
                    }
                    SimRequest::Handoff { resource, overlap: true, .. } => {
                        resource_index(resource).into_iter().for_each(|resource| overlaps[resource] = true);
                    }
                    // Without a reply the new number is unknown, as with an acquire.
                    SimRequest::Rotate { held } => {
                        let of = model.numbers.get(&held.number.get()).and_then(|name| resource_index(name));
                        rotates.extend(of.map(|resource| (*op, resource)));
                    }
                    _ => {}
                }
                requested.insert(*op, (at, request.clone()));
            }
            WalkStep::Other(HistoryEvent::ReplyReceived { op, answer, .. }) => {
                if let Some((from, request)) = requested.remove(op) {
                    record_leases(&mut leases, &request, answer);
                    // A request that combines a lease with the number of another one says nothing about either.
                    let outcome = match held(&request) {
                        Some(held) if leases.get(&held.number.get()) != Some(&held.lease) => None,
                        // A reentrant lease is released once per acquire; the reply does not show which release is the last.
                        Some(held)
                            if entered.contains(&held.number.get())
                                && matches!(request, SimRequest::Release { .. }) =>
                        {
                            None
                        }
                        _ => outcome(&request, answer, |number| resource_index(model.numbers.get(&number)?)),
                    };
                    // A request refused for lack of disk space is not remembered: a duplicate may be executed later.
                    let again = matches!(answer, Answer::Refused(Refusal::StorageFull));
                    let until = if again { SimTime::MAX } else { at };
                    calls.extend(outcome.map(|outcome| LinearCall { op: *op, from, until, outcome }));
                }
            }
            _ => {}
        }
        Ok::<(), PromiseViolation>(())
    });
    debug_assert!(walked.is_ok());
    for (op, (from, request)) in requested {
        let resource = match request {
            SimRequest::Acquire { resource, .. } => resource_index(resource),
            SimRequest::Rotate { .. } => rotates.get(&op).copied(),
            _ => None,
        };
        calls.extend(resource.map(|resource| LinearCall {
            op,
            from,
            until: SimTime::MAX,
            outcome: CallOutcome::MaybeGranted(resource),
        }));
    }
    keep_first_grants(&mut calls);
    // The lowest member represents a group.
    let leads: Groups = std::array::from_fn(|i| (0..EXCLUSIVE.len()).find(|j| group[*j] == group[i]).unwrap_or(i));
    (calls, leads, overlaps)
}

/// Several replies may contain the same new number. The first request got the grant; the others acquired a lease again that
/// their session already held.
fn keep_first_grants(calls: &mut [LinearCall]) {
    calls.sort_by_key(|call| (call.from, call.op));
    let several = calls.iter().flat_map(|call| match &call.outcome {
        CallOutcome::Granted(grants) if grants.len() > 1 => grants.iter().map(|(_, number)| *number).collect(),
        CallOutcome::Rotated(_, _, new) => vec![*new],
        _ => Vec::new(),
    });
    let mut given: BTreeSet<u64> = several.collect();
    for call in calls {
        if let CallOutcome::Granted(grants) = &call.outcome
            && let [(resource, number)] = grants[..]
            && !given.insert(number)
        {
            call.outcome = CallOutcome::Current(resource, number);
        }
    }
}

/// The lease that a request refers to.
const fn held(request: &SimRequest) -> Option<&KnownLease> {
    match request {
        SimRequest::Renew { held, .. }
        | SimRequest::Confirm { held }
        | SimRequest::Release { held }
        | SimRequest::Rotate { held } => Some(held),
        _ => None,
    }
}

/// Records the lease of each number that a reply contains.
fn record_leases(leases: &mut BTreeMap<u64, LeaseId>, request: &SimRequest, answer: &Answer) {
    match (request, answer) {
        (_, Answer::Granted(grant)) => drop(leases.insert(grant.number.get(), grant.lease)),
        (_, Answer::GrantedAll(grants)) => leases.extend(grants.iter().map(|of| (of.number.get(), of.lease))),
        (SimRequest::Rotate { held } | SimRequest::Renew { held, .. }, Answer::Current(current)) => {
            leases.insert(current.number.get(), held.lease);
        }
        _ => {}
    }
}

fn outcome(request: &SimRequest, answer: &Answer, of: impl Fn(u64) -> Option<usize>) -> Option<CallOutcome> {
    match (request, answer) {
        (SimRequest::Acquire { resource, .. }, Answer::Granted(grant)) => {
            Some(CallOutcome::Granted(vec![(resource_index(resource)?, grant.number.get())]))
        }
        (SimRequest::AcquireAll { resources, .. }, Answer::GrantedAll(grants)) => {
            let all = resources.iter().zip(&grants[..]);
            let all: Option<Vec<_>> =
                all.map(|(name, grant)| Some((resource_index(name)?, grant.number.get()))).collect();
            Some(CallOutcome::Granted(all?))
        }
        (SimRequest::Acquire { resource, .. }, Answer::Refused(Refusal::Busy { .. })) => {
            Some(CallOutcome::Busy(resource_index(resource)?))
        }
        // It was granted once and has ended since, or its session has: the number is unknown.
        (SimRequest::Acquire { resource, .. }, Answer::Refused(Refusal::Lost(_) | Refusal::StorageFull)) => {
            Some(CallOutcome::MaybeGranted(resource_index(resource)?))
        }
        (SimRequest::Renew { held, .. } | SimRequest::Confirm { held }, Answer::Current(_)) => {
            Some(CallOutcome::Current(of(held.number.get())?, held.number.get()))
        }
        (SimRequest::Rotate { held }, Answer::Current(current)) => {
            Some(CallOutcome::Rotated(of(held.number.get())?, held.number.get(), current.number.get()))
        }
        (SimRequest::Release { held }, Answer::Done) => {
            Some(CallOutcome::Released(of(held.number.get())?, held.number.get()))
        }
        (
            SimRequest::Renew { held, .. } | SimRequest::Confirm { held } | SimRequest::Release { held },
            Answer::Refused(Refusal::Lost(_) | Refusal::NotCurrent(NotCurrent::Unknown | NotCurrent::Superseded)),
        ) => Some(CallOutcome::Ended(of(held.number.get())?, held.number.get())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::EndReason;

    use super::super::sample_histories::*;
    use super::*;

    fn records() -> HistoryEvent {
        batch(&[granted(0, 5, "jobs/a"), granted(1, 6, "jobs/a")])
    }

    fn busy(op: u64) -> HistoryEvent {
        reply_received(op, Answer::Refused(Refusal::busy(1)))
    }

    #[test]
    fn sequential_holders_are_legal_and_concurrent_ones_are_not() {
        let renew = |op, number| [renew_requested(op, 0, number), reply_received(op, current(number))];
        let take = |op, number| [requested(op), grant_received(op, number)];
        let legal = [take(1, 5), renew(2, 5), take(3, 6), renew(4, 6)];
        assert_eq!(check(&history([records()].into_iter().chain(legal.into_iter().flatten()))), Ok(()));
        let both = [take(1, 5), take(2, 6), renew(3, 6), renew(4, 5)];
        assert!(check(&history([records()].into_iter().chain(both.into_iter().flatten()))).is_err());
    }

    #[test]
    fn calls_that_overlap_may_take_place_in_either_order() {
        let legal =
            [records(), requested(1), renew_requested(2, 0, 5), grant_received(1, 5), reply_received(2, current(5))];
        assert_eq!(check(&history(legal)), Ok(()));
    }

    #[test]
    fn a_released_lease_is_not_busy_unless_a_request_without_reply_may_hold_it() {
        let released = || {
            [records(), requested(1), grant_received(1, 5), release_requested(2, 0, 5), reply_received(2, Answer::Done)]
        };
        let illegal = history(released().into_iter().chain([requested(3), busy(3)]));
        assert_eq!(check(&illegal).unwrap_err().promise, "L1");
        let unknown = history([requested(9)].into_iter().chain(released()).chain([requested(3), busy(3)]));
        assert_eq!(check(&unknown), Ok(()), "#9 has no reply and may hold it");
    }

    #[test]
    fn a_rotation_without_a_reply_may_hold_under_an_unknown_number() {
        let held = KnownLease { lease: id(0), number: n(5), session: None };
        let rotates = || HistoryEvent::Requested { op: 2, actor: 8, request: SimRequest::Rotate { held } };
        let ended = || {
            [renew_requested(3, 0, 5), reply_received(3, Answer::Refused(Refusal::NotCurrent(NotCurrent::Superseded)))]
        };
        let start = || [records(), requested(1), grant_received(1, 5)].into_iter();
        let unknown = start().chain([rotates()]).chain(ended()).chain([requested(4), busy(4)]);
        assert_eq!(check(&history(unknown)), Ok(()));
        let without = start().chain(ended()).chain([requested(4), busy(4)]);
        assert!(check(&history(without)).is_err());
    }

    #[test]
    fn a_request_refused_for_a_full_disk_may_be_executed_as_a_duplicate() {
        let full = || reply_received(1, Answer::Refused(Refusal::StorageFull));
        assert_eq!(check(&history([requested(1), full(), requested(2), busy(2)])), Ok(()));
        assert!(check(&history([requested(2), busy(2)])).is_err());
    }

    #[test]
    fn a_reentrant_acquire_returns_the_number_of_the_first_request() {
        let again = [records(), requested(1), grant_received(1, 5), requested(2), grant_received(2, 5)];
        assert_eq!(check(&history(again)), Ok(()));
    }

    #[test]
    fn an_ended_lease_is_not_current_again() {
        let lost = reply_received(2, Answer::Refused(Refusal::Lost(EndReason::Ttl)));
        let again = [renew_requested(2, 0, 5), lost, renew_requested(3, 0, 5), reply_received(3, current(5))];
        assert!(check(&history([records(), requested(1), grant_received(1, 5)].into_iter().chain(again))).is_err());
    }
}
