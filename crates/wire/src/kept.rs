//! Small state and queues as they stand, page by page: as much as one answer has room for.

use leasehold_core::limits::RECEIVE_BYTES;
use leasehold_core::payload::delivery::{Queues, Standing};
use leasehold_core::payload::state::Small;
use leasehold_core::time::Millis;

use crate::v1;

/// The small state of a resource behind a key, at most so many keys.
pub fn state_list(from: &Small, resource: &str, after: &str, most: usize) -> v1::StateList {
    let mut room = RECEIVE_BYTES;
    let later = from.list(resource).filter(|(key, _)| *key > after).take(most);
    let entries = later.take_while(|(_, stored)| fits(&mut room, stored.bytes.len())).map(|(key, stored)| {
        let (value, token_number) = (stored.bytes.to_vec(), stored.token.get());
        v1::StateEntry { key: key.into(), value, token_number, revision: stored.revision }
    });
    v1::StateList { entries: entries.collect() }
}

/// A queue at this time, with at most so many of its dead messages above an id.
pub fn queue_view(from: &Queues, now: Millis, queue: &str, after: u64, most: usize) -> v1::QueueView {
    let counts = from.counts(queue, now).unwrap_or_default();
    let mut room = RECEIVE_BYTES;
    let dead = from.dead_letters(queue, after, most).into_iter();
    let dead = dead.take_while(|message| fits(&mut room, message.body.len())).map(|message| v1::DeadLetter {
        item: message.item,
        body: message.body.to_vec(),
        attempts: message.attempts,
        reason: match message.standing {
            Standing::Dead { reason, .. } => v1::Reason::from(reason).into(),
            Standing::Ready { .. } | Standing::Live { .. } => 0,
        },
    });
    let ready = from.available_from(queue);
    // What is in somebody's hands may come back when its time is over, or before.
    v1::QueueView {
        ready: counts.ready as u64,
        delayed: counts.delayed as u64,
        live: counts.live as u64,
        dead: counts.dead as u64,
        next_ms: ready.map(|from| now.until(from)),
        dead_letters: dead.collect(),
    }
}

/// Whether so many bytes have room; the first ones always do.
fn fits(room: &mut usize, bytes: usize) -> bool {
    let first = *room == RECEIVE_BYTES;
    let fits = bytes <= *room;
    *room = room.saturating_sub(bytes.max(1));
    fits || first
}
