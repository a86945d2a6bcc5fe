//! An answer as a few numbers and back, so that a retry is told the same. What was left of a time then is less by now:
//! it is kept as the point in grantor time at which it ends, and counted anew.

use crate::command::{Answer, Current, SessionGrant};
use crate::ids::SessionId;
use crate::payload::{cache, delivery};
use crate::time::Millis;
use crate::token::Number;

/// The numbers that stand for an answer; none for those that are told from the state.
pub(super) fn to_values(answer: &Answer, now: Millis) -> Option<Vec<u64>> {
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
            delivery::Answer::Enqueued { item } => vec![10, *item],
            delivery::Answer::Received(items) => {
                let pairs = items.iter().flat_map(|item| [item.item, item.receipt.get()]);
                [RECEIVED].into_iter().chain(pairs).collect()
            }
            delivery::Answer::Extended { remaining_ms } => vec![12, at(*remaining_ms)],
            delivery::Answer::Acked => vec![13],
            delivery::Answer::Returned { dead } => vec![14, u64::from(*dead)],
            delivery::Answer::Redriven => vec![15],
            delivery::Answer::Dropped => vec![16],
        },
        Answer::Cache(answer) => match **answer {
            cache::Answer::Reading { version, lease, remaining_ms } => vec![20, version, lease.get(), at(remaining_ms)],
            cache::Answer::Dropped => vec![21],
            cache::Answer::Intended { intent, waiting_for, until } => {
                vec![22, intent.get(), u64::from(waiting_for), until.0]
            }
            cache::Answer::Committed { version } => vec![23, version],
            cache::Answer::Aborted => vec![24],
            cache::Answer::Fill { token, remaining_ms } => vec![25, token.get(), at(remaining_ms)],
            cache::Answer::Wait { remaining_ms } => vec![26, at(remaining_ms)],
            cache::Answer::Filled { version } => vec![27, version],
        },
        _ => return None,
    })
}

/// The tag of a receive, whose messages are told from the queue.
pub(super) const RECEIVED: u64 = 11;

/// The answer that the numbers stand for; nothing for numbers that stand for none.
pub(super) fn from_values(values: &[u64], now: Millis) -> Option<Answer> {
    let left = |at: u64| now.until(Millis(at));
    let delivery = |answer| Some(Answer::Delivery(Box::new(answer)));
    let cache = |answer| Some(Answer::Cache(Box::new(answer)));
    let maybe = |at: u64| at.checked_sub(1).map(left);
    match *values {
        [1, number, remaining_ms, drain, overlaps] => Some(Answer::Current(Current {
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
        [10, item] => delivery(delivery::Answer::Enqueued { item }),
        [12, remaining_ms] => delivery(delivery::Answer::Extended { remaining_ms: left(remaining_ms) }),
        [13] => delivery(delivery::Answer::Acked),
        [14, dead] => delivery(delivery::Answer::Returned { dead: dead == 1 }),
        [15] => delivery(delivery::Answer::Redriven),
        [16] => delivery(delivery::Answer::Dropped),
        [20, version, lease, remaining_ms] => {
            cache(cache::Answer::Reading { version, lease: Number::new(lease)?, remaining_ms: left(remaining_ms) })
        }
        [21] => cache(cache::Answer::Dropped),
        [22, intent, waiting_for, until] => cache(cache::Answer::Intended {
            intent: Number::new(intent)?,
            waiting_for: u32::try_from(waiting_for).ok()?,
            until: Millis(until),
        }),
        [23, version] => cache(cache::Answer::Committed { version }),
        [24] => cache(cache::Answer::Aborted),
        [25, token, remaining_ms] => {
            cache(cache::Answer::Fill { token: Number::new(token)?, remaining_ms: left(remaining_ms) })
        }
        [26, remaining_ms] => cache(cache::Answer::Wait { remaining_ms: left(remaining_ms) }),
        [27, version] => cache(cache::Answer::Filled { version }),
        _ => None,
    }
}
