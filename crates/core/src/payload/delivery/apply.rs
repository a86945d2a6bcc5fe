//! The only way in which the queues change, in service and in replay.

use std::sync::Arc;

use super::fact::last;
use super::{Fact, Item, Queues, Stage};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::mutants::{self, Mutant};
use crate::payload::{Past, Span};
use crate::time::Millis;
use crate::token::Number;

impl Queues {
    /// Makes a fact true. One that does not fit what is there says so, and the table is then good for nothing more.
    pub fn apply(&mut self, fact: &Fact, at: Millis) -> Result<(), &'static str> {
        match fact {
            Fact::Enqueued { queue, item, body, delay_ms, max_attempts } => {
                if *item != self.next_item {
                    return Err("a message out of order");
                }
                self.next_item = item.checked_add(1).ok_or("a message beyond the last id")?;
                self.add(queue, *item, body.clone(), *max_attempts, at.plus(*delay_ms));
                Ok(())
            }
            Fact::Delivered { first, items, session, holder, visibility_ms } => {
                let span = Span { since: at, ttl: *visibility_ms };
                for (i, item) in items.iter().enumerate() {
                    let receipt = last(*first, i + 1).ok_or("a receipt beyond the last number")?;
                    self.hand_out(*item, receipt, span, *session, holder)?;
                }
                Ok(())
            }
            Fact::Extended { item, receipt, visibility_ms } => {
                let to = Span { since: at, ttl: *visibility_ms };
                let Stage::Live { span, .. } = &mut self.held(*item, *receipt)?.stage else {
                    return Err("a message that nobody has");
                };
                let from = std::mem::replace(span, to);
                self.live.renew(*item, from, to);
                Ok(())
            }
            Fact::Acked { item, receipt } => {
                self.held(*item, *receipt)?;
                self.remove(*item)
            }
            Fact::Returned { item, receipt, delay_ms } => {
                self.held(*item, *receipt)?;
                self.put_back(*item, Reason::Released, at.plus(*delay_ms), at)
            }
            Fact::Expired { item, receipt } => {
                self.held(*item, *receipt)?;
                if mutants::on(Mutant::ExpiryDrops) {
                    return self.remove(*item);
                }
                self.put_back(*item, Reason::Ttl, at, at)
            }
            Fact::Redriven { item } => {
                let past = self.dead_past(*item)?;
                let entry = self.items.get_mut(item).ok_or("no such message")?;
                entry.attempts = 0;
                entry.stage = Stage::Ready { from: at, past: Some(past) };
                let queue = self.queues.get_mut(&entry.queue).ok_or("no such queue")?;
                queue.dead.remove(item);
                queue.ready.insert((at, *item));
                Ok(())
            }
            Fact::Dropped { item } => {
                self.dead_past(*item)?;
                self.remove(*item)
            }
        }
    }

    /// A session's end gives back all that it had, in the same step (S1).
    pub fn session_ended(&mut self, session: SessionId, at: Millis) {
        for item in self.live.of(session) {
            self.put_back(item, Reason::Session, at, at).expect("the index by session knows only live messages");
        }
    }

    /// After a restore no receipt of the backup is worth anything (T5).
    pub fn restored(&mut self, at: Millis) {
        for item in self.live.all() {
            self.put_back(item, Reason::Restored, at, at).expect("the index by deadline knows only live messages");
        }
    }

    pub(super) fn add(&mut self, name: &str, id: u64, body: Arc<[u8]>, max_attempts: u32, from: Millis) {
        let name = match self.queues.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => {
                self.bytes += name.len();
                Arc::from(name)
            }
        };
        self.bytes += body.len();
        let queue = self.queues.entry(name.clone()).or_default();
        queue.items += 1;
        queue.ready.insert((from, id));
        let stage = Stage::Ready { from, past: None };
        self.items.insert(id, Item { queue: name, body, attempts: 0, max_attempts, stage });
    }

    fn hand_out(
        &mut self,
        id: u64,
        receipt: Number,
        span: Span,
        session: Option<SessionId>,
        holder: &str,
    ) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let Stage::Ready { from, past } = item.stage else {
            // Q4: at most one live receipt.
            return Err("a message handed out twice");
        };
        if past.is_some_and(|past| past.number >= receipt) {
            return Err("a receipt that does not rise");
        }
        if !mutants::on(Mutant::AttemptsNotCounted) {
            item.attempts = item.attempts.checked_add(1).ok_or("attempts beyond counting")?;
        }
        item.stage = Stage::Live { receipt, span, session, holder: holder.into() };
        if !mutants::on(Mutant::HandedOutTwice) {
            self.queues.get_mut(&item.queue).ok_or("no such queue")?.ready.remove(&(from, id));
        }
        self.live.begin(id, span, session);
        Ok(())
    }

    fn held(&mut self, id: u64, shown: Number) -> Result<&mut Item, &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        match item.stage {
            Stage::Live { receipt, .. } if receipt == shown || mutants::on(Mutant::AckById) => Ok(item),
            _ => Err("a receipt that is not the live one"),
        }
    }

    fn dead_past(&self, id: u64) -> Result<Past, &'static str> {
        match self.items.get(&id).ok_or("no such message")?.stage {
            Stage::Dead { past, .. } => Ok(past),
            _ => Err("a message that is not dead"),
        }
    }

    /// Ends a delivery without an ack: back to the queue, or dead if that was its last attempt (Q5).
    fn put_back(&mut self, id: u64, reason: Reason, from: Millis, at: Millis) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let Stage::Live { receipt, span, session, .. } = item.stage else {
            return Err("a message that nobody has");
        };
        self.live.end(id, span, session);
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        let past = Past { number: receipt, reason };
        if item.is_last_attempt() {
            item.stage = Stage::Dead { since: at, past };
            queue.dead.insert(id);
        } else {
            item.stage = Stage::Ready { from, past: Some(past) };
            queue.ready.insert((from, id));
        }
        Ok(())
    }

    fn remove(&mut self, id: u64) -> Result<(), &'static str> {
        let item = self.items.remove(&id).ok_or("no such message")?;
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        match item.stage {
            Stage::Ready { from, .. } => {
                queue.ready.remove(&(from, id));
            }
            Stage::Live { span, session, .. } => self.live.end(id, span, session),
            Stage::Dead { .. } => {
                queue.dead.remove(&id);
            }
        }
        queue.items -= 1;
        self.bytes -= item.body.len();
        if queue.items == 0 {
            self.queues.remove(&item.queue);
            self.bytes -= item.queue.len();
        }
        Ok(())
    }
}
