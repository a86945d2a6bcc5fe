//! Hand-written histories, to test that each checker accepts legal ones and rejects illegal ones.

use std::rc::Rc;

use leasehold_core::command::{Answer, CurrentLease, Grant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Validity};
use leasehold_core::record::{BatchHeader, GrantRecord, Record, WaitRecord};
use leasehold_core::time::{GrantorTime, WallClock};
use leasehold_core::token::{Number, TokenScope};

use crate::history::{History, HistoryEvent};
use crate::request::{KnownLease, SimAcquireOptions, SimRequest};

pub fn n(number: u64) -> Number {
    Number::new(number).expect("sample histories use numbers from 1")
}

pub fn id(slot: u32) -> LeaseId {
    LeaseId { slot, reuse: 0 }
}

/// One event per millisecond.
pub fn history(events: impl IntoIterator<Item = HistoryEvent>) -> History {
    History { events: events.into_iter().enumerate().map(|(at, event)| (at as u64 * 1_000, event)).collect() }
}

pub fn batch_at(time: u64, records: &[Record<'_>]) -> HistoryEvent {
    let mut batch = Vec::new();
    BatchHeader { chain: [0; 32], time: GrantorTime(time), wall: WallClock(0) }.encode(&mut batch);
    records.iter().for_each(|record| record.encode(&mut batch));
    HistoryEvent::BatchDurable { generation: 1, batch: Rc::from(batch) }
}

pub fn batch(records: &[Record<'_>]) -> HistoryEvent {
    batch_at(0, records)
}

pub fn opened(generation: u64) -> Record<'static> {
    Record::Opened { generation, counter: 0 }
}

pub fn granted<'a>(slot: u32, number: u64, resource: &'a str) -> Record<'a> {
    Record::Granted(GrantRecord {
        lease: id(slot),
        number: n(number),
        resource,
        session: None,
        owner: None,
        holder: "holder-0",
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

pub fn waiting<'a>(waiter: u32, session: u32, holder: &'a str, resource: &'a str) -> Record<'a> {
    Record::Waiting(WaitRecord {
        waiter,
        session,
        holder,
        resources: vec![(resource, Access::Exclusive)],
        atomic: false,
        ttl: 1_000,
        priority: 100,
        until: GrantorTime(60_000),
        sequence: None,
        max_hold: None,
        progress: None,
        metadata: &[],
    })
}

pub fn session(slot: u32, holder: &str) -> Record<'_> {
    let session = SessionId { slot, reuse: 0 };
    Record::SessionOpened { session, owner: None, holder, ttl: 1_000, secret: [0; 32], waits_only: false }
}

pub fn requested(op: u64) -> HistoryEvent {
    let request = SimRequest::Acquire {
        resource: "jobs/a",
        session: None,
        access: Access::Exclusive,
        options: SimAcquireOptions { ttl: Some(1_000), wait: 0, max_hold: None, priority: 100, reentrant: false },
    };
    HistoryEvent::Requested { op, actor: 8, request }
}

pub fn renew_requested(op: u64, slot: u32, number: u64) -> HistoryEvent {
    let held = KnownLease { lease: id(slot), number: n(number), session: None };
    HistoryEvent::Requested { op, actor: 8, request: SimRequest::Renew { held, progress: None } }
}

pub fn release_requested(op: u64, slot: u32, number: u64) -> HistoryEvent {
    let held = KnownLease { lease: id(slot), number: n(number), session: None };
    HistoryEvent::Requested { op, actor: 8, request: SimRequest::Release { held } }
}

pub fn grant(number: u64) -> Answer {
    Answer::Granted(Grant {
        lease: id(0),
        number: n(number),
        scope: TokenScope::Slot(0),
        ttl_ms: 1_000,
        remaining_ms: 1_000,
        validity: Validity::Session,
        drain_ms: 30_000,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    })
}

pub fn current(number: u64) -> Answer {
    Answer::Current(CurrentLease { number: n(number), remaining_ms: 1_000, drain_ms: None, overlaps_ms: None })
}

pub fn grant_received(op: u64, number: u64) -> HistoryEvent {
    HistoryEvent::ReplyReceived { op, actor: 8, answer: grant(number) }
}

pub fn reply_received(op: u64, answer: Answer) -> HistoryEvent {
    HistoryEvent::ReplyReceived { op, actor: 8, answer }
}

pub fn grant_sent(op: u64, number: u64) -> HistoryEvent {
    reply_sent(op, 1, 0, grant(number))
}

pub fn reply_sent(op: u64, generation: u64, time: u64, answer: Answer) -> HistoryEvent {
    HistoryEvent::ReplySent { op, server: 0, generation, time: GrantorTime(time), answer }
}

pub fn decided(op: u64, generation: u64, time: u64, answer: Answer) -> HistoryEvent {
    HistoryEvent::Decided { op, server: 0, generation, time: GrantorTime(time), answer }
}
