//! Journal records of message queues.

use std::sync::Arc;

use crate::codec::{DecodeError, Reader, Write};
use crate::ids::SessionId;
use crate::limits::{ATTEMPTS_MAX, DELAY_MAX, HOLDER_BYTES, ITEM_BYTES, NAME_BYTES, RECEIVE_MAX};
use crate::payload::{owner, put_owner, put_session, session, text, ttl};
use crate::refusal::number;
use crate::token::Number;

/// One change of the queues. Message ids are never reused, so the id identifies the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryRecord {
    /// A message was added.
    Enqueued {
        /// The queue's resource name.
        queue: Box<str>,
        /// The message.
        item: u64,
        /// The identity that sent it; `None` for `local`.
        owner: Option<Box<str>>,
        /// The message body.
        body: Arc<[u8]>,
        /// Milliseconds before it can be received.
        delay_ms: u64,
        /// Deliveries before it becomes a dead letter.
        max_attempts: u32,
    },
    /// Messages were delivered, with consecutive receipts.
    Delivered {
        /// The receipt of the first.
        first: Number,
        /// The messages.
        items: Vec<u64>,
        /// The session that carries the receipts.
        session: Option<SessionId>,
        /// The identity that received them; `None` for `local`.
        owner: Option<Box<str>>,
        /// Name of the consumer.
        holder: Box<str>,
        /// How long each message stays with the consumer.
        visibility_ms: u64,
    },
    /// The visibility of a message was extended.
    Extended {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// Duration from now.
        visibility_ms: u64,
    },
    /// A message was acknowledged.
    Acked {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// A message was returned to the queue.
    Returned {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// Milliseconds before it can be received again.
        delay_ms: u64,
    },
    /// A delivery expired.
    Expired {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// A dead letter was returned to the queue.
    Redriven {
        /// The message.
        item: u64,
    },
    /// A dead letter was deleted.
    Dropped {
        /// The message.
        item: u64,
    },
}

impl DeliveryRecord {
    /// The highest token number that this record assigns.
    pub fn numbers(&self) -> Option<Number> {
        match self {
            Self::Delivered { first, items, .. } => last(*first, items.len()),
            _ => None,
        }
    }

    /// The identity that sent the message or received the messages; `None` for `local`, and where it does not matter.
    pub(crate) fn owner(&self) -> Option<&str> {
        match self {
            Self::Enqueued { owner, .. } | Self::Delivered { owner, .. } => owner.as_deref(),
            Self::Extended { .. }
            | Self::Acked { .. }
            | Self::Returned { .. }
            | Self::Expired { .. }
            | Self::Redriven { .. }
            | Self::Dropped { .. } => None,
        }
    }

    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Enqueued { queue, item, owner, body, delay_ms, max_attempts } => {
                // Messages of `local` have the code from before messages had owners.
                out.u8(if owner.is_some() { 10 } else { 1 });
                put_owner(owner, out);
                out.text(queue);
                out.num(*item);
                out.bytes(body);
                out.num(*delay_ms);
                out.num(u64::from(*max_attempts));
            }
            Self::Delivered { first, items, session, owner, holder, visibility_ms } => {
                // Deliveries to `local` have the code from before receipts had owners.
                out.u8(if owner.is_some() { 9 } else { 2 });
                put_owner(owner, out);
                out.num(first.get());
                out.num(items.len() as u64);
                for item in items {
                    out.num(*item);
                }
                put_session(*session, out);
                out.text(holder);
                out.num(*visibility_ms);
            }
            Self::Extended { item, receipt, visibility_ms } => {
                out.u8(3);
                out.num(*item);
                out.num(receipt.get());
                out.num(*visibility_ms);
            }
            Self::Acked { item, receipt } => {
                out.u8(4);
                out.num(*item);
                out.num(receipt.get());
            }
            Self::Returned { item, receipt, delay_ms } => {
                out.u8(5);
                out.num(*item);
                out.num(receipt.get());
                out.num(*delay_ms);
            }
            Self::Expired { item, receipt } => {
                out.u8(6);
                out.num(*item);
                out.num(receipt.get());
            }
            Self::Redriven { item } => {
                out.u8(7);
                out.num(*item);
            }
            Self::Dropped { item } => {
                out.u8(8);
                out.num(*item);
            }
        }
    }

    /// Decodes a record from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            code @ (1 | 10) => Self::Enqueued {
                owner: owner(code == 10, from)?,
                queue: text(from, NAME_BYTES)?.into(),
                item: from.num()?,
                body: body(from)?,
                delay_ms: delay(from)?,
                max_attempts: max_attempts(from)?,
            },
            code @ (2 | 9) => {
                let owner = owner(code == 9, from)?;
                let first = number(from)?;
                let items = items(from)?;
                if last(first, items.len()).is_none() {
                    return Err(from.wrong("receipts beyond the last number"));
                }
                let session = session(from)?;
                let holder = text(from, HOLDER_BYTES)?.into();
                Self::Delivered { first, items, session, owner, holder, visibility_ms: ttl(from)? }
            }
            3 => Self::Extended { item: from.num()?, receipt: number(from)?, visibility_ms: ttl(from)? },
            4 => Self::Acked { item: from.num()?, receipt: number(from)? },
            5 => Self::Returned { item: from.num()?, receipt: number(from)?, delay_ms: delay(from)? },
            6 => Self::Expired { item: from.num()?, receipt: number(from)? },
            7 => Self::Redriven { item: from.num()? },
            8 => Self::Dropped { item: from.num()? },
            _ => return Err(from.wrong("unknown record of messages")),
        })
    }
}

pub(super) fn body(from: &mut Reader<'_>) -> Result<Arc<[u8]>, DecodeError> {
    let body = from.bytes()?;
    if body.len() > ITEM_BYTES { Err(from.wrong("message too long")) } else { Ok(body.into()) }
}

pub(super) fn max_attempts(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let max = from.num32()?;
    if (1..=ATTEMPTS_MAX).contains(&max) { Ok(max) } else { Err(from.wrong("not a number of attempts")) }
}

fn delay(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let delay = from.num()?;
    if delay <= DELAY_MAX { Ok(delay) } else { Err(from.wrong("delay too long")) }
}

fn items(from: &mut Reader<'_>) -> Result<Vec<u64>, DecodeError> {
    let count = from.num()?;
    if count == 0 || count > RECEIVE_MAX as u64 {
        return Err(from.wrong("too many messages in a delivery, or none"));
    }
    (0..count).map(|_| from.num()).collect()
}

pub(super) fn last(first: Number, count: usize) -> Option<Number> {
    Number::new(first.get().checked_add((count as u64).checked_sub(1)?)?)
}
