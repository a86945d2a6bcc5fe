//! Compact codec of stored replies, from which a retry is answered.
//!
//! A remaining time is stored as the grantor time at which it ends, and computed again for the retry.

use crate::command::{Answer, CurrentLease, SessionGrant};
use crate::ids::SessionId;
use crate::payload::{cache, delivery};
use crate::time::GrantorTime;
use crate::token::Number;

/// Encodes an answer as numbers; `None` for answers that are rebuilt from the state.
pub(super) fn to_values(answer: &Answer, now: GrantorTime) -> Option<Vec<u64>> {
    let at = |ms: u64| now.plus(ms).0;
    Some(match answer {
        Answer::Current(current) => {
            let maybe = |ms: Option<u64>| ms.map_or(0, |ms| at(ms).saturating_add(1));
            let (drain, overlaps) = (maybe(current.drain_ms), maybe(current.overlaps_ms));
            vec![1, current.number.get(), at(current.remaining_ms), drain, overlaps]
        }
        Answer::CollectBelow(below) => vec![2, *below],
        Answer::Stored { revision } => vec![3, *revision],
        Answer::Session(grant) => {
            let SessionId { slot, reuse } = grant.session;
            vec![4, u64::from(slot), u64::from(reuse), grant.ttl_ms, at(grant.remaining_ms), u64::from(grant.mismatch)]
        }
        Answer::Delivery(answer) => match &**answer {
            delivery::DeliveryAnswer::Enqueued { item } => vec![10, *item],
            delivery::DeliveryAnswer::Received(items) => {
                let pairs = items.iter().flat_map(|item| [item.item, item.receipt.get()]);
                [RECEIVED].into_iter().chain(pairs).collect()
            }
            delivery::DeliveryAnswer::Extended { remaining_ms } => vec![12, at(*remaining_ms)],
            delivery::DeliveryAnswer::Acked => vec![13],
            delivery::DeliveryAnswer::Returned { dead } => vec![14, u64::from(*dead)],
            delivery::DeliveryAnswer::Redriven => vec![15],
            delivery::DeliveryAnswer::Dropped => vec![16],
        },
        Answer::Cache(answer) => match **answer {
            cache::CacheAnswer::Reading { version, lease, remaining_ms } => {
                vec![20, version, lease.get(), at(remaining_ms)]
            }
            cache::CacheAnswer::Dropped => vec![21],
            cache::CacheAnswer::Intended { intent, waiting_for, until } => {
                vec![22, intent.get(), u64::from(waiting_for), until.0]
            }
            cache::CacheAnswer::Committed { version } => vec![23, version],
            cache::CacheAnswer::Aborted => vec![24],
            cache::CacheAnswer::Fill { token, remaining_ms } => vec![25, token.get(), at(remaining_ms)],
            cache::CacheAnswer::Wait { remaining_ms } => vec![26, at(remaining_ms)],
            cache::CacheAnswer::Filled { version } => vec![27, version],
        },
        _ => return None,
    })
}

/// Code of a receive, whose messages are read from the queue.
pub(super) const RECEIVED: u64 = 11;

/// Decodes an answer; `None` for invalid numbers.
pub(super) fn from_values(values: &[u64], now: GrantorTime) -> Option<Answer> {
    let left = |at: u64| now.until(GrantorTime(at));
    let delivery = |answer| Some(Answer::Delivery(Box::new(answer)));
    let cache = |answer| Some(Answer::Cache(Box::new(answer)));
    let maybe = |at: u64| at.checked_sub(1).map(left);
    match *values {
        [1, number, remaining_ms, drain, overlaps] => Some(Answer::Current(CurrentLease {
            number: Number::new(number)?,
            remaining_ms: left(remaining_ms),
            drain_ms: maybe(drain),
            overlaps_ms: maybe(overlaps),
        })),
        [2, below] => Some(Answer::CollectBelow(below)),
        [3, revision] => Some(Answer::Stored { revision }),
        [4, slot, reuse, ttl_ms, remaining_ms, mismatch] => Some(Answer::Session(SessionGrant {
            session: SessionId { slot: u32::try_from(slot).ok()?, reuse: u32::try_from(reuse).ok()? },
            ttl_ms,
            remaining_ms: left(remaining_ms),
            mismatch: mismatch == 1,
        })),
        [10, item] => delivery(delivery::DeliveryAnswer::Enqueued { item }),
        [12, remaining_ms] => delivery(delivery::DeliveryAnswer::Extended { remaining_ms: left(remaining_ms) }),
        [13] => delivery(delivery::DeliveryAnswer::Acked),
        [14, dead] => delivery(delivery::DeliveryAnswer::Returned { dead: dead == 1 }),
        [15] => delivery(delivery::DeliveryAnswer::Redriven),
        [16] => delivery(delivery::DeliveryAnswer::Dropped),
        [20, version, lease, remaining_ms] => {
            cache(cache::CacheAnswer::Reading { version, lease: Number::new(lease)?, remaining_ms: left(remaining_ms) })
        }
        [21] => cache(cache::CacheAnswer::Dropped),
        [22, intent, waiting_for, until] => cache(cache::CacheAnswer::Intended {
            intent: Number::new(intent)?,
            waiting_for: u32::try_from(waiting_for).ok()?,
            until: GrantorTime(until),
        }),
        [23, version] => cache(cache::CacheAnswer::Committed { version }),
        [24] => cache(cache::CacheAnswer::Aborted),
        [25, token, remaining_ms] => {
            cache(cache::CacheAnswer::Fill { token: Number::new(token)?, remaining_ms: left(remaining_ms) })
        }
        [26, remaining_ms] => cache(cache::CacheAnswer::Wait { remaining_ms: left(remaining_ms) }),
        [27, version] => cache(cache::CacheAnswer::Filled { version }),
        _ => None,
    }
}
