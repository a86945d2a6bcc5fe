//! Consumers that found a queue empty and are notified when it has a message. They are not recorded: after a failover a
//! consumer polls again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Grantor;
use crate::command::SessionEvent;
use crate::ids::SessionId;
use crate::limits;
use crate::time::GrantorTime;

/// Maximum number of idle consumers.
const MAX_CONSUMERS: usize = 1 << 16;

/// Idle sessions by queue, notified in order of arrival.
#[derive(Debug, Default)]
pub(super) struct IdleConsumers {
    queues: BTreeMap<Arc<str>, ConsumerQueue>,
    sessions: BTreeMap<SessionId, BTreeMap<Arc<str>, u64>>,
    consumers: usize,
    ticket: u64,
    /// Queues to check, by time.
    due: BTreeSet<(GrantorTime, Arc<str>)>,
}

#[derive(Debug, Default)]
struct ConsumerQueue {
    consumers: BTreeMap<u64, SessionId>,
    /// When the next message can be received.
    due: Option<GrantorTime>,
}

impl IdleConsumers {
    fn add(&mut self, queue: &str, session: SessionId) {
        if self.consumers >= MAX_CONSUMERS || self.sessions.get(&session).is_some_and(|own| own.contains_key(queue)) {
            return;
        }
        let queue = self.queues.get_key_value(queue).map_or_else(|| Arc::from(queue), |(known, _)| known.clone());
        self.ticket += 1;
        self.consumers += 1;
        self.queues.entry(queue.clone()).or_default().consumers.insert(self.ticket, session);
        self.sessions.entry(session).or_default().insert(queue, self.ticket);
    }

    fn first(&self, queue: &str) -> Option<SessionId> {
        self.queues.get(queue)?.consumers.values().next().copied()
    }

    fn leave(&mut self, queue: &str, session: SessionId) {
        let Some(own) = self.sessions.get_mut(&session) else { return };
        let Some(ticket) = own.remove(queue) else { return };
        if own.is_empty() {
            self.sessions.remove(&session);
        }
        self.consumers -= 1;
        let entry = self.queues.get_mut(queue).expect("a consumer is in a queue");
        entry.consumers.remove(&ticket);
        if entry.consumers.is_empty() {
            self.schedule_check(queue, None);
            self.queues.remove(queue);
        }
    }

    fn leave_all(&mut self, session: SessionId) {
        let queues: Vec<_> = self.sessions.get(&session).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        queues.iter().for_each(|queue| self.leave(queue, session));
    }

    /// Schedules the next check of a queue, in place of the previous one.
    fn schedule_check(&mut self, queue: &str, from: Option<GrantorTime>) {
        let Some((name, _)) = self.queues.get_key_value(queue) else { return };
        let name = name.clone();
        let entry = self.queues.get_mut(queue).expect("it was there");
        if let Some(before) = std::mem::replace(&mut entry.due, from) {
            self.due.remove(&(before, name.clone()));
        }
        self.due.extend(from.map(|from| (from, name)));
    }

    pub(super) fn next_due(&self) -> Option<GrantorTime> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Grantor {
    /// Adds a session that found the queue empty.
    pub(super) fn add_idle_consumer(&mut self, queue: &str, session: SessionId) {
        self.idle.add(queue, session);
    }

    /// Removes an ended session; its messages are back in the `returned` queues.
    pub(super) fn remove_idle_consumer(&mut self, session: SessionId, returned: &[Arc<str>]) {
        self.idle.leave_all(session);
        returned.iter().for_each(|queue| self.schedule_queue_check(queue));
    }

    /// Schedules a check of a queue that may have changed.
    pub(super) fn schedule_queue_check(&mut self, queue: &str) {
        if self.idle.queues.contains_key(queue) {
            self.idle.schedule_check(queue, self.table.queues.available_from(queue));
        }
    }

    /// Notifies one session per message that can be received. A session that does not respond does not block others from being
    /// notified at the next change.
    pub(super) fn notify_idle_consumers(&mut self) {
        let now = self.now();
        for _ in 0..limits::TICK_OFFERS {
            let Some((_, queue)) = self.idle.due.first().filter(|(from, _)| *from <= now).cloned() else { return };
            let (ready, later) = self.table.queues.receivable(&queue, now, limits::TICK_OFFERS);
            self.idle.schedule_check(&queue, later);
            for _ in 0..ready {
                let Some(session) = self.idle.first(&queue) else { break };
                self.idle.leave(&queue, session);
                self.notify(Some(session), SessionEvent::Ready { queue: queue.to_string() });
            }
        }
    }
}
