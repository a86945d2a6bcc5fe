//! Snapshot section of the message queues. Equal states have equal bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::record::{body, max_attempts};
use super::{MessageStage, QueueTable};
use crate::access::LOCAL_OWNER;
use crate::codec::{DecodeError, Reader, Write};
use crate::limits::{HOLDER_BYTES, NAME_BYTES, QUEUE_ITEMS_TOTAL};
use crate::payload::{PastGrant, Span, put_session, session, text};
use crate::refusal::number;
use crate::time::GrantorTime;

impl QueueTable {
    /// Appends the encoded section: queue names in order, then messages in id order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.next_item);
        out.num(self.queues.len() as u64);
        for name in self.queues.keys() {
            out.text(name);
        }
        let indexes: BTreeMap<&str, u64> = self.queues.keys().map(|name| &**name).zip(0..).collect();
        out.num(self.items.len() as u64);
        for (id, item) in &self.items {
            out.num(*id);
            out.num(indexes[&*item.queue]);
            out.bytes(&item.body);
            out.num(u64::from(item.attempts));
            out.num(u64::from(item.max_attempts));
            match &item.stage {
                MessageStage::Ready { from, past } => {
                    out.u8(1);
                    out.num(from.0);
                    PastGrant::encode(*past, out);
                }
                MessageStage::Live { receipt, span, session, owner: _, holder } => {
                    out.u8(2);
                    out.num(receipt.get());
                    span.encode(out);
                    put_session(*session, out);
                    out.text(holder);
                }
                MessageStage::Dead { since, past } => {
                    out.u8(3);
                    out.num(since.0);
                    PastGrant::encode(Some(*past), out);
                }
            }
        }
    }

    /// Decodes the section from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let next_item = from.num()?;
        if next_item == 0 {
            return Err(from.wrong("message id 0 is invalid"));
        }
        let names = names(from)?;
        let mut queues = Self { next_item, ..Self::default() };
        let count = from.num()?;
        if count > QUEUE_ITEMS_TOTAL as u64 {
            return Err(from.wrong("too many messages"));
        }
        let mut before = 0;
        for _ in 0..count {
            let id = from.num()?;
            if id <= before || id >= next_item {
                return Err(from.wrong("a message out of order"));
            }
            before = id;
            let index = usize::try_from(from.num()?).ok();
            let name = index.and_then(|i| names.get(i)).ok_or_else(|| from.wrong("no such queue"))?;
            let body = body(from)?;
            let attempts = from.num32()?;
            let max_attempts = max_attempts(from)?;
            let stage = stage(from)?;
            let fits = match stage {
                MessageStage::Ready { .. } => attempts < max_attempts,
                MessageStage::Live { .. } => (1..=max_attempts).contains(&attempts),
                MessageStage::Dead { .. } => attempts == max_attempts,
            };
            if !fits {
                return Err(from.wrong("attempts that do not fit the stage"));
            }
            queues.add(name, id, LOCAL_OWNER, body, max_attempts, GrantorTime(0));
            queues.set_stage(id, attempts, stage).map_err(|problem| from.wrong(problem))?;
        }
        if queues.queues.len() != names.len() {
            return Err(from.wrong("a queue without messages"));
        }
        Ok(queues)
    }

    /// The owners of all live receipts, by message, in id order.
    pub(crate) fn receipt_owners(&self) -> impl Iterator<Item = (u64, u32)> {
        self.items.iter().filter_map(|(id, item)| match item.stage {
            MessageStage::Live { owner, .. } => Some((*id, owner)),
            MessageStage::Ready { .. } | MessageStage::Dead { .. } => None,
        })
    }

    /// Sets the owner of a message's receipt; false if it has none.
    pub(crate) fn set_receipt_owner(&mut self, item: u64, to: u32) -> bool {
        match self.items.get_mut(&item).map(|item| &mut item.stage) {
            Some(MessageStage::Live { owner, .. }) => {
                *owner = to;
                true
            }
            _ => false,
        }
    }

    /// The senders of all messages, in id order.
    pub(crate) fn senders(&self) -> impl Iterator<Item = (u64, u32)> {
        self.items.iter().map(|(id, item)| (*id, item.sender))
    }

    /// Sets the sender of a message that was decoded without it; false if it does not exist.
    pub(crate) fn set_sender(&mut self, item: u64, to: u32) -> bool {
        let Some(message) = self.items.get_mut(&item) else { return false };
        message.sender = to;
        self.sent.give(to, message.counted());
        true
    }

    fn set_stage(&mut self, id: u64, attempts: u32, stage: MessageStage) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        queue.ready.remove(&(GrantorTime(0), id));
        match &stage {
            MessageStage::Ready { from, .. } => {
                queue.ready.insert((*from, id));
            }
            MessageStage::Live { span, session, .. } => self.live.insert(id, *span, *session),
            MessageStage::Dead { .. } => {
                queue.dead.insert(id);
            }
        }
        item.attempts = attempts;
        item.stage = stage;
        Ok(())
    }
}

fn names(from: &mut Reader<'_>) -> Result<Vec<Arc<str>>, DecodeError> {
    let count = from.num()?;
    let mut names: Vec<Arc<str>> = Vec::new();
    for _ in 0..count {
        let name = text(from, NAME_BYTES)?;
        if names.last().is_some_and(|before| **before >= *name) {
            return Err(from.wrong("queue names out of order"));
        }
        names.push(name.into());
    }
    Ok(names)
}

fn stage(from: &mut Reader<'_>) -> Result<MessageStage, DecodeError> {
    Ok(match from.u8()? {
        1 => MessageStage::Ready { from: GrantorTime(from.num()?), past: PastGrant::decode(from)? },
        2 => MessageStage::Live {
            receipt: number(from)?,
            span: Span::decode(from)?,
            session: session(from)?,
            owner: LOCAL_OWNER,
            holder: text(from, HOLDER_BYTES)?.into(),
        },
        3 => {
            let since = GrantorTime(from.num()?);
            let past = PastGrant::decode(from)?.ok_or_else(|| from.wrong("dead without a delivery"))?;
            MessageStage::Dead { since, past }
        }
        _ => return Err(from.wrong("no such stage of a message")),
    })
}
