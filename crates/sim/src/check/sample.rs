//! Hand-written histories, to see each checker accept what is legal and find what is not.

use std::rc::Rc;

use leasehold_core::command::{Answer, Current, Grant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Rung};
use leasehold_core::record::{Granted, Header, Record, Waiting};
use leasehold_core::time::{Millis, Wall};
use leasehold_core::token::{Number, Reach};

use crate::ask::{Ask, How, Known};
use crate::history::{Event, History};

pub fn n(number: u64) -> Number {
    Number::new(number).expect("samples use numbers from 1 on")
}

pub fn id(slot: u32) -> LeaseId {
    LeaseId { slot, reuse: 0 }
}

/// One event for each millisecond.
pub fn history(events: impl IntoIterator<Item = Event>) -> History {
    History { events: events.into_iter().enumerate().map(|(at, event)| (at as u64 * 1_000, event)).collect() }
}

pub fn landed_at(time: u64, records: &[Record<'_>]) -> Event {
    let mut batch = Vec::new();
    Header { chain: [0; 32], time: Millis(time), wall: Wall(0) }.encode(&mut batch);
    records.iter().for_each(|record| record.encode(&mut batch));
    Event::Landed { generation: 1, batch: Rc::from(batch) }
}

pub fn landed(records: &[Record<'_>]) -> Event {
    landed_at(0, records)
}

pub fn opened(generation: u64) -> Record<'static> {
    Record::Opened { generation, counter: 0 }
}

pub fn granted<'a>(slot: u32, number: u64, resource: &'a str) -> Record<'a> {
    Record::Granted(Granted {
        lease: id(slot),
        number: n(number),
        resource,
        session: None,
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
    Record::Waiting(Waiting {
        waiter,
        session,
        holder,
        asks: vec![(resource, Access::Exclusive)],
        several: false,
        ttl: 1_000,
        priority: 100,
        until: Millis(60_000),
        sequence: None,
        max_hold: None,
        progress: None,
        metadata: &[],
    })
}

pub fn session(slot: u32, holder: &str) -> Record<'_> {
    let session = SessionId { slot, reuse: 0 };
    Record::SessionOpened { session, holder, ttl: 1_000, secret: [0; 32], waits_only: false }
}

pub fn asked(op: u64) -> Event {
    let ask = Ask::Acquire {
        resource: "jobs/a",
        session: None,
        access: Access::Exclusive,
        how: How { ttl: Some(1_000), wait: 0, max_hold: None, priority: 100, again: false },
    };
    Event::Asked { op, who: 8, ask }
}

pub fn asked_to_renew(op: u64, slot: u32, number: u64) -> Event {
    let held = Known { lease: id(slot), number: n(number), session: None };
    Event::Asked { op, who: 8, ask: Ask::Renew { held, progress: None } }
}

pub fn asked_to_release(op: u64, slot: u32, number: u64) -> Event {
    let held = Known { lease: id(slot), number: n(number), session: None };
    Event::Asked { op, who: 8, ask: Ask::Release { held } }
}

pub fn grant(number: u64) -> Answer {
    Answer::Granted(Grant {
        lease: id(0),
        number: n(number),
        reach: Reach::Slot(0),
        ttl_ms: 1_000,
        remaining_ms: 1_000,
        rung: Rung::Session,
        drain_ms: 30_000,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    })
}

pub fn current(number: u64) -> Answer {
    Answer::Current(Current { number: n(number), remaining_ms: 1_000, drain_ms: None, overlaps_ms: None })
}

pub fn answered(op: u64, number: u64) -> Event {
    Event::Answered { op, who: 8, answer: grant(number) }
}

pub fn answers(op: u64, answer: Answer) -> Event {
    Event::Answered { op, who: 8, answer }
}

pub fn told(op: u64, number: u64) -> Event {
    tells(op, 1, 0, grant(number))
}

pub fn tells(op: u64, generation: u64, time: u64, answer: Answer) -> Event {
    Event::Told { op, server: 0, generation, time: Millis(time), answer }
}

pub fn decides(op: u64, generation: u64, time: u64, answer: Answer) -> Event {
    Event::Decided { op, server: 0, generation, time: Millis(time), answer }
}
