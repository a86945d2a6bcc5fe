//! Messages handed out one holder at a time, until acked or dead: a delivery is a lease, and its token is the receipt.

mod apply;
mod command;
mod fact;
mod snapshot;
#[cfg(test)]
mod tests;

pub use command::{Answer, Command, Counts, Delivery, Standing, View};
pub use fact::Fact;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::live::Live;
use super::{Decision, Moment, Past, Refused, Span, not_current};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::limits::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, DELAY_MAX, ITEM_BYTES, QUEUE_ITEMS, QUEUE_ITEMS_TOTAL, QUEUE_TOTAL, RECEIVE_BYTES,
    RECEIVE_MOST,
};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, Refusal, What};
use crate::time::Millis;
use crate::token::Number;

/// All queues of a cluster.
#[derive(Clone, Debug)]
pub struct Queues {
    queues: BTreeMap<Arc<str>, Queue>,
    items: BTreeMap<u64, Item>,
    next_item: u64,
    bytes: usize,
    live: Live,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    ready: BTreeSet<(Millis, u64)>,
    dead: BTreeSet<u64>,
    items: usize,
}

#[derive(Clone, Debug)]
struct Item {
    queue: Arc<str>,
    body: Arc<[u8]>,
    attempts: u32,
    max_attempts: u32,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Ready { from: Millis, past: Option<Past> },
    Live { receipt: Number, span: Span, session: Option<SessionId>, holder: Box<str> },
    Dead { since: Millis, past: Past },
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), items: BTreeMap::new(), next_item: 1, bytes: 0, live: Live::default() }
    }
}

type Decided = Result<Decision<Fact, Answer>, Refused<Fact>>;

impl Queues {
    /// What is to be put on record and told for a command; nothing changes by it.
    pub fn decide(&self, at: &Moment<'_>, command: &Command<'_>) -> Decision<Fact, Answer> {
        let decided = match *command {
            Command::Enqueue { queue, body, delay_ms, max_attempts } => {
                self.enqueue(queue, body, delay_ms, max_attempts)
            }
            Command::Receive { queue, session, holder, visibility_ms, most } => {
                self.receive(at, queue, session, holder, visibility_ms, most)
            }
            Command::Extend { queue, item, receipt, visibility_ms } => {
                at.span("visibility", visibility_ms).map_err(Refused::from).and_then(|span| {
                    self.current(at, queue, item, receipt)?;
                    let fact = Fact::Extended { item, receipt, visibility_ms };
                    Ok(Decision::yes(vec![fact], Answer::Extended { remaining_ms: at.remaining(span) }))
                })
            }
            Command::Ack { queue, item, receipt } => self
                .current(at, queue, item, receipt)
                .map(|_| Decision::yes(vec![Fact::Acked { item, receipt }], Answer::Acked)),
            Command::Nack { queue, item, receipt, delay_ms } => delay(delay_ms).map_err(Refused::from).and_then(|()| {
                let dead = self.current(at, queue, item, receipt)?.is_last_attempt();
                let fact = Fact::Returned { item, receipt, delay_ms };
                Ok(Decision::yes(vec![fact], Answer::Returned { dead }))
            }),
            Command::Redrive { queue, item } => {
                self.dead(queue, item).map(|()| Decision::yes(vec![Fact::Redriven { item }], Answer::Redriven))
            }
            Command::Drop { queue, item } => {
                self.dead(queue, item).map(|()| Decision::yes(vec![Fact::Dropped { item }], Answer::Dropped))
            }
        };
        decided.unwrap_or_else(Decision::from)
    }

    /// A delivery as it stands, if it is still out under this receipt.
    pub fn delivered(&self, at: &Moment<'_>, item: u64, receipt: u64) -> Option<Delivery> {
        let known = self.items.get(&item)?;
        match &known.stage {
            Stage::Live { receipt: current, span, .. } if current.get() == receipt => Some(Delivery {
                item,
                receipt: *current,
                attempt: known.attempts,
                body: known.body.clone(),
                remaining_ms: at.remaining(*span),
            }),
            _ => None,
        }
    }

    fn enqueue(&self, queue: &str, body: &[u8], delay_ms: u64, max_attempts: Option<u32>) -> Decided {
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
        let fact = Fact::Enqueued { queue: queue.into(), item, body: body.into(), delay_ms, max_attempts };
        Ok(Decision::yes(vec![fact], Answer::Enqueued { item }))
    }

    fn receive(
        &self,
        at: &Moment<'_>,
        queue: &str,
        session: Option<SessionId>,
        holder: &str,
        visibility_ms: u64,
        most: u32,
    ) -> Decided {
        let span = at.span("visibility", visibility_ms)?;
        if most == 0 || most as usize > RECEIVE_MOST {
            return Err(Refusal::Invalid { field: "most", reason: "from 1 to 1024" }.into());
        }
        let most = self.live.room(session)?.min(most as usize);
        let mut deliveries: Vec<Delivery> = Vec::new();
        let mut bytes = 0;
        let ready = self.queues.get(queue).into_iter().flat_map(|q| q.ready.range(..=(at.now, u64::MAX)));
        for (_, id) in ready.take(most) {
            let item = self.items.get(id).expect("a queue lists only messages that exist");
            bytes += item.body.len();
            if bytes > RECEIVE_BYTES && !deliveries.is_empty() {
                break;
            }
            deliveries.push(Delivery {
                item: *id,
                receipt: at.number(deliveries.len() as u64)?,
                attempt: item.attempts + 1,
                body: item.body.clone(),
                remaining_ms: at.remaining(span),
            });
        }
        let facts = match deliveries.first() {
            None => Vec::new(),
            Some(first) => vec![Fact::Delivered {
                first: first.receipt,
                items: deliveries.iter().map(|d| d.item).collect(),
                session,
                holder: holder.into(),
                visibility_ms,
            }],
        };
        Ok(Decision::yes(facts, Answer::Received(deliveries)))
    }

    fn find(&self, queue: &str, item: u64) -> Result<&Item, Refusal> {
        self.items.get(&item).filter(|i| *i.queue == *queue).ok_or(Refusal::NotFound(What::Message))
    }

    /// The message, if the receipt is its live one (Q3). An end that nobody recorded yet goes on record with the
    /// refusal.
    fn current(&self, at: &Moment<'_>, queue: &str, id: u64, shown: Number) -> Result<&Item, Refused<Fact>> {
        let item = self.find(queue, id)?;
        match item.stage {
            Stage::Live { receipt, span, .. } if receipt == shown => {
                if at.is_over(span) {
                    let facts = vec![Fact::Expired { item: id, receipt }];
                    return Err(Refused { facts, why: Refusal::Lost(Reason::Ttl) });
                }
                Ok(item)
            }
            Stage::Live { .. } if mutants::on(Mutant::AckById) => Ok(item),
            Stage::Live { receipt, .. } => Err(not_current(shown, receipt).into()),
            Stage::Ready { past, .. } => Err(Past::refusal(past, shown).into()),
            Stage::Dead { past, .. } => Err(Past::refusal(Some(past), shown).into()),
        }
    }

    fn dead(&self, queue: &str, item: u64) -> Result<(), Refused<Fact>> {
        match self.find(queue, item)?.stage {
            Stage::Dead { .. } => Ok(()),
            _ => Err(Refusal::Conflict(What::Message).into()),
        }
    }

    /// Deliveries that time has ended, in deadline order, at most so many.
    pub fn due(&self, at: &Moment<'_>, most: usize) -> Vec<Fact> {
        let over = self.live.passed(at).filter_map(|id| match self.items.get(&id)?.stage {
            Stage::Live { receipt, span, .. } if at.is_over(span) => Some(Fact::Expired { item: id, receipt }),
            _ => None,
        });
        over.take(most).collect()
    }

    /// The earliest deadline of a delivery; stalls may move the end further, never closer.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.live.next_deadline()
    }

    /// From when on something of the queue can be received; a time that has passed means now.
    pub fn available_from(&self, queue: &str) -> Option<Millis> {
        self.queues.get(queue)?.ready.first().map(|(from, _)| *from)
    }

    /// How many messages can be received now, of those at the front, and from when on the next can.
    pub(crate) fn receivable(&self, queue: &str, now: Millis, most: usize) -> (usize, Option<Millis>) {
        let Some(queue) = self.queues.get(queue) else { return (0, None) };
        let ready = queue.ready.range(..=(now, u64::MAX)).take(most).count();
        (ready, queue.ready.range((now.plus(1), 0)..).next().map(|(from, _)| *from))
    }

    /// The queues from which the session has messages.
    pub(crate) fn received_by(&self, session: SessionId) -> Vec<Arc<str>> {
        let queues = self.live.of(session).into_iter().filter_map(|item| self.items.get(&item));
        let mut queues: Vec<_> = queues.map(|item| item.queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// How many messages the queue has, or none if it has no message at all.
    pub fn counts(&self, queue: &str, now: Millis) -> Option<Counts> {
        let queue = self.queues.get(queue)?;
        let delayed = queue.ready.range((now.plus(1), 0)..).count();
        let (ready, dead) = (queue.ready.len(), queue.dead.len());
        Some(Counts { ready: ready - delayed, delayed, live: queue.items - ready - dead, dead })
    }

    /// Dead messages of the queue with an id above `after`, in the order of their ids, at most so many.
    pub fn dead_letters(&self, queue: &str, after: u64, most: usize) -> Vec<View<'_>> {
        let dead = self.queues.get(queue).into_iter().flat_map(|q| q.dead.range(after.saturating_add(1)..));
        dead.take(most).filter_map(|id| self.view(queue, *id)).collect()
    }

    /// What is known about a message.
    pub fn view(&self, queue: &str, id: u64) -> Option<View<'_>> {
        let item = self.find(queue, id).ok()?;
        let standing = match &item.stage {
            Stage::Ready { from, .. } => Standing::Ready { from: *from },
            Stage::Live { receipt, span, holder, .. } => {
                Standing::Live { receipt: *receipt, holder, deadline: span.deadline() }
            }
            Stage::Dead { since, past } => Standing::Dead { since: *since, reason: past.reason },
        };
        let (attempts, max_attempts) = (item.attempts, item.max_attempts);
        Some(View { item: id, body: &item.body, attempts, max_attempts, standing })
    }

    /// The queue of a message, for whoever describes a fact.
    pub fn queue_of(&self, item: u64) -> Option<&str> {
        self.items.get(&item).map(|i| &*i.queue)
    }
}

impl Item {
    fn is_last_attempt(&self) -> bool {
        self.attempts >= self.max_attempts && !mutants::on(Mutant::NeverDead)
    }
}

fn delay(delay_ms: u64) -> Result<(), Refusal> {
    if delay_ms <= DELAY_MAX { Ok(()) } else { Err(Refusal::Invalid { field: "delay", reason: "at most 7 days" }) }
}

fn within(limit: Limit, max: usize, got: usize) -> Result<(), Refusal> {
    if got <= max { Ok(()) } else { Err(Refusal::Exhausted { limit, max: max as u64, got: got as u64 }) }
}
