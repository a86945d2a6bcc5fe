//! Message queues. A delivery is a lease of a message by one consumer, and its token is the receipt.

mod apply;
mod command;
mod record;
mod snapshot;
#[cfg(test)]
mod tests;

pub use command::{DeliveredMessage, DeliveryAnswer, DeliveryCommand, MessageState, MessageView, QueueCounts};
pub use record::DeliveryRecord;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::expiry_index::ExpiryIndex;
use super::owner_usage::OwnerUsage;
use super::{Decision, PastGrant, PayloadOwner, RefusedDecision, Span, TurnContext, not_current};
use crate::access::IdentityUsage;
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::limits::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, DELAY_MAX, ITEM_BYTES, QUEUE_ITEMS, QUEUE_ITEMS_TOTAL, QUEUE_TOTAL, RECEIVE_BYTES,
    RECEIVE_MAX,
};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, Refusal, RefusalSubject};
use crate::time::GrantorTime;
use crate::token::Number;

/// All queues of a cluster.
#[derive(Clone, Debug)]
pub struct QueueTable {
    queues: BTreeMap<Arc<str>, QueueEntry>,
    items: BTreeMap<u64, QueuedMessage>,
    next_item: u64,
    bytes: usize,
    live: ExpiryIndex,
    /// The messages that each identity sent.
    sent: OwnerUsage,
}

#[derive(Clone, Debug, Default)]
struct QueueEntry {
    ready: BTreeSet<(GrantorTime, u64)>,
    dead: BTreeSet<u64>,
    items: usize,
}

#[derive(Clone, Debug)]
struct QueuedMessage {
    queue: Arc<str>,
    body: Arc<[u8]>,
    /// The identity that sent it, by its number among the owners.
    sender: u32,
    attempts: u32,
    max_attempts: u32,
    stage: MessageStage,
}

#[derive(Clone, Debug)]
enum MessageStage {
    Ready { from: GrantorTime, past: Option<PastGrant> },
    Live { receipt: Number, span: Span, session: Option<SessionId>, owner: u32, holder: Box<str> },
    Dead { since: GrantorTime, past: PastGrant },
}

impl Default for QueueTable {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            items: BTreeMap::new(),
            next_item: 1,
            bytes: 0,
            live: ExpiryIndex::default(),
            sent: OwnerUsage::default(),
        }
    }
}

type DeliveryDecision = Result<Decision<DeliveryRecord, DeliveryAnswer>, RefusedDecision<DeliveryRecord>>;

impl QueueTable {
    /// Decides a command without changing the table.
    pub fn decide(
        &self,
        at: &TurnContext<'_>,
        command: &DeliveryCommand<'_>,
    ) -> Decision<DeliveryRecord, DeliveryAnswer> {
        let decided = match *command {
            DeliveryCommand::Enqueue { queue, body, delay_ms, max_attempts } => {
                self.enqueue(at, queue, body, delay_ms, max_attempts)
            }
            DeliveryCommand::Receive { queue, session, holder, visibility_ms, limit } => {
                self.receive(at, queue, session, holder, visibility_ms, limit)
            }
            DeliveryCommand::Extend { queue, item, receipt, visibility_ms } => {
                at.span("visibility", visibility_ms).map_err(RefusedDecision::from).and_then(|span| {
                    self.current(at, queue, item, receipt)?;
                    let record = DeliveryRecord::Extended { item, receipt, visibility_ms };
                    Ok(Decision::accept(vec![record], DeliveryAnswer::Extended { remaining_ms: at.remaining(span) }))
                })
            }
            DeliveryCommand::Ack { queue, item, receipt } => self
                .current(at, queue, item, receipt)
                .map(|_| Decision::accept(vec![DeliveryRecord::Acked { item, receipt }], DeliveryAnswer::Acked)),
            DeliveryCommand::Nack { queue, item, receipt, delay_ms } => {
                delay(delay_ms).map_err(RefusedDecision::from).and_then(|()| {
                    let dead = self.current(at, queue, item, receipt)?.is_last_attempt();
                    let record = DeliveryRecord::Returned { item, receipt, delay_ms };
                    Ok(Decision::accept(vec![record], DeliveryAnswer::Returned { dead }))
                })
            }
            DeliveryCommand::Redrive { queue, item } => self
                .dead(queue, item)
                .map(|()| Decision::accept(vec![DeliveryRecord::Redriven { item }], DeliveryAnswer::Redriven)),
            DeliveryCommand::Drop { queue, item } => self
                .dead(queue, item)
                .map(|()| Decision::accept(vec![DeliveryRecord::Dropped { item }], DeliveryAnswer::Dropped)),
        };
        decided.unwrap_or_else(Decision::from)
    }

    /// The delivery of a message, if this receipt is its live one.
    pub fn delivered(&self, at: &TurnContext<'_>, item: u64, receipt: u64) -> Option<DeliveredMessage> {
        let known = self.items.get(&item)?;
        match &known.stage {
            MessageStage::Live { receipt: current, span, .. } if current.get() == receipt => Some(DeliveredMessage {
                item,
                receipt: *current,
                attempt: known.attempts,
                body: known.body.clone(),
                remaining_ms: at.remaining(*span),
            }),
            _ => None,
        }
    }

    fn enqueue(
        &self,
        at: &TurnContext<'_>,
        queue: &str,
        body: &[u8],
        delay_ms: u64,
        max_attempts: Option<u32>,
    ) -> DeliveryDecision {
        delay(delay_ms)?;
        let max_attempts = max_attempts.unwrap_or(ATTEMPTS_DEFAULT);
        if !(1..=ATTEMPTS_MAX).contains(&max_attempts) {
            return Err(Refusal::Invalid { field: "max_attempts", reason: "from 1 to 10000" }.into());
        }
        let known = self.queues.get(queue);
        let added = body.len() + if known.is_some() { 0 } else { queue.len() };
        within(Limit::Message, ITEM_BYTES, body.len())?;
        within(Limit::Messages, QUEUE_ITEMS, known.map_or(0, |q| q.items) + 1)?;
        within(Limit::Messages, QUEUE_ITEMS_TOTAL, self.items.len() + 1)?;
        within(Limit::Message, QUEUE_TOTAL, self.bytes + added)?;
        let item = self.next_item;
        let (owner, queue) = (at.owner.map(Into::into), queue.into());
        let record = DeliveryRecord::Enqueued { queue, item, owner, body: body.into(), delay_ms, max_attempts };
        Ok(Decision::accept(vec![record], DeliveryAnswer::Enqueued { item }))
    }

    fn receive(
        &self,
        at: &TurnContext<'_>,
        queue: &str,
        session: Option<SessionId>,
        holder: &str,
        visibility_ms: u64,
        limit: u32,
    ) -> DeliveryDecision {
        let span = at.span("visibility", visibility_ms)?;
        if limit == 0 || limit as usize > RECEIVE_MAX {
            return Err(Refusal::Invalid { field: "limit", reason: "from 1 to 1024" }.into());
        }
        let limit = self.live.remaining_capacity(session)?.min(limit as usize);
        let mut deliveries: Vec<DeliveredMessage> = Vec::new();
        let mut bytes = 0;
        let ready = self.queues.get(queue).into_iter().flat_map(|q| q.ready.range(..=(at.now, u64::MAX)));
        for (_, id) in ready.take(limit) {
            let item = self.items.get(id).expect("a queue lists only existing messages");
            bytes += item.body.len();
            if bytes > RECEIVE_BYTES && !deliveries.is_empty() {
                break;
            }
            deliveries.push(DeliveredMessage {
                item: *id,
                receipt: at.number(deliveries.len() as u64)?,
                attempt: item.attempts + 1,
                body: item.body.clone(),
                remaining_ms: at.remaining(span),
            });
        }
        let records = match deliveries.first() {
            None => Vec::new(),
            Some(first) => vec![DeliveryRecord::Delivered {
                first: first.receipt,
                items: deliveries.iter().map(|d| d.item).collect(),
                session,
                owner: at.owner.map(Into::into),
                holder: holder.into(),
                visibility_ms,
            }],
        };
        Ok(Decision::accept(records, DeliveryAnswer::Received(deliveries)))
    }

    fn find(&self, queue: &str, item: u64) -> Result<&QueuedMessage, Refusal> {
        self.items.get(&item).filter(|i| *i.queue == *queue).ok_or(Refusal::NotFound(RefusalSubject::Message))
    }

    /// The message, if this receipt is its live one (Q3). An expiry that is not recorded yet is recorded with the refusal.
    fn current(
        &self,
        at: &TurnContext<'_>,
        queue: &str,
        id: u64,
        presented: Number,
    ) -> Result<&QueuedMessage, RefusedDecision<DeliveryRecord>> {
        let item = self.find(queue, id)?;
        match item.stage {
            MessageStage::Live { receipt, span, .. } if receipt == presented => {
                if at.is_over(span) {
                    let records = vec![DeliveryRecord::Expired { item: id, receipt }];
                    return Err(RefusedDecision { records, refusal: Refusal::Lost(EndReason::Ttl) });
                }
                Ok(item)
            }
            MessageStage::Live { .. } if mutants::on(Mutant::AckById) => Ok(item),
            MessageStage::Live { receipt, .. } => Err(not_current(presented, receipt).into()),
            MessageStage::Ready { past, .. } => Err(PastGrant::refusal(past, presented).into()),
            MessageStage::Dead { past, .. } => Err(PastGrant::refusal(Some(past), presented).into()),
        }
    }

    fn dead(&self, queue: &str, item: u64) -> Result<(), RefusedDecision<DeliveryRecord>> {
        match self.find(queue, item)?.stage {
            MessageStage::Dead { .. } => Ok(()),
            _ => Err(Refusal::Conflict(RefusalSubject::Message).into()),
        }
    }

    /// Expiry records of deliveries in deadline order, at most `limit`.
    pub fn due(&self, at: &TurnContext<'_>, limit: usize) -> Vec<DeliveryRecord> {
        let over = self.live.past_deadline(at).filter_map(|id| match self.items.get(&id)?.stage {
            MessageStage::Live { receipt, span, .. } if at.is_over(span) => {
                Some(DeliveryRecord::Expired { item: id, receipt })
            }
            _ => None,
        });
        over.take(limit).collect()
    }

    /// The earliest deadline of a delivery. Stalls can move the end later, never earlier.
    pub fn next_deadline(&self) -> Option<GrantorTime> {
        self.live.next_deadline()
    }

    /// The latest deadline.
    pub(crate) fn last_deadline(&self) -> Option<GrantorTime> {
        self.live.last_deadline()
    }

    /// When the next message can be received; a time in the past means now.
    pub fn available_from(&self, queue: &str) -> Option<GrantorTime> {
        self.queues.get(queue)?.ready.first().map(|(from, _)| *from)
    }

    /// Number of messages that can be received now, up to `limit`, and when the next one can.
    pub(crate) fn receivable(&self, queue: &str, now: GrantorTime, limit: usize) -> (usize, Option<GrantorTime>) {
        let Some(queue) = self.queues.get(queue) else { return (0, None) };
        let ready = queue.ready.range(..=(now, u64::MAX)).take(limit).count();
        (ready, queue.ready.range((now.plus(1), 0)..).next().map(|(from, _)| *from))
    }

    /// The queues whose messages the session currently processes.
    pub(crate) fn received_by(&self, session: SessionId) -> Vec<Arc<str>> {
        let queues = self.live.of(session).into_iter().filter_map(|item| self.items.get(&item));
        let mut queues: Vec<_> = queues.map(|item| item.queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Message counts of the queue; `None` if it has no message.
    pub fn counts(&self, queue: &str, now: GrantorTime) -> Option<QueueCounts> {
        let queue = self.queues.get(queue)?;
        let delayed = queue.ready.range((now.plus(1), 0)..).count();
        let (ready, dead) = (queue.ready.len(), queue.dead.len());
        Some(QueueCounts { ready: ready - delayed, delayed, live: queue.items - ready - dead, dead })
    }

    /// Dead letters with an id above `after`, in id order, at most `limit`.
    pub fn dead_letters(&self, queue: &str, after: u64, limit: usize) -> Vec<MessageView<'_>> {
        let dead = self.queues.get(queue).into_iter().flat_map(|q| q.dead.range(after.saturating_add(1)..));
        dead.take(limit).filter_map(|id| self.view(queue, *id)).collect()
    }

    /// A message and its state.
    pub fn view(&self, queue: &str, id: u64) -> Option<MessageView<'_>> {
        let item = self.find(queue, id).ok()?;
        let state = match &item.stage {
            MessageStage::Ready { from, .. } => MessageState::Ready { from: *from },
            MessageStage::Live { receipt, span, holder, .. } => {
                MessageState::Live { receipt: *receipt, holder, deadline: span.deadline() }
            }
            MessageStage::Dead { since, past } => MessageState::Dead { since: *since, reason: past.reason },
        };
        let (attempts, max_attempts) = (item.attempts, item.max_attempts);
        Some(MessageView { item: id, body: &item.body, attempts, max_attempts, state })
    }

    /// The owner of a live receipt of a message in this queue.
    pub(crate) fn owner_of(&self, queue: &str, item: u64, presented: Number) -> Option<PayloadOwner> {
        match &self.find(queue, item).ok()?.stage {
            MessageStage::Live { receipt, owner, session, .. } if *receipt == presented => {
                Some(PayloadOwner { owner: *owner, session: *session })
            }
            _ => None,
        }
    }

    /// The messages that an identity sent.
    pub(crate) fn usage_of(&self, owner: u32) -> IdentityUsage {
        self.sent.get(owner)
    }

    /// The queue of a message, for the audit log.
    pub fn queue_of(&self, item: u64) -> Option<&str> {
        self.items.get(&item).map(|i| &*i.queue)
    }
}

impl QueuedMessage {
    /// What it counts at its sender.
    fn counted(&self) -> IdentityUsage {
        IdentityUsage::of_message(&self.queue, &self.body)
    }

    fn is_last_attempt(&self) -> bool {
        self.attempts >= self.max_attempts && !mutants::on(Mutant::AttemptsUnlimited)
    }
}

fn delay(delay_ms: u64) -> Result<(), Refusal> {
    if delay_ms <= DELAY_MAX { Ok(()) } else { Err(Refusal::Invalid { field: "delay", reason: "at most 7 days" }) }
}

fn within(limit: Limit, max: usize, got: usize) -> Result<(), Refusal> {
    if got <= max { Ok(()) } else { Err(Refusal::Exhausted { limit, max: max as u64, got: got as u64 }) }
}
