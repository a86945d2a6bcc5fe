//! Who asked a queue that had nothing, and wants to know when it has. Not on record: whoever is forgotten with a tenure looks
//! again by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Grantor;
use crate::command::Event;
use crate::ids::SessionId;
use crate::limits;
use crate::time::Millis;

/// How many are remembered in all.
const MOST: usize = 1 << 16;

/// Sessions by the queue at which they stand idle, first come first told.
#[derive(Debug, Default)]
pub(super) struct Idle {
    lines: BTreeMap<Arc<str>, Line>,
    sessions: BTreeMap<SessionId, BTreeMap<Arc<str>, u64>>,
    standing: usize,
    ticket: u64,
    /// The lines that are looked at, by when.
    due: BTreeSet<(Millis, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Line {
    standing: BTreeMap<u64, SessionId>,
    /// From when on something can be received there.
    due: Option<Millis>,
}

impl Idle {
    fn stand(&mut self, queue: &str, session: SessionId) {
        if self.standing >= MOST || self.sessions.get(&session).is_some_and(|own| own.contains_key(queue)) {
            return;
        }
        let queue = self.lines.get_key_value(queue).map_or_else(|| Arc::from(queue), |(known, _)| known.clone());
        self.ticket += 1;
        self.standing += 1;
        self.lines.entry(queue.clone()).or_default().standing.insert(self.ticket, session);
        self.sessions.entry(session).or_default().insert(queue, self.ticket);
    }

    fn first(&self, queue: &str) -> Option<SessionId> {
        self.lines.get(queue)?.standing.values().next().copied()
    }

    fn leave(&mut self, queue: &str, session: SessionId) {
        let Some(own) = self.sessions.get_mut(&session) else { return };
        let Some(ticket) = own.remove(queue) else { return };
        if own.is_empty() {
            self.sessions.remove(&session);
        }
        self.standing -= 1;
        let line = self.lines.get_mut(queue).expect("whoever stands is in a line");
        line.standing.remove(&ticket);
        if line.standing.is_empty() {
            self.look(queue, None);
            self.lines.remove(queue);
        }
    }

    fn leave_all(&mut self, session: SessionId) {
        let queues: Vec<_> = self.sessions.get(&session).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        queues.iter().for_each(|queue| self.leave(queue, session));
    }

    /// Looks at a line from then on, and no longer when it was to be looked at before.
    fn look(&mut self, queue: &str, from: Option<Millis>) {
        let Some((name, _)) = self.lines.get_key_value(queue) else { return };
        let name = name.clone();
        let line = self.lines.get_mut(queue).expect("it was there");
        if let Some(before) = std::mem::replace(&mut line.due, from) {
            self.due.remove(&(before, name.clone()));
        }
        self.due.extend(from.map(|from| (from, name)));
    }

    pub(super) fn next_due(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Grantor {
    /// This session found nothing in the queue, and is told when there is something.
    pub(super) fn stands_idle(&mut self, queue: &str, session: SessionId) {
        self.idle.stand(queue, session);
    }

    /// The session is gone, and what it had is back in these queues.
    pub(super) fn no_longer_idle(&mut self, session: SessionId, returned: &[Arc<str>]) {
        self.idle.leave_all(session);
        returned.iter().for_each(|queue| self.look_at_queue(queue));
    }

    /// Something may have changed in the queue: whoever stands there is told in time.
    pub(super) fn look_at_queue(&mut self, queue: &str) {
        if self.idle.lines.contains_key(queue) {
            self.idle.look(queue, self.table.queues.available_from(queue));
        }
    }

    /// Tells one session for each message that can be received. A told one that does not come keeps nobody from being told
    /// at the next change.
    pub(super) fn tell_idle(&mut self) {
        let now = self.now();
        for _ in 0..limits::TICK_OFFERS {
            let Some((_, queue)) = self.idle.due.first().filter(|(from, _)| *from <= now).cloned() else { return };
            let (ready, later) = self.table.queues.receivable(&queue, now, limits::TICK_OFFERS);
            self.idle.look(&queue, later);
            for _ in 0..ready {
                let Some(session) = self.idle.first(&queue) else { break };
                self.idle.leave(&queue, session);
                self.notify(Some(session), Event::Ready { queue: queue.to_string() });
            }
        }
    }
}
