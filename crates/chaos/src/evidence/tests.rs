//! Hand-written runs, legal and illegal, to verify that each checker sees its violation in the derived history.

use std::collections::BTreeMap;

use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::record::{BatchHeader, GrantRecord, Record};
use leasehold_core::time::{GrantorTime, WallClock};
use leasehold_core::token::Number;
use leasehold_sim::check::{
    durable_before_reply, fence_marks, linearizability, never_early, only_current_renews, tokens,
};
use leasehold_sim::history::HistoryEvent;

use super::applied_writes::AppliedWrite;
use super::derived_history::{Evidence, history};
use super::measured_time::measured_history;
use crate::holder::holder_name;
use crate::holder_log::{LogEntry, LoggedEvent, RequestKind};
use crate::verdict::{marks_cover, marks_never_decrease};

const MS: u64 = 1_000;

fn n(number: u64) -> Number {
    Number::new(number).expect("fixtures use numbers from 1")
}

fn batch(time: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut batch = Vec::new();
    BatchHeader { chain: [0; 32], time: GrantorTime(time), wall: WallClock(0) }.encode(&mut batch);
    records.iter().for_each(|record| record.encode(&mut batch));
    batch
}

fn granted(slot: u32, number: u64, holder: &str) -> Record<'_> {
    Record::Granted(GrantRecord {
        lease: LeaseId { slot, reuse: 0 },
        number: n(number),
        resource: "jobs/a",
        session: None,
        owner: None,
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
    Record::Ended { lease: slot, number: n(number), reason: EndReason::Ttl, hold: false, comment: "" }
}

fn entry(ms: u64, holder: u32, event: LoggedEvent) -> LogEntry {
    LogEntry { at: ms * MS, holder, event }
}

fn requested(ms: u64, holder: u32, op: u64) -> LogEntry {
    entry(ms, holder, LoggedEvent::Requested { op, request: RequestKind::Acquire { resource: 0, ttl: 1_000, wait: 0 } })
}

fn granted_entry(ms: u64, holder: u32, op: u64, number: u64, slot: u32) -> LogEntry {
    entry(ms, holder, LoggedEvent::Granted { op, number, lease: format!("{slot}.0"), ttl: 1_000, remaining: 1_000 })
}

fn write_sent(ms: u64, holder: u32, op: u64, number: u64, value: bool) -> LogEntry {
    entry(ms, holder, LoggedEvent::WriteSent { op, target: 0, number, value })
}

/// Holder 0 holds 5 until its ttl ends, then holder 1 is granted 6 and receives the reply after `after` milliseconds.
fn succession(after: u64) -> Evidence {
    let (first, second) = (holder_name(0, 1), holder_name(1, 2));
    let opened = Record::Opened { generation: 1, counter: 0 };
    let batches = vec![
        batch(100, &[opened, granted(0, 5, &first)]),
        // Grantor time, regardless of the real time.
        batch(1_200, &[ended(0, 5), granted(1, 6, &second)]),
    ];
    let entries =
        vec![requested(10, 0, 1), granted_entry(12, 0, 1, 5, 0), requested(20, 1, 2), granted_entry(after, 1, 2, 6, 1)];
    Evidence { entries, batches, applied_writes: Vec::new() }
}

#[test]
fn sequential_holders_are_legal() {
    let evidence = succession(1_100);
    let history = history(&evidence);
    for check in [
        durable_before_reply::check,
        tokens::check,
        never_early::check,
        only_current_renews::check,
        linearizability::check,
        fence_marks::check,
    ] {
        assert_eq!(check(&history), Ok(()));
    }
    assert_eq!(never_early::check(&measured_history(&evidence)), Ok(()));
}

#[test]
fn a_successor_before_the_ttl_is_found_only_in_measured_time() {
    let evidence = succession(600);
    assert_eq!(never_early::check(&history(&evidence)), Ok(()), "on grantor time the ttl had ended");
    assert_eq!(never_early::check(&measured_history(&evidence)).unwrap_err().promise, "L2");
}

#[test]
fn a_received_grant_that_is_not_on_record_is_found() {
    let mut evidence = succession(1_100);
    evidence.batches.pop();
    assert_eq!(durable_before_reply::check(&history(&evidence)).unwrap_err().promise, "L3");
}

#[test]
fn a_lower_number_for_a_later_request_is_found() {
    let mut evidence = succession(1_100);
    let third = holder_name(0, 3);
    evidence.batches.push(batch(1_300, &[granted(2, 4, &third)]));
    evidence.entries.extend([requested(1_200, 0, 3), granted_entry(1_210, 0, 3, 4, 2)]);
    assert_eq!(tokens::check(&history(&evidence)).unwrap_err().promise, "T1");
}

#[test]
fn a_renewal_requested_after_the_successors_grant_is_found() {
    let renew = |at| {
        let mut evidence = succession(1_100);
        let request = RequestKind::Renew { number: 5, lease: "0.0".to_owned() };
        evidence.entries.push(entry(at, 0, LoggedEvent::Requested { op: 7, request }));
        evidence.entries.push(entry(1_150, 0, LoggedEvent::Current { op: 7, number: 5, remaining: 900 }));
        evidence.entries.sort_by_key(|entry| entry.at);
        only_current_renews::check(&history(&evidence))
    };
    assert_eq!(renew(1_090), Ok(()), "it may have been decided before the end");
    assert_eq!(renew(1_101).unwrap_err().promise, "L4");
}

#[test]
fn a_late_write_is_found_even_before_the_successor_has_written() {
    let late = |sent| {
        let mut evidence = succession(1_100);
        evidence
            .entries
            .extend([write_sent(1_110, 1, 8, 6, false), entry(1_120, 1, LoggedEvent::WriteAcknowledged { op: 8 })]);
        evidence.entries.push(write_sent(sent, 0, 9, 5, true));
        evidence.entries.sort_by_key(|entry| entry.at);
        evidence.applied_writes.push(AppliedWrite { target: 0, number: 5, holder: 0, op: 9 });
        fence_marks::check(&history(&evidence))
    };
    assert_eq!(late(1_115), Ok(()), "it was sent before the claim was acknowledged");
    assert_eq!(late(1_125).unwrap_err().promise, "F1");
}

#[test]
fn a_claim_is_late_by_its_send_time_not_by_its_reply() {
    let claim = |sent| {
        let mut evidence = succession(1_100);
        evidence
            .entries
            .extend([write_sent(1_110, 1, 8, 6, false), entry(1_120, 1, LoggedEvent::WriteAcknowledged { op: 8 })]);
        evidence
            .entries
            .extend([write_sent(sent, 0, 9, 5, false), entry(1_190, 0, LoggedEvent::WriteAcknowledged { op: 9 })]);
        evidence.entries.sort_by_key(|entry| entry.at);
        fence_marks::check(&history(&evidence))
    };
    assert_eq!(claim(1_115), Ok(()), "it may have been first");
    assert_eq!(claim(1_125).unwrap_err().promise, "F1");
}

#[test]
fn a_grant_without_a_reply_is_found_in_the_journal() {
    let mut evidence = succession(1_100);
    evidence.entries.truncate(3);
    evidence.entries.push(requested(30, 2, 4));
    let history = history(&evidence);
    let answered =
        history.events.iter().filter(|(_, event)| matches!(event, HistoryEvent::ReplyReceived { op: 6, .. })).count();
    let requests =
        history.events.iter().filter(|(_, event)| matches!(event, HistoryEvent::Requested { op: 4, .. })).count();
    assert_eq!((answered, requests), (1, 0), "an acquire without a grant is left out");
}

#[test]
fn a_client_that_retries_may_have_an_earlier_grant() {
    let mut evidence = succession(1_100);
    let second = holder_name(1, 2);
    evidence.batches.push(batch(2_300, &[ended(1, 6), granted(2, 7, &second)]));
    evidence.entries[3] = granted_entry(2_400, 1, 2, 7, 2);
    let refused = LoggedEvent::Refused { op: 4, code: "BUSY".to_owned(), reason: None };
    evidence.entries.extend([requested(1_300, 2, 4), entry(1_310, 2, refused)]);
    evidence.entries.sort_by_key(|entry| entry.at);
    let history = history(&evidence);
    let numbers = history.events.iter().filter_map(|(_, event)| match event {
        HistoryEvent::ReplyReceived { op, answer: leasehold_core::command::Answer::Granted(_), .. } => Some(*op),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 6], "6 was granted under the same name without a reply");
    assert_eq!(linearizability::check(&history), Ok(()));
}

#[test]
fn a_client_that_stopped_waiting_may_still_have_a_grant() {
    let refused = |op, code: &str| LoggedEvent::Refused { op, code: code.to_owned(), reason: None };
    let mut evidence = succession(1_100);
    evidence.entries.pop();
    evidence.entries.push(entry(900, 1, refused(2, "TIMEOUT")));
    evidence.entries.extend([requested(1_200, 2, 4), entry(1_210, 2, refused(4, "BUSY"))]);
    assert_eq!(linearizability::check(&history(&evidence)), Ok(()), "holder 1 holds it without knowing");
    evidence.batches[1] = batch(1_200, &[ended(0, 5)]);
    evidence.entries[3] = entry(900, 0, LoggedEvent::Done { op: 3 });
    let release = RequestKind::Release { number: 5, lease: "0.0".to_owned() };
    evidence.entries.insert(3, entry(800, 0, LoggedEvent::Requested { op: 3, request: release }));
    evidence.entries.remove(2);
    assert_eq!(linearizability::check(&history(&evidence)).unwrap_err().promise, "L1", "it is free");
}

#[test]
fn a_decreasing_mark_and_one_below_an_acknowledged_write_are_found() {
    let mut known = BTreeMap::new();
    assert!(marks_never_decrease(&mut known, &Ok(vec![(0, 5)])).is_empty());
    assert!(marks_never_decrease(&mut known, &Ok(vec![(0, 7)])).is_empty());
    assert_eq!(marks_never_decrease(&mut known, &Ok(vec![(0, 6)]))[0].promise, "F7");
    let mut evidence = Evidence {
        entries: vec![write_sent(1, 0, 1, 7, true), entry(2, 0, LoggedEvent::WriteAcknowledged { op: 1 })],
        ..Evidence::default()
    };
    assert_eq!(marks_cover(&evidence, &Ok(vec![(0, 7)]))[0].detail, "write 1 was acknowledged, but is missing");
    evidence.applied_writes.push(AppliedWrite { target: 0, number: 7, holder: 0, op: 1 });
    assert!(marks_cover(&evidence, &Ok(vec![(0, 7)])).is_empty());
    assert_eq!(marks_cover(&evidence, &Ok(vec![(0, 6)]))[0].promise, "F2");
}
