//! Hand-written runs, legal and not: what is made of them must let every checker see what it is there for.

use std::collections::BTreeMap;

use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, Reason};
use leasehold_core::record::{Granted, Header, Record};
use leasehold_core::time::{Millis, Wall};
use leasehold_core::token::Number;
use leasehold_sim::check::{acked, alive, linear, never_early, stale, tokens};
use leasehold_sim::history::Event;

use super::ghost::Ghost;
use super::history::{Left, history};
use super::measured::measured;
use crate::holder::holder_name;
use crate::said::{Asks, Said, What};
use crate::verdict::{marks_cover, marks_rise};

const MS: u64 = 1_000;

fn n(number: u64) -> Number {
    Number::new(number).expect("samples use numbers from 1 on")
}

fn batch(time: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut batch = Vec::new();
    Header { chain: [0; 32], time: Millis(time), wall: Wall(0) }.encode(&mut batch);
    records.iter().for_each(|record| record.encode(&mut batch));
    batch
}

fn granted(slot: u32, number: u64, holder: &str) -> Record<'_> {
    Record::Granted(Granted {
        lease: LeaseId { slot, reuse: 0 },
        number: n(number),
        resource: "jobs/a",
        session: None,
        holder,
        access: Access::Exclusive,
        slot: 0,
        ttl: 1_000,
        priority: 100,
        waiter: None,
        overlaps: None,
        max_hold: None,
        progress: None,
        metadata: &[],
    })
}

fn ended(slot: u32, number: u64) -> Record<'static> {
    Record::Ended { lease: slot, number: n(number), reason: Reason::Ttl, hold: false, why: "" }
}

fn said(ms: u64, who: u32, what: What) -> Said {
    Said { at: ms * MS, who, what }
}

fn asks(ms: u64, who: u32, op: u64) -> Said {
    said(ms, who, What::Asks { op, ask: Asks::Acquire { resource: 0, ttl: 1_000, wait: 0 } })
}

fn is_granted(ms: u64, who: u32, op: u64, number: u64, slot: u32) -> Said {
    said(ms, who, What::Granted { op, number, lease: format!("{slot}.0"), ttl: 1_000, remaining: 1_000 })
}

fn sends(ms: u64, who: u32, op: u64, number: u64, value: bool) -> Said {
    said(ms, who, What::Sends { op, target: 0, number, value })
}

/// Holder 0 has 5 until its ttl is over, then holder 1 has 6: told after `after` milliseconds.
fn succession(after: u64) -> Left {
    let (first, second) = (holder_name(0, 1), holder_name(1, 2));
    let opened = Record::Opened { generation: 1, counter: 0 };
    let batches = vec![
        batch(100, &[opened, granted(0, 5, &first)]),
        // So the grantor says, whatever the time was.
        batch(1_200, &[ended(0, 5), granted(1, 6, &second)]),
    ];
    let said = vec![asks(10, 0, 1), is_granted(12, 0, 1, 5, 0), asks(20, 1, 2), is_granted(after, 1, 2, 6, 1)];
    Left { said, batches, ghosts: Vec::new() }
}

#[test]
fn one_holder_after_the_other_is_legal() {
    let left = succession(1_100);
    let history = history(&left);
    for check in [acked::check, tokens::check, never_early::check, alive::check, linear::check, stale::check] {
        assert_eq!(check(&history), Ok(()));
    }
    assert_eq!(never_early::check(&measured(&left)), Ok(()));
}

#[test]
fn a_successor_before_the_ttl_is_found_by_the_machines_clock_alone() {
    let left = succession(600);
    assert_eq!(never_early::check(&history(&left)), Ok(()), "by its own time the grantor waited");
    assert_eq!(never_early::check(&measured(&left)).unwrap_err().promise, "L2");
}

#[test]
fn a_grant_that_was_told_and_is_not_on_record_is_found() {
    let mut left = succession(1_100);
    left.batches.pop();
    assert_eq!(acked::check(&history(&left)).unwrap_err().promise, "L3");
}

#[test]
fn a_lower_number_for_who_asked_later_is_found() {
    let mut left = succession(1_100);
    let third = holder_name(0, 3);
    left.batches.push(batch(1_300, &[granted(2, 4, &third)]));
    left.said.extend([asks(1_200, 0, 3), is_granted(1_210, 0, 3, 4, 2)]);
    assert_eq!(tokens::check(&history(&left)).unwrap_err().promise, "T1");
}

#[test]
fn a_renewal_that_was_asked_after_the_successor_was_told_is_found() {
    let renew = |at| {
        let mut left = succession(1_100);
        let ask = Asks::Renew { number: 5, lease: "0.0".to_owned() };
        left.said.push(said(at, 0, What::Asks { op: 7, ask }));
        left.said.push(said(1_150, 0, What::Current { op: 7, number: 5, remaining: 900 }));
        left.said.sort_by_key(|said| said.at);
        alive::check(&history(&left))
    };
    assert_eq!(renew(1_090), Ok(()), "it may have been decided before the end");
    assert_eq!(renew(1_101).unwrap_err().promise, "L4");
}

#[test]
fn a_late_write_is_found_also_before_the_successor_has_written() {
    let late = |sent| {
        let mut left = succession(1_100);
        left.said.extend([sends(1_110, 1, 8, 6, false), said(1_120, 1, What::Written { op: 8 })]);
        left.said.push(sends(sent, 0, 9, 5, true));
        left.said.sort_by_key(|said| said.at);
        left.ghosts.push(Ghost { target: 0, number: 5, who: 0, op: 9 });
        stale::check(&history(&left))
    };
    assert_eq!(late(1_115), Ok(()), "it was sent before the claim was answered");
    assert_eq!(late(1_125).unwrap_err().promise, "F1");
}

#[test]
fn a_claim_whose_answer_was_read_late_accuses_nobody_and_one_that_was_sent_late_does() {
    let claim = |sent| {
        let mut left = succession(1_100);
        left.said.extend([sends(1_110, 1, 8, 6, false), said(1_120, 1, What::Written { op: 8 })]);
        left.said.extend([sends(sent, 0, 9, 5, false), said(1_190, 0, What::Written { op: 9 })]);
        left.said.sort_by_key(|said| said.at);
        stale::check(&history(&left))
    };
    assert_eq!(claim(1_115), Ok(()), "it may have been first");
    assert_eq!(claim(1_125).unwrap_err().promise, "F1");
}

#[test]
fn a_grant_that_its_holder_never_heard_of_is_found_in_the_journal() {
    let mut left = succession(1_100);
    left.said.truncate(3);
    left.said.push(asks(30, 2, 4));
    let history = history(&left);
    let answered = history.events.iter().filter(|(_, event)| matches!(event, Event::Answered { op: 6, .. })).count();
    let asked = history.events.iter().filter(|(_, event)| matches!(event, Event::Asked { op: 4, .. })).count();
    assert_eq!((answered, asked), (1, 0), "who was never granted anything did not ask for it");
}

#[test]
fn a_client_that_asks_again_may_have_been_granted_something_before() {
    let mut left = succession(1_100);
    let second = holder_name(1, 2);
    left.batches.push(batch(2_300, &[ended(1, 6), granted(2, 7, &second)]));
    left.said[3] = is_granted(2_400, 1, 2, 7, 2);
    let refused = What::Refused { op: 4, code: "BUSY".to_owned(), reason: None };
    left.said.extend([asks(1_300, 2, 4), said(1_310, 2, refused)]);
    left.said.sort_by_key(|said| said.at);
    let history = history(&left);
    let numbers = history.events.iter().filter_map(|(_, event)| match event {
        Event::Answered { op, answer: leasehold_core::command::Answer::Granted(_), .. } => Some(*op),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 6], "6 was granted under the same name, and nobody heard of it");
    assert_eq!(linear::check(&history), Ok(()));
}

#[test]
fn a_client_that_stopped_waiting_may_have_been_granted_what_it_gives_back() {
    let refused = |op, code: &str| What::Refused { op, code: code.to_owned(), reason: None };
    let mut left = succession(1_100);
    left.said.pop();
    left.said.push(said(900, 1, refused(2, "TIMEOUT")));
    left.said.extend([asks(1_200, 2, 4), said(1_210, 2, refused(4, "BUSY"))]);
    assert_eq!(linear::check(&history(&left)), Ok(()), "holder 1 has it and does not know");
    left.batches[1] = batch(1_200, &[ended(0, 5)]);
    left.said[3] = said(900, 0, What::Done { op: 3 });
    let release = Asks::Release { number: 5, lease: "0.0".to_owned() };
    left.said.insert(3, said(800, 0, What::Asks { op: 3, ask: release }));
    left.said.remove(2);
    assert_eq!(linear::check(&history(&left)).unwrap_err().promise, "L1", "nobody has it");
}

#[test]
fn a_mark_that_falls_and_one_below_what_was_told_are_found() {
    let mut known = BTreeMap::new();
    assert!(marks_rise(&mut known, &Ok(vec![(0, 5)])).is_empty());
    assert!(marks_rise(&mut known, &Ok(vec![(0, 7)])).is_empty());
    assert_eq!(marks_rise(&mut known, &Ok(vec![(0, 6)]))[0].promise, "F7");
    let mut left = Left { said: vec![sends(1, 0, 1, 7, true), said(2, 0, What::Written { op: 1 })], ..Left::default() };
    assert_eq!(marks_cover(&left, &Ok(vec![(0, 7)]))[0].why, "write 1 was told to be in and is not there");
    left.ghosts.push(Ghost { target: 0, number: 7, who: 0, op: 1 });
    assert!(marks_cover(&left, &Ok(vec![(0, 7)])).is_empty());
    assert_eq!(marks_cover(&left, &Ok(vec![(0, 6)]))[0].promise, "F2");
}
