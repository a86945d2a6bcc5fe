//! The same run in measured time instead of grantor time, to check that no lease ends early (L2) even if the grantor's clock is
//! wrong.
//!
//! Every record gets its own batch. A start is placed at the earliest possible moment: when it was requested. An end is placed
//! at the latest: when a reply that depends on it was received.

use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::time::GrantorTime;
use leasehold_sim::clock::{MS, SimTime};
use leasehold_sim::history::{History, HistoryEvent};

use super::derived_history::{Evidence, JournalIndex, history, requests};
use crate::holder_log::{LoggedEvent, RequestKind};

/// Grantor time is in whole milliseconds, rounded at both ends.
const ROUNDING: u64 = 2;

/// The history of a run in measured time.
pub fn measured_history(evidence: &Evidence) -> History {
    let index = JournalIndex::of(&evidence.batches);
    let requests = requests(&evidence.entries);
    let end = evidence.entries.last().map_or(0, |entry| entry.at) + 1;
    let (earliest, latest) = (earliest(evidence, &index, &requests), latest(evidence, &index, &requests, end));
    let mut batches = Vec::new();
    for (at, batch) in evidence.batches.iter().enumerate() {
        batches.extend(split_records(batch, earliest[at], latest[at]).into_iter().map(|batch| (latest[at], batch)));
    }
    // Replies keep their places; only their times change.
    let mut measured = History::default();
    let mut batches_left = batches.into_iter().peekable();
    for (at, event) in history(evidence).events {
        while let Some((_, batch)) = batches_left.next_if(|(latest, _)| *latest <= at) {
            measured.add(at, HistoryEvent::BatchDurable { generation: 0, batch });
        }
        match event {
            HistoryEvent::ReplySent { op, server, generation, answer: answer @ Answer::Current(_), .. } => {
                let time = GrantorTime(requests.get(&op).map_or(0, |(requests, _)| requests / MS));
                measured.add(at, HistoryEvent::ReplySent { op, server, generation, time, answer });
            }
            HistoryEvent::Requested { .. } => measured.add(at, event),
            _ => {}
        }
    }
    batches_left.for_each(|(at, batch)| measured.add(at, HistoryEvent::BatchDurable { generation: 0, batch }));
    measured
}

/// Earliest time of each batch: not before its own requests, nor before an earlier batch.
fn earliest(
    evidence: &Evidence,
    index: &JournalIndex,
    requests: &BTreeMap<u64, (SimTime, RequestKind)>,
) -> Vec<SimTime> {
    let mut earliest = vec![0; evidence.batches.len()];
    for entry in &evidence.entries {
        if let LoggedEvent::Granted { op, number, .. } = &entry.event
            && let (Some(batch), Some((at, _))) = (index.granted.get(number), requests.get(op))
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

/// Latest time of each batch: not after the first reply that depends on it or on a later batch.
fn latest(
    evidence: &Evidence,
    index: &JournalIndex,
    requests: &BTreeMap<u64, (SimTime, RequestKind)>,
    end: SimTime,
) -> Vec<SimTime> {
    let mut latest = vec![end; evidence.batches.len()];
    for entry in &evidence.entries {
        let op = match &entry.event {
            LoggedEvent::Granted { op, .. } | LoggedEvent::Done { op } | LoggedEvent::Refused { op, .. } => op,
            _ => continue,
        };
        if let Some(batch) = index.needed(requests.get(op).map(|(_, request)| request), &entry.event) {
            latest[batch] = latest[batch].min(entry.at);
        }
    }
    let mut next = end;
    for at in latest.iter_mut().rev() {
        next = next.min(*at);
        *at = next;
    }
    latest
}

/// Puts each record into its own batch, at its own time.
fn split_records(batch: &[u8], earliest: SimTime, latest: SimTime) -> Vec<Rc<[u8]>> {
    let mut from = Reader::new(batch);
    let Ok(header) = BatchHeader::decode(&mut from) else { return Vec::new() };
    let mut all = Vec::new();
    while !from.is_empty() {
        let Ok(record) = Record::decode(&mut from) else { return all };
        let ends = matches!(record, Record::Ended { .. } | Record::Expired(_) | Record::SessionEnded { .. });
        let time = if ends { latest.div_ceil(MS) + ROUNDING } else { earliest / MS };
        let mut bytes = Vec::new();
        BatchHeader { chain: header.chain, time: GrantorTime(time), wall: header.wall }.encode(&mut bytes);
        record.encode(&mut bytes);
        all.push(Rc::from(bytes));
    }
    all
}
