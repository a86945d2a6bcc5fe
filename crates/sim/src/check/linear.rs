//! Linearizability (Wing and Gong, with Lowe's memory): the answers about exclusive leases are those of one lock after the
//! other, each taken at some instant inside its call. Resources that are asked for together are looked at together.
//!
//! A lease may end by itself at any instant, so only what that cannot explain is a violation: two holders that are both
//! told to be current, a holder that is current again after it was not, `busy` where nobody can hold. A request without an
//! answer may have been done or not, also after the end. Running out of budget is a failure.

mod search;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::Answer;
use leasehold_core::ids::LeaseId;
use leasehold_core::record::Record;
use leasehold_core::refusal::{NotCurrent, Refusal};

use super::ledger::{Met, walk};
use super::{Finding, Violation};
use crate::ask::{Ask, EXCLUSIVE, Known};
use crate::clock::At;
use crate::history::{Event, History};

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
        search::search(&own, members.len() > 1)?;
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
    let mut entered = BTreeSet::new();
    let mut rotates = BTreeMap::new();
    let mut leases = BTreeMap::new();
    let mut asked: BTreeMap<u64, (At, Ask)> = BTreeMap::new();
    let mut group: Groups = std::array::from_fn(|i| i);
    let mut overlaps = [false; EXCLUSIVE.len()];
    let mut calls = Vec::new();
    let walked = walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Depth { lease, .. }) => {
                entered.extend(ledger.leases.get(lease).map(|lease| lease.number));
            }
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
                    // Without an answer it may be held under a number that nobody knows, like what was asked for anew.
                    Ask::Rotate { held } => {
                        let of = ledger.numbers.get(&held.number.get()).and_then(|name| place(name));
                        rotates.extend(of.map(|resource| (*op, resource)));
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
                        // What was entered twice is left twice; whether this was the last time, nobody is told.
                        Some(held) if entered.contains(&held.number.get()) && matches!(ask, Ask::Release { .. }) => {
                            None
                        }
                        _ => done(&ask, answer, |number| place(ledger.numbers.get(&number)?)),
                    };
                    // Without room nothing is remembered: another copy of the request may be done later.
                    let again = matches!(answer, Answer::Refused(Refusal::StorageFull));
                    let until = if again { At::MAX } else { at };
                    calls.extend(done.map(|done| Call { op: *op, from, until, done }));
                }
            }
            _ => {}
        }
        Ok::<(), Violation>(())
    });
    debug_assert!(walked.is_ok());
    for (op, (from, ask)) in asked {
        let resource = match ask {
            Ask::Acquire { resource, .. } => place(resource),
            Ask::Rotate { .. } => rotates.get(&op).copied(),
            _ => None,
        };
        calls.extend(resource.map(|resource| Call { op, from, until: At::MAX, done: Done::Perhaps(resource) }));
    }
    one_gives(&mut calls);
    // Whoever leads a group is its lowest member.
    let leads: Groups = std::array::from_fn(|i| (0..EXCLUSIVE.len()).find(|j| group[*j] == group[i]).unwrap_or(i));
    (calls, leads, overlaps)
}

/// Of those who were told the same new number the first to ask was given it, as far as anybody can tell; the others found
/// it held, by their own session, and entered it.
fn one_gives(calls: &mut [Call]) {
    calls.sort_by_key(|call| (call.from, call.op));
    let several = calls.iter().flat_map(|call| match &call.done {
        Done::Granted(grants) if grants.len() > 1 => grants.iter().map(|(_, number)| *number).collect(),
        Done::Rotated(_, _, new) => vec![*new],
        _ => Vec::new(),
    });
    let mut given: BTreeSet<u64> = several.collect();
    for call in calls {
        if let Done::Granted(grants) = &call.done
            && let [(resource, number)] = grants[..]
            && !given.insert(number)
        {
            call.done = Done::Current(resource, number);
        }
    }
}

/// What a request shows of a lease that it is about.
const fn held(ask: &Ask) -> Option<&Known> {
    match ask {
        Ask::Renew { held, .. } | Ask::Confirm { held } | Ask::Release { held } | Ask::Rotate { held } => Some(held),
        _ => None,
    }
}

/// Which lease a number was told for.
fn note(leases: &mut BTreeMap<u64, LeaseId>, ask: &Ask, answer: &Answer) {
    match (ask, answer) {
        (_, Answer::Granted(grant)) => drop(leases.insert(grant.number.get(), grant.lease)),
        (_, Answer::GrantedAll(grants)) => leases.extend(grants.iter().map(|of| (of.number.get(), of.lease))),
        (Ask::Rotate { held } | Ask::Renew { held, .. }, Answer::Current(current)) => {
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
        (Ask::Acquire { resource, .. }, Answer::Refused(Refusal::Lost(_) | Refusal::StorageFull)) => {
            Some(Done::Perhaps(place(resource)?))
        }
        (Ask::Renew { held, .. } | Ask::Confirm { held }, Answer::Current(_)) => {
            Some(Done::Current(of(held.number.get())?, held.number.get()))
        }
        (Ask::Rotate { held }, Answer::Current(current)) => {
            Some(Done::Rotated(of(held.number.get())?, held.number.get(), current.number.get()))
        }
        (Ask::Release { held }, Answer::Done) => Some(Done::Released(of(held.number.get())?, held.number.get())),
        (
            Ask::Renew { held, .. } | Ask::Confirm { held } | Ask::Release { held },
            Answer::Refused(Refusal::Lost(_) | Refusal::NotCurrent(NotCurrent::Unknown | NotCurrent::Superseded)),
        ) => Some(Done::Over(of(held.number.get())?, held.number.get())),
        _ => None,
    }
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
    fn a_rotation_without_an_answer_may_hold_under_a_number_that_nobody_knows() {
        let held = Known { lease: id(0), number: n(5), session: None };
        let rotates = || Event::Asked { op: 2, who: 8, ask: Ask::Rotate { held } };
        let over =
            || [asked_to_renew(3, 0, 5), answers(3, Answer::Refused(Refusal::NotCurrent(NotCurrent::Superseded)))];
        let begins = || [records(), asked(1), answered(1, 5)].into_iter();
        let unknown = begins().chain([rotates()]).chain(over()).chain([asked(4), busy(4)]);
        assert_eq!(check(&history(unknown)), Ok(()));
        let without = begins().chain(over()).chain([asked(4), busy(4)]);
        assert!(check(&history(without)).is_err());
    }

    #[test]
    fn what_was_refused_for_want_of_room_may_be_done_by_another_copy() {
        let full = || answers(1, Answer::Refused(Refusal::StorageFull));
        assert_eq!(check(&history([asked(1), full(), asked(2), busy(2)])), Ok(()));
        assert!(check(&history([asked(2), busy(2)])).is_err());
    }

    #[test]
    fn what_is_entered_again_has_its_number_from_whoever_asked_first() {
        let again = [records(), asked(1), answered(1, 5), asked(2), answered(2, 5)];
        assert_eq!(check(&history(again)), Ok(()));
    }

    #[test]
    fn what_was_told_to_be_over_is_not_current_again() {
        let lost = answers(2, Answer::Refused(Refusal::Lost(Reason::Ttl)));
        let again = [asked_to_renew(2, 0, 5), lost, asked_to_renew(3, 0, 5), answers(3, current(5))];
        assert!(check(&history([records(), asked(1), answered(1, 5)].into_iter().chain(again))).is_err());
    }
}
