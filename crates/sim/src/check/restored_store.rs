//! V2: a server that has replied under a batch never serves again from a shared journal that lost it, unless a new incarnation began.

use std::collections::BTreeMap;

use leasehold_core::codec::Reader;
use leasehold_core::record::{BatchHeader, Record};

use super::{CheckFinding, broken};
use crate::history::{Batch, History, HistoryEvent};

/// What a server knows of the journal.
#[derive(Clone)]
struct Known {
    /// Number of batches.
    length: usize,
    last: Batch,
    /// The batch that began the incarnation.
    incarnation: Option<Batch>,
}

/// Checks every start of service. Only servers that keep a high-water mark must detect it.
pub fn check(history: &History) -> CheckFinding {
    let (mut line, mut incarnation): (Vec<Batch>, Option<Batch>) = (Vec::new(), None);
    let mut known: BTreeMap<u32, Known> = BTreeMap::new();
    let mut reverted = false;
    for (at, event) in &history.events {
        match event {
            HistoryEvent::BatchDurable { batch, .. } => {
                if begins_incarnation(batch) {
                    incarnation = Some(batch.clone());
                }
                line.push(batch.clone());
            }
            HistoryEvent::JournalReverted { batches, .. } => {
                line.clone_from(batches);
                incarnation = line.iter().rfind(|batch| begins_incarnation(batch)).cloned();
            }
            HistoryEvent::StoreRestored => reverted = true,
            HistoryEvent::HighWaterLost { server } => drop(known.remove(server)),
            HistoryEvent::Serving { server, .. } => {
                let lost = known.get(server).filter(|known| {
                    known.incarnation == incarnation && line.get(known.length - 1) != Some(&known.last)
                });
                if let Some(lost) = lost.filter(|_| reverted) {
                    let detail = format!("server {server} serves without batch {}, which it has seen", lost.length);
                    return broken("V2", *at, detail);
                }
                remember(&mut known, *server, &line, &incarnation);
            }
            HistoryEvent::ReplySent { server, .. } => remember(&mut known, *server, &line, &incarnation),
            _ => {}
        }
    }
    Ok(())
}

fn remember(known: &mut BTreeMap<u32, Known>, server: u32, line: &[Batch], incarnation: &Option<Batch>) {
    if let Some(last) = line.last() {
        let now = Known { length: line.len(), last: last.clone(), incarnation: incarnation.clone() };
        known.insert(server, now);
    }
}

fn begins_incarnation(batch: &[u8]) -> bool {
    let mut from = Reader::new(batch);
    if BatchHeader::decode(&mut from).is_err() {
        return false;
    }
    while !from.is_empty() {
        match Record::decode(&mut from) {
            Ok(Record::Created { .. } | Record::Restored { .. }) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::GrantorTime;
    use leasehold_core::token::Incarnation;

    use super::super::sample_histories::*;
    use super::*;
    use crate::fault::Fault;

    fn durable(batch: HistoryEvent) -> Batch {
        match batch {
            HistoryEvent::BatchDurable { batch, .. } => batch,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn a_server_does_not_serve_without_a_batch_that_it_has_seen_unless_a_new_incarnation_began() {
        let first = || batch(&[opened(1)]);
        let serving = |server, generation| HistoryEvent::Serving { server, generation };
        let restored = || HistoryEvent::JournalReverted { cause: Fault::Rollback, batches: vec![durable(first())] };
        let lose = || {
            [
                first(),
                serving(1, 1),
                batch(&[granted(0, 5, "jobs/a")]),
                grant_sent(1, 5),
                HistoryEvent::StoreRestored,
                restored(),
            ]
        };
        let run = |end: &[HistoryEvent]| check(&history(lose().into_iter().chain(end.iter().cloned())));
        let server = lose().iter().find_map(|event| match event {
            HistoryEvent::ReplySent { server, .. } => Some(*server),
            _ => None,
        });
        let server = server.expect("a reply");
        let more = || batch(&[opened(2), granted(1, 9, "jobs/a")]);
        assert_eq!(run(&[more(), serving(server, 2)]).unwrap_err().promise, "V2");
        assert_eq!(run(&[more(), serving(server + 1, 2)]), Ok(()), "another server has seen nothing");
        assert_eq!(run(&[HistoryEvent::HighWaterLost { server }, more(), serving(server, 2)]), Ok(()));
        let record = Record::Restored { incarnation: Incarnation(2), counter: 9, quarantine: GrantorTime(0) };
        assert_eq!(run(&[batch(&[record, opened(2)]), serving(server, 2)]), Ok(()), "the restore was accepted");
    }
}
