//! The same run in measured time instead of the grantor's own, for the promise that nothing ends early (L2): what a grantor
//! with a wrong clock would say of itself is not asked.
//!
//! Every record gets a batch of its own. What began is put at the earliest moment that is possible: when it was asked for.
//! What ended is put at the latest: when somebody was told something that follows from it.

use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::record::{Header, Record};
use leasehold_core::time::Millis;
use leasehold_sim::clock::{At, MS};
use leasehold_sim::history::{Event, History};

use super::history::{Left, Places, asked, history};
use crate::said::{Asks, What};

/// Grantor time counts whole milliseconds, on either side.
const ROUNDING: u64 = 2;

/// The history in measured time.
pub fn measured(left: &Left) -> History {
    let places = Places::of(&left.batches);
    let asked = asked(&left.said);
    let end = left.said.last().map_or(0, |said| said.at) + 1;
    let (earliest, latest) = (earliest(left, &places, &asked), latest(left, &places, &asked, end));
    let mut batches = Vec::new();
    for (at, batch) in left.batches.iter().enumerate() {
        batches.extend(apart(batch, earliest[at], latest[at]).into_iter().map(|batch| (latest[at], batch)));
    }
    // The answers stand where they stood; only their times are others.
    let mut measured = History::default();
    let mut landed = batches.into_iter().peekable();
    for (at, event) in history(left).events {
        while let Some((_, batch)) = landed.next_if(|(latest, _)| *latest <= at) {
            measured.add(at, Event::Landed { generation: 0, batch });
        }
        match event {
            Event::Told { op, server, generation, answer: answer @ Answer::Current(_), .. } => {
                let time = Millis(asked.get(&op).map_or(0, |(asked, _)| asked / MS));
                measured.add(at, Event::Told { op, server, generation, time, answer });
            }
            Event::Asked { .. } => measured.add(at, event),
            _ => {}
        }
    }
    landed.for_each(|(at, batch)| measured.add(at, Event::Landed { generation: 0, batch }));
    measured
}

/// Not before a batch's own requests were asked, nor before an earlier batch.
fn earliest(left: &Left, places: &Places, asked: &BTreeMap<u64, (At, Asks)>) -> Vec<At> {
    let mut earliest = vec![0; left.batches.len()];
    for said in &left.said {
        if let What::Granted { op, number, .. } = &said.what
            && let (Some(batch), Some((at, _))) = (places.granted.get(number), asked.get(op))
        {
            earliest[*batch] = earliest[*batch].max(*at);
        }
    }
    let mut last = 0;
    for at in &mut earliest {
        last = last.max(*at);
        *at = last;
    }
    earliest
}

/// Not after the first answer that needs a batch or a later one.
fn latest(left: &Left, places: &Places, asked: &BTreeMap<u64, (At, Asks)>, end: At) -> Vec<At> {
    let mut latest = vec![end; left.batches.len()];
    for said in &left.said {
        let op = match &said.what {
            What::Granted { op, .. } | What::Done { op } | What::Refused { op, .. } => op,
            _ => continue,
        };
        if let Some(batch) = places.needed(asked.get(op).map(|(_, ask)| ask), &said.what) {
            latest[batch] = latest[batch].min(said.at);
        }
    }
    let mut next = end;
    for at in latest.iter_mut().rev() {
        next = next.min(*at);
        *at = next;
    }
    latest
}

/// Each record in a batch of its own, at its time.
fn apart(batch: &[u8], earliest: At, latest: At) -> Vec<Rc<[u8]>> {
    let mut from = Reader::new(batch);
    let Ok(header) = Header::decode(&mut from) else { return Vec::new() };
    let mut all = Vec::new();
    while !from.is_empty() {
        let Ok(record) = Record::decode(&mut from) else { return all };
        let ends = matches!(record, Record::Ended { .. } | Record::Expired(_) | Record::SessionEnded { .. });
        let time = if ends { latest.div_ceil(MS) + ROUNDING } else { earliest / MS };
        let mut bytes = Vec::new();
        Header { chain: header.chain, time: Millis(time), wall: header.wall }.encode(&mut bytes);
        record.encode(&mut bytes);
        all.push(Rc::from(bytes));
    }
    all
}
