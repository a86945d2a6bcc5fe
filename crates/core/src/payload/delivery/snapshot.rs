//! The queues as one section of a snapshot: the same state always gives the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fact::{body, max_attempts};
use super::{Queues, Stage};
use crate::codec::{Malformed, Reader, Write};
use crate::limits::{HOLDER_BYTES, NAME_BYTES, QUEUE_ITEMS_TOTAL};
use crate::payload::{Past, Span, put_session, session, text};
use crate::refusal::number;
use crate::time::Millis;

impl Queues {
    /// Appends the section's bytes: the names in order, then the messages in the order of their ids.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.next_item);
        out.num(self.queues.len() as u64);
        for name in self.queues.keys() {
            out.text(name);
        }
        let places: BTreeMap<&str, u64> = self.queues.keys().map(|name| &**name).zip(0..).collect();
        out.num(self.items.len() as u64);
        for (id, item) in &self.items {
            out.num(*id);
            out.num(places[&*item.queue]);
            out.bytes(&item.body);
            out.num(u64::from(item.attempts));
            out.num(u64::from(item.max_attempts));
            match &item.stage {
                Stage::Ready { from, past } => {
                    out.u8(1);
                    out.num(from.0);
                    Past::encode(*past, out);
                }
                Stage::Live { receipt, span, session, holder } => {
                    out.u8(2);
                    out.num(receipt.get());
                    span.encode(out);
                    put_session(*session, out);
                    out.text(holder);
                }
                Stage::Dead { since, past } => {
                    out.u8(3);
                    out.num(since.0);
                    Past::encode(Some(*past), out);
                }
            }
        }
    }

    /// Takes the section off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let next_item = from.num()?;
        if next_item == 0 {
            return Err(from.wrong("no message is called 0"));
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
            let place = usize::try_from(from.num()?).ok();
            let name = place.and_then(|p| names.get(p)).ok_or_else(|| from.wrong("no such queue"))?;
            let body = body(from)?;
            let attempts = from.num32()?;
            let max_attempts = max_attempts(from)?;
            let stage = stage(from)?;
            let fits = match stage {
                Stage::Ready { .. } => attempts < max_attempts,
                Stage::Live { .. } => (1..=max_attempts).contains(&attempts),
                Stage::Dead { .. } => attempts == max_attempts,
            };
            if !fits {
                return Err(from.wrong("attempts that do not fit the stage"));
            }
            queues.add(name, id, body, max_attempts, Millis(0));
            queues.settle(id, attempts, stage).map_err(|why| from.wrong(why))?;
        }
        if queues.queues.len() != names.len() {
            return Err(from.wrong("a queue without messages"));
        }
        Ok(queues)
    }

    fn settle(&mut self, id: u64, attempts: u32, stage: Stage) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        queue.ready.remove(&(Millis(0), id));
        match &stage {
            Stage::Ready { from, .. } => {
                queue.ready.insert((*from, id));
            }
            Stage::Live { span, session, .. } => self.live.begin(id, *span, *session),
            Stage::Dead { .. } => {
                queue.dead.insert(id);
            }
        }
        item.attempts = attempts;
        item.stage = stage;
        Ok(())
    }
}

fn names(from: &mut Reader<'_>) -> Result<Vec<Arc<str>>, Malformed> {
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

fn stage(from: &mut Reader<'_>) -> Result<Stage, Malformed> {
    Ok(match from.u8()? {
        1 => Stage::Ready { from: Millis(from.num()?), past: Past::decode(from)? },
        2 => Stage::Live {
            receipt: number(from)?,
            span: Span::decode(from)?,
            session: session(from)?,
            holder: text(from, HOLDER_BYTES)?.into(),
        },
        3 => {
            let since = Millis(from.num()?);
            let past = Past::decode(from)?.ok_or_else(|| from.wrong("dead without a delivery"))?;
            Stage::Dead { since, past }
        }
        _ => return Err(from.wrong("no such stage of a message")),
    })
}
