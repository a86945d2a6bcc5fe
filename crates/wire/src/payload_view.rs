//! Pages of small state and views of queues, each limited to the size of one response.

use leasehold_core::grantor::QueuePage;
use leasehold_core::limits::RECEIVE_BYTES;
use leasehold_core::payload::delivery::{MessageState, QueueTable};
use leasehold_core::payload::state::{StateTable, StateValue};
use leasehold_core::time::GrantorTime;

use crate::v1;

/// Encodes the small state of a resource after the key `after`.
pub fn state_list(from: &StateTable, resource: &str, after: &str, limit: usize) -> v1::StateList {
    state_entries(from.list(resource).filter(|(key, _)| *key > after).take(limit))
}

/// Encodes stored values up to the byte limit of a response.
pub fn state_entries<'a>(from: impl IntoIterator<Item = (&'a str, &'a StateValue)>) -> v1::StateList {
    let mut budget = RECEIVE_BYTES;
    let entries =
        from.into_iter().take_while(|(_, stored)| fits(&mut budget, stored.bytes.len())).map(|(key, stored)| {
            let (value, token_number) = (stored.bytes.to_vec(), stored.token.get());
            v1::StateEntry { key: key.into(), value, token_number, revision: stored.revision }
        });
    v1::StateList { entries: entries.collect() }
}

/// Encodes the counters of a queue, with its dead letters after the id `after`.
pub fn queue_view(from: &QueueTable, now: GrantorTime, queue: &str, after: u64, limit: usize) -> v1::QueueView {
    queue_page(QueuePage {
        now,
        counts: from.counts(queue, now).unwrap_or_default(),
        next: from.available_from(queue),
        dead_letters: from.dead_letters(queue, after, limit),
    })
}

/// Encodes a page of a queue, with its dead letters up to the byte limit of a response.
pub fn queue_page(from: QueuePage<'_>) -> v1::QueueView {
    let QueuePage { now, counts, next, dead_letters } = from;
    let mut budget = RECEIVE_BYTES;
    let dead = dead_letters.into_iter().take_while(|message| fits(&mut budget, message.body.len())).map(|message| {
        v1::DeadLetter {
            item: message.item,
            body: message.body.to_vec(),
            attempts: message.attempts,
            reason: match message.state {
                MessageState::Dead { reason, .. } => v1::EndReason::from(reason).into(),
                MessageState::Ready { .. } | MessageState::Live { .. } => 0,
            },
        }
    });
    // A message in flight becomes ready when its visibility timeout ends, or earlier.
    v1::QueueView {
        ready: counts.ready as u64,
        delayed: counts.delayed as u64,
        in_flight: counts.live as u64,
        dead: counts.dead as u64,
        next_ms: next.map(|from| now.until(from)),
        dead_letters: dead.collect(),
    }
}

/// Takes `bytes` from the remaining budget. The first item always fits, so that a page makes progress.
fn fits(budget: &mut usize, bytes: usize) -> bool {
    let first = *budget == RECEIVE_BYTES;
    let fits = bytes <= *budget;
    *budget = budget.saturating_sub(bytes.max(1));
    fits || first
}
