//! Application of records to the message queues, in service and in replay.

use std::sync::Arc;

use super::record::last;
use super::{DeliveryRecord, MessageStage, QueueTable, QueuedMessage};
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::mutants::{self, Mutant};
use crate::payload::{PastGrant, Span};
use crate::time::GrantorTime;
use crate::token::Number;

impl QueueTable {
    /// Applies a record whose owner has this number. After an error the table is inconsistent and must be discarded.
    pub fn apply(&mut self, record: &DeliveryRecord, at: GrantorTime, owner: u32) -> Result<(), &'static str> {
        match record {
            DeliveryRecord::Enqueued { queue, item, owner: _, body, delay_ms, max_attempts } => {
                if *item != self.next_item {
                    return Err("a message out of order");
                }
                self.next_item = item.checked_add(1).ok_or("a message beyond the last id")?;
                self.add(queue, *item, owner, body.clone(), *max_attempts, at.plus(*delay_ms));
                Ok(())
            }
            DeliveryRecord::Delivered { first, items, session, owner: _, holder, visibility_ms } => {
                let span = Span { since: at, ttl: *visibility_ms };
                for (i, item) in items.iter().enumerate() {
                    let receipt = last(*first, i + 1).ok_or("a receipt beyond the last number")?;
                    let stage = MessageStage::Live { receipt, span, session: *session, owner, holder: holder.clone() };
                    self.deliver(*item, receipt, span, *session, stage)?;
                }
                Ok(())
            }
            DeliveryRecord::Extended { item, receipt, visibility_ms } => {
                let to = Span { since: at, ttl: *visibility_ms };
                let MessageStage::Live { span, .. } = &mut self.live_message(*item, *receipt)?.stage else {
                    return Err("a message without a live receipt");
                };
                let from = std::mem::replace(span, to);
                self.live.renew(*item, from, to);
                Ok(())
            }
            DeliveryRecord::Acked { item, receipt } => {
                self.live_message(*item, *receipt)?;
                self.remove(*item)
            }
            DeliveryRecord::Returned { item, receipt, delay_ms } => {
                self.live_message(*item, *receipt)?;
                self.return_message(*item, EndReason::Released, at.plus(*delay_ms), at)
            }
            DeliveryRecord::Expired { item, receipt } => {
                self.live_message(*item, *receipt)?;
                if mutants::on(Mutant::ExpiryDropsMessage) {
                    return self.remove(*item);
                }
                self.return_message(*item, EndReason::Ttl, at, at)
            }
            DeliveryRecord::Redriven { item } => {
                let past = self.dead_message_past(*item)?;
                let entry = self.items.get_mut(item).ok_or("no such message")?;
                entry.attempts = 0;
                entry.stage = MessageStage::Ready { from: at, past: Some(past) };
                let queue = self.queues.get_mut(&entry.queue).ok_or("no such queue")?;
                queue.dead.remove(item);
                queue.ready.insert((at, *item));
                Ok(())
            }
            DeliveryRecord::Dropped { item } => {
                self.dead_message_past(*item)?;
                self.remove(*item)
            }
        }
    }

    /// Returns all messages of a session in the same step as the session ends (S1).
    pub fn session_ended(&mut self, session: SessionId, at: GrantorTime) {
        for item in self.live.of(session) {
            self.return_message(item, EndReason::Session, at, at)
                .expect("the session index contains only live messages");
        }
    }

    /// Invalidates all receipts of a backup after a restore (T5).
    pub fn restored(&mut self, at: GrantorTime) {
        for item in self.live.all() {
            self.return_message(item, EndReason::Restored, at, at)
                .expect("the deadline index contains only live messages");
        }
    }

    pub(super) fn add(
        &mut self,
        name: &str,
        id: u64,
        sender: u32,
        body: Arc<[u8]>,
        max_attempts: u32,
        from: GrantorTime,
    ) {
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
        let stage = MessageStage::Ready { from, past: None };
        let message = QueuedMessage { queue: name, body, sender, attempts: 0, max_attempts, stage };
        self.sent.add(sender, message.counted());
        self.items.insert(id, message);
    }

    fn deliver(
        &mut self,
        id: u64,
        receipt: Number,
        span: Span,
        session: Option<SessionId>,
        stage: MessageStage,
    ) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let MessageStage::Ready { from, past } = item.stage else {
            // Q4: at most one live receipt.
            return Err("a message delivered twice");
        };
        if past.is_some_and(|past| past.number >= receipt) {
            return Err("a receipt that does not rise");
        }
        if !mutants::on(Mutant::AttemptsNotCounted) {
            item.attempts = item.attempts.checked_add(1).ok_or("attempts beyond counting")?;
        }
        item.stage = stage;
        if !mutants::on(Mutant::MessageDeliveredTwice) {
            self.queues.get_mut(&item.queue).ok_or("no such queue")?.ready.remove(&(from, id));
        }
        self.live.insert(id, span, session);
        Ok(())
    }

    fn live_message(&mut self, id: u64, presented: Number) -> Result<&mut QueuedMessage, &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        match item.stage {
            MessageStage::Live { receipt, .. } if receipt == presented || mutants::on(Mutant::AckById) => Ok(item),
            _ => Err("a receipt that is not the live one"),
        }
    }

    fn dead_message_past(&self, id: u64) -> Result<PastGrant, &'static str> {
        match self.items.get(&id).ok_or("no such message")?.stage {
            MessageStage::Dead { past, .. } => Ok(past),
            _ => Err("a message that is not dead"),
        }
    }

    /// Ends a delivery without an acknowledgement: back to the queue, or a dead letter after its last attempt (Q5).
    fn return_message(
        &mut self,
        id: u64,
        reason: EndReason,
        from: GrantorTime,
        at: GrantorTime,
    ) -> Result<(), &'static str> {
        let item = self.items.get_mut(&id).ok_or("no such message")?;
        let MessageStage::Live { receipt, span, session, .. } = item.stage else {
            return Err("a message without a live receipt");
        };
        self.live.end(id, span, session);
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        let past = PastGrant { number: receipt, reason };
        if item.is_last_attempt() {
            item.stage = MessageStage::Dead { since: at, past };
            queue.dead.insert(id);
        } else {
            item.stage = MessageStage::Ready { from, past: Some(past) };
            queue.ready.insert((from, id));
        }
        Ok(())
    }

    fn remove(&mut self, id: u64) -> Result<(), &'static str> {
        let item = self.items.remove(&id).ok_or("no such message")?;
        let queue = self.queues.get_mut(&item.queue).ok_or("no such queue")?;
        match item.stage {
            MessageStage::Ready { from, .. } => {
                queue.ready.remove(&(from, id));
            }
            MessageStage::Live { span, session, .. } => self.live.end(id, span, session),
            MessageStage::Dead { .. } => {
                queue.dead.remove(&id);
            }
        }
        queue.items -= 1;
        self.sent.remove(item.sender, item.counted());
        self.bytes -= item.body.len();
        if queue.items == 0 {
            self.queues.remove(&item.queue);
            self.bytes -= item.queue.len();
        }
        Ok(())
    }
}
