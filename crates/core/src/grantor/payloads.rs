//! The payloads' tables decide; here their facts go on record and their answers out.

use std::sync::Arc;

use super::Grantor;
use super::table::Table;
use crate::command::{Answer, Event, Held};
use crate::limits;
use crate::name::{HolderName, Name};
use crate::payload::{Moment, Notice, cache, delivery, state};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::Millis;
use crate::token::Number;
use crate::token::Reach;

/// How many facts of each payload one Tick puts on record.
const DUE_AT_ONCE: usize = limits::TICK_OFFERS;

impl Grantor {
    pub(super) fn put(
        &mut self,
        held: &Held<'_>,
        key: &str,
        bytes: Option<&[u8]>,
        expect: Option<u64>,
    ) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        let lease = self.table.lease(slot);
        let token = lease.number();
        let name = self.table.resources.name(lease.resource);
        // Slots of one resource are held side by side: each has its own state and its own mark.
        let resource = match lease.reach() {
            Reach::Slot(0) => name.to_owned(),
            Reach::Slot(slot) => format!("{name}#{slot}"),
            Reach::Shared | Reach::Units => {
                return Err(Refusal::Invalid {
                    field: "access",
                    reason: "only an exclusive or slot lease writes state",
                });
            }
        };
        let resource = resource.as_str();
        let command = match bytes {
            Some(bytes) => state::Command::Put { resource, token, key, bytes, expect },
            None => state::Command::Delete { resource, token, key, expect },
        };
        let decision = with_moment(&self.table, self.next_number()?, |at| self.table.small.decide(at, &command));
        for fact in decision.facts {
            self.record(&Record::State(fact));
        }
        Ok(match decision.answer? {
            state::Answer::Put { revision } => Answer::Stored { revision },
            state::Answer::Deleted => Answer::Done,
        })
    }

    pub(super) fn delivery(&mut self, command: &delivery::Command<'_>) -> Result<Answer, Refusal> {
        Name::parse(queue_of(command))?;
        if let delivery::Command::Receive { session, holder, .. } = command {
            HolderName::parse(holder)?;
            self.check_quarantine()?;
            if let Some(session) = session {
                self.live_session(*session)?;
            }
        }
        let next = self.next_number()?;
        let decision = with_moment(&self.table, next, |at| self.table.queues.decide(at, command));
        for fact in decision.facts {
            self.record(&Record::Delivery(fact));
        }
        self.tell(decision.notices);
        if let (delivery::Command::Receive { queue, session: Some(session), .. }, Ok(delivery::Answer::Received(none))) =
            (command, &decision.answer)
            && none.is_empty()
        {
            self.stands_idle(queue, *session);
        }
        self.look_at_queue(queue_of(command));
        decision.answer.map(|answer| Answer::Delivery(Box::new(answer)))
    }

    pub(super) fn cache(&mut self, command: &cache::Command<'_>) -> Result<Answer, Refusal> {
        Name::parse(key_of(command))?;
        if let cache::Command::Read { session, reader: who, .. }
        | cache::Command::Intend { session, writer: who, .. }
        | cache::Command::GetOrFill { session, reader: who, .. } = command
        {
            HolderName::parse(who)?;
            self.check_quarantine()?;
            if let Some(session) = session {
                self.live_session(*session)?;
            }
        }
        let next = self.next_number()?;
        let decision = with_moment(&self.table, next, |at| self.table.cache.decide(at, command));
        for fact in decision.facts {
            self.record(&Record::Cache(fact));
        }
        self.tell(decision.notices);
        decision.answer.map(|answer| Answer::Cache(Box::new(answer)))
    }

    /// What time has brought to queues and caches.
    pub(super) fn payloads_due(&mut self) {
        if self.payload_deadline().is_none_or(|at| at > self.now()) {
            return;
        }
        let Ok(next) = self.next_number() else {
            return;
        };
        for fact in with_moment(&self.table, next, |at| self.table.queues.due(at, DUE_AT_ONCE)) {
            let queue = match fact {
                delivery::Fact::Expired { item, .. } => self.table.queues.queue_of(item).map(str::to_owned),
                _ => None,
            };
            self.record(&Record::Delivery(fact));
            queue.into_iter().for_each(|queue| self.look_at_queue(&queue));
        }
        let mut keys = Vec::new();
        for fact in with_moment(&self.table, next, |at| self.table.cache.due(at, DUE_AT_ONCE)) {
            if let cache::Fact::Ended { number, .. } = fact {
                keys.extend(self.table.cache.holder_of(number).map(|(key, _)| Arc::from(key)));
            }
            self.record(&Record::Cache(fact));
        }
        self.tell_cleared(keys);
        self.tell_idle();
    }

    /// Whoever means to write one of these keys, where a reader has gone, is told if it was the last.
    pub(super) fn tell_cleared(&mut self, mut keys: Vec<Arc<str>>) {
        keys.sort_unstable();
        keys.dedup();
        let cleared = |key: &Arc<str>| with_moment(&self.table, Number::FIRST, |at| self.table.cache.cleared(at, key));
        let notices = keys.iter().filter_map(cleared).collect();
        self.tell(notices);
    }

    pub(super) fn payload_deadline(&self) -> Option<Millis> {
        let due = [self.table.queues.next_deadline(), self.table.cache.next_deadline(), self.idle.next_due()];
        due.into_iter().flatten().min()
    }

    fn tell(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::Invalidate { session, key, lease } => {
                    self.notify(Some(session), Event::Invalidate { key: key.to_string(), lease });
                }
                Notice::Clear { session, key, intent } => {
                    self.notify(Some(session), Event::Clear { key: key.to_string(), intent });
                }
            }
        }
    }

    /// A retried receive is told the same deliveries, as far as they are still out under the same receipts.
    pub(super) fn received_again(&self, values: &[u64]) -> delivery::Answer {
        let told = values.chunks_exact(2).filter_map(|pair| {
            with_moment(&self.table, Number::FIRST, |at| self.table.queues.delivered(at, pair[0], pair[1]))
        });
        delivery::Answer::Received(told.collect())
    }

    /// Whether a message is out under this receipt.
    pub(super) fn is_received(&self, item: u64, receipt: Number) -> bool {
        with_moment(&self.table, Number::FIRST, |at| self.table.queues.delivered(at, item, receipt.get())).is_some()
    }
}

fn with_moment<R>(table: &Table, next: Number, ask: impl FnOnce(&Moment<'_>) -> R) -> R {
    let stalls = |since: Millis| table.clock.stalled_since(since);
    ask(&Moment { now: table.time, next, max_ttl: table.max_ttl(), stalls: &stalls })
}

const fn queue_of<'a>(command: &delivery::Command<'a>) -> &'a str {
    use delivery::Command::{Ack, Drop, Enqueue, Extend, Nack, Receive, Redrive};
    match command {
        Enqueue { queue, .. }
        | Receive { queue, .. }
        | Extend { queue, .. }
        | Ack { queue, .. }
        | Nack { queue, .. }
        | Redrive { queue, .. }
        | Drop { queue, .. } => queue,
    }
}

const fn key_of<'a>(command: &cache::Command<'a>) -> &'a str {
    use cache::Command::{Abort, Commit, Filled, GetOrFill, Intend, Invalidated, Read, RenewRead};
    match command {
        Read { key, .. }
        | RenewRead { key, .. }
        | Invalidated { key, .. }
        | Intend { key, .. }
        | Commit { key, .. }
        | Abort { key, .. }
        | GetOrFill { key, .. }
        | Filled { key, .. } => key,
    }
}
