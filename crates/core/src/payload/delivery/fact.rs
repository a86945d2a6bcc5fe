//! What is put on record about messages.

use std::sync::Arc;

use crate::codec::{Malformed, Reader, Write};
use crate::ids::SessionId;
use crate::limits::{ATTEMPTS_MAX, DELAY_MAX, HOLDER_BYTES, ITEM_BYTES, NAME_BYTES, RECEIVE_MOST};
use crate::payload::{put_session, session, text, ttl};
use crate::refusal::number;
use crate::token::Number;

/// One change of the queues. Message ids are never used twice, so the id alone says which queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A message came.
    Enqueued {
        /// The queue's resource name.
        queue: Box<str>,
        /// The message.
        item: u64,
        /// What it says.
        body: Arc<[u8]>,
        /// Milliseconds before it can be received.
        delay_ms: u64,
        /// Deliveries before it is dead.
        max_attempts: u32,
    },
    /// Messages were handed out; their receipts follow one another.
    Delivered {
        /// The receipt of the first.
        first: Number,
        /// The messages.
        items: Vec<u64>,
        /// The session with which the receipts end.
        session: Option<SessionId>,
        /// Who has them.
        holder: Box<str>,
        /// How long each stays.
        visibility_ms: u64,
    },
    /// A holder keeps its message for longer.
    Extended {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// For how long from now.
        visibility_ms: u64,
    },
    /// A message is done.
    Acked {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// A message was given back undone.
    Returned {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// Milliseconds before it can be received again.
        delay_ms: u64,
    },
    /// A delivery ran out.
    Expired {
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// A dead message lives again.
    Redriven {
        /// The message.
        item: u64,
    },
    /// A dead message is forgotten.
    Dropped {
        /// The message.
        item: u64,
    },
}

impl Fact {
    /// The highest token number that this fact assigns.
    pub fn numbers(&self) -> Option<Number> {
        match self {
            Self::Delivered { first, items, .. } => last(*first, items.len()),
            _ => None,
        }
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Enqueued { queue, item, body, delay_ms, max_attempts } => {
                out.u8(1);
                out.text(queue);
                out.num(*item);
                out.bytes(body);
                out.num(*delay_ms);
                out.num(u64::from(*max_attempts));
            }
            Self::Delivered { first, items, session, holder, visibility_ms } => {
                out.u8(2);
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

    /// Takes a fact off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            1 => Self::Enqueued {
                queue: text(from, NAME_BYTES)?.into(),
                item: from.num()?,
                body: body(from)?,
                delay_ms: delay(from)?,
                max_attempts: max_attempts(from)?,
            },
            2 => {
                let first = number(from)?;
                let items = items(from)?;
                if last(first, items.len()).is_none() {
                    return Err(from.wrong("receipts beyond the last number"));
                }
                let session = session(from)?;
                let holder = text(from, HOLDER_BYTES)?.into();
                Self::Delivered { first, items, session, holder, visibility_ms: ttl(from)? }
            }
            3 => Self::Extended { item: from.num()?, receipt: number(from)?, visibility_ms: ttl(from)? },
            4 => Self::Acked { item: from.num()?, receipt: number(from)? },
            5 => Self::Returned { item: from.num()?, receipt: number(from)?, delay_ms: delay(from)? },
            6 => Self::Expired { item: from.num()?, receipt: number(from)? },
            7 => Self::Redriven { item: from.num()? },
            8 => Self::Dropped { item: from.num()? },
            _ => return Err(from.wrong("no such fact about messages")),
        })
    }
}

pub(super) fn body(from: &mut Reader<'_>) -> Result<Arc<[u8]>, Malformed> {
    let body = from.bytes()?;
    if body.len() > ITEM_BYTES { Err(from.wrong("message too long")) } else { Ok(body.into()) }
}

pub(super) fn max_attempts(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    let max = from.num32()?;
    if (1..=ATTEMPTS_MAX).contains(&max) { Ok(max) } else { Err(from.wrong("not a number of attempts")) }
}

fn delay(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let delay = from.num()?;
    if delay <= DELAY_MAX { Ok(delay) } else { Err(from.wrong("delay too long")) }
}

fn items(from: &mut Reader<'_>) -> Result<Vec<u64>, Malformed> {
    let count = from.num()?;
    if count == 0 || count > RECEIVE_MOST as u64 {
        return Err(from.wrong("no delivery has so many messages"));
    }
    (0..count).map(|_| from.num()).collect()
}

pub(super) fn last(first: Number, count: usize) -> Option<Number> {
    Number::new(first.get().checked_add((count as u64).checked_sub(1)?)?)
}
