//! Commands for payloads: the payload tables decide, and this module records their decisions and sends their notices.

use std::sync::Arc;

use super::Grantor;
use super::table::GrantorTable;
use crate::access::{Caller, recorded_owner};
use crate::command::{Answer, LeaseRef, SessionEvent};
use crate::ids::SessionId;
use crate::limits;
use crate::name::{HolderName, Name};
use crate::payload::{PayloadNotice, TurnContext, cache, delivery, state};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::GrantorTime;
use crate::token::Number;
use crate::token::TokenScope;

/// Expiry records of each payload per tick.
const DUE_AT_ONCE: usize = limits::TICK_OFFERS;

impl Grantor {
    pub(super) fn put(
        &mut self,
        lease_ref: &LeaseRef<'_>,
        key: &str,
        bytes: Option<&[u8]>,
        expect: Option<u64>,
    ) -> Result<Answer, Refusal> {
        let slot = self.current(lease_ref)?;
        let lease = self.table.lease(slot);
        let token = lease.number();
        let name = self.table.resources.name(lease.resource);
        // The slots of a resource have separate holders: each has its own state and its own mark.
        let resource = match lease.scope() {
            TokenScope::Slot(0) => name.to_owned(),
            TokenScope::Slot(slot) => format!("{name}#{slot}"),
            TokenScope::Shared | TokenScope::Units => {
                return Err(Refusal::Invalid {
                    field: "access",
                    reason: "only an exclusive or slot lease can write state",
                });
            }
        };
        let resource = resource.as_str();
        let command = match bytes {
            Some(bytes) => state::StateCommand::Put { resource, token, key, bytes, expect },
            None => state::StateCommand::Delete { resource, token, key, expect },
        };
        let decision = with_context(&self.table, self.next_number()?, |at| self.table.state_table.decide(at, &command));
        for record in decision.records {
            self.record(&Record::State(record));
        }
        Ok(match decision.answer? {
            state::StateAnswer::Put { revision } => Answer::Stored { revision },
            state::StateAnswer::Deleted => Answer::Done,
        })
    }

    pub(super) fn delivery_command(
        &mut self,
        caller: &Caller<'_>,
        command: &delivery::DeliveryCommand<'_>,
    ) -> Result<Answer, Refusal> {
        Name::parse(queue_of(command))?;
        let mut owner = None;
        if let delivery::DeliveryCommand::Receive { session, holder, .. } = command {
            HolderName::parse(holder)?;
            owner = self.payload_owner(*session, caller)?;
            self.check_quarantine()?;
            if let Some(session) = session {
                self.live_session(*session)?;
            }
        }
        let next = self.next_number()?;
        let granted = self.without_wait_session(command);
        let decision = with_owner(&self.table, next, owner.as_deref(), |at| self.table.queues.decide(at, &granted));
        for record in decision.records {
            self.record(&Record::Delivery(record));
        }
        self.send_notices(decision.notices);
        if let (
            delivery::DeliveryCommand::Receive { queue, session: Some(session), .. },
            Ok(delivery::DeliveryAnswer::Received(none)),
        ) = (command, &decision.answer)
            && none.is_empty()
        {
            self.add_idle_consumer(queue, *session);
        }
        self.schedule_queue_check(queue_of(command));
        decision.answer.map(|answer| Answer::Delivery(Box::new(answer)))
    }

    /// The command as it is decided: a session that carries only waits gets the notice of a message, and none of the deliveries.
    fn without_wait_session<'a>(&self, command: &delivery::DeliveryCommand<'a>) -> delivery::DeliveryCommand<'a> {
        let mut granted = *command;
        if let delivery::DeliveryCommand::Receive { session, .. } = &mut granted {
            *session = session.filter(|id| !self.table.session(id.slot).waits_only);
        }
        granted
    }

    pub(super) fn cache_command(
        &mut self,
        caller: &Caller<'_>,
        command: &cache::CacheCommand<'_>,
    ) -> Result<Answer, Refusal> {
        Name::parse(key_of(command))?;
        let mut owner = None;
        if let cache::CacheCommand::Read { session, reader: holder, .. }
        | cache::CacheCommand::Intend { session, writer: holder, .. }
        | cache::CacheCommand::GetOrFill { session, reader: holder, .. } = command
        {
            HolderName::parse(holder)?;
            owner = self.payload_owner(*session, caller)?;
            self.check_quarantine()?;
            if let Some(session) = session {
                self.live_session(*session)?;
            }
        }
        let next = self.next_number()?;
        let decision = with_owner(&self.table, next, owner.as_deref(), |at| self.table.cache.decide(at, command));
        for record in decision.records {
            self.record(&Record::Cache(record));
        }
        self.send_notices(decision.notices);
        decision.answer.map(|answer| Answer::Cache(Box::new(answer)))
    }

    /// The owner of what a command is granted, as it is recorded: the session's, or the caller.
    fn payload_owner(&self, session: Option<SessionId>, caller: &Caller<'_>) -> Result<Option<Arc<str>>, Refusal> {
        match session {
            Some(id) => Ok(self.session_owner(id)),
            None => Ok(recorded_owner(caller)?.map(Arc::from)),
        }
    }

    /// Records expiries of queues and caches.
    pub(super) fn expire_payloads(&mut self) {
        if self.payload_deadline().is_none_or(|at| at > self.now()) {
            return;
        }
        let Ok(next) = self.next_number() else {
            return;
        };
        for record in with_context(&self.table, next, |at| self.table.queues.due(at, DUE_AT_ONCE)) {
            let queue = match record {
                delivery::DeliveryRecord::Expired { item, .. } => self.table.queues.queue_of(item).map(str::to_owned),
                _ => None,
            };
            self.record(&Record::Delivery(record));
            queue.into_iter().for_each(|queue| self.schedule_queue_check(&queue));
        }
        let mut keys = Vec::new();
        for record in with_context(&self.table, next, |at| self.table.cache.due(at, DUE_AT_ONCE)) {
            if let cache::CacheRecord::Ended { number, .. } = record {
                keys.extend(self.table.cache.holder_of(number).map(|(key, _)| Arc::from(key)));
            }
            self.record(&Record::Cache(record));
        }
        self.notify_cleared(keys);
        self.notify_idle_consumers();
    }

    /// Notifies the writers of these keys whose last read lease has ended.
    pub(super) fn notify_cleared(&mut self, mut keys: Vec<Arc<str>>) {
        keys.sort_unstable();
        keys.dedup();
        let cleared = |key: &Arc<str>| with_context(&self.table, Number::FIRST, |at| self.table.cache.cleared(at, key));
        let notices = keys.iter().filter_map(cleared).collect();
        self.send_notices(notices);
    }

    pub(super) fn payload_deadline(&self) -> Option<GrantorTime> {
        let due = [self.table.queues.next_deadline(), self.table.cache.next_deadline(), self.idle.next_due()];
        due.into_iter().flatten().min()
    }

    fn send_notices(&mut self, notices: Vec<PayloadNotice>) {
        for notice in notices {
            match notice {
                PayloadNotice::Invalidate { session, key, lease } => {
                    self.notify(Some(session), SessionEvent::Invalidate { key: key.to_string(), lease });
                }
                PayloadNotice::Clear { session, key, intent } => {
                    self.notify(Some(session), SessionEvent::Clear { key: key.to_string(), intent });
                }
            }
        }
    }

    /// The answer to a retried receive: the same deliveries, as far as their receipts are still live.
    pub(super) fn repeat_receive(&self, values: &[u64]) -> delivery::DeliveryAnswer {
        let deliveries = values.chunks_exact(2).filter_map(|pair| {
            with_context(&self.table, Number::FIRST, |at| self.table.queues.delivered(at, pair[0], pair[1]))
        });
        delivery::DeliveryAnswer::Received(deliveries.collect())
    }

    /// Whether a message has this live receipt.
    pub(super) fn is_received(&self, item: u64, receipt: Number) -> bool {
        with_context(&self.table, Number::FIRST, |at| self.table.queues.delivered(at, item, receipt.get())).is_some()
    }
}

fn with_context<R>(table: &GrantorTable, next: Number, decide: impl FnOnce(&TurnContext<'_>) -> R) -> R {
    with_owner(table, next, None, decide)
}

fn with_owner<R>(
    table: &GrantorTable,
    next: Number,
    owner: Option<&str>,
    decide: impl FnOnce(&TurnContext<'_>) -> R,
) -> R {
    let stalls = |since: GrantorTime| table.clock.stalled_since(since);
    decide(&TurnContext { now: table.time, next, max_ttl: table.max_ttl(), stalls: &stalls, owner })
}

pub(super) const fn queue_of<'a>(command: &delivery::DeliveryCommand<'a>) -> &'a str {
    use delivery::DeliveryCommand::{Ack, Drop, Enqueue, Extend, Nack, Receive, Redrive};
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

pub(super) const fn key_of<'a>(command: &cache::CacheCommand<'a>) -> &'a str {
    use cache::CacheCommand::{Abort, Commit, Filled, GetOrFill, Intend, Invalidated, Read, RenewRead};
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
