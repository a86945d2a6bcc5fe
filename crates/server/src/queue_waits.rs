//! Receivers that wait for a message: a long poll is woken by the event `ready` of its session.
//!
//! The core notifies a session once, when a queue that the session found empty has a message again. Every long poll of that session
//! on that queue then receives again; those that find nothing are registered in the core again by that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::ids::SessionId;
use tokio::sync::Notify;

/// All long polls of this server. Each belongs to an open request, so the limit on connections bounds them.
#[derive(Debug, Default)]
pub struct QueueWaits {
    state: Mutex<WaitTable>,
}

#[derive(Debug, Default)]
struct WaitTable {
    waits: HashMap<SessionId, Vec<WaitEntry>>,
    next: u64,
}

#[derive(Debug)]
struct WaitEntry {
    number: u64,
    queue: Box<str>,
    ready: Arc<Notify>,
}

impl QueueWaits {
    /// Registers a long poll. Register before the first receive, so that no event is missed.
    pub fn register(self: &Arc<Self>, session: SessionId, queue: &str) -> QueueWait {
        let ready = Arc::new(Notify::new());
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        state.waits.entry(session).or_default().push(WaitEntry { number, queue: queue.into(), ready: ready.clone() });
        QueueWait { waits: self.clone(), session, number, ready }
    }

    /// Wakes the long polls of a session on a queue.
    pub fn ready(&self, session: SessionId, queue: &str) {
        for entry in self.state().waits.get(&session).into_iter().flatten().filter(|entry| *entry.queue == *queue) {
            entry.ready.notify_one();
        }
    }

    /// Wakes all long polls; the server that they ask next is shutting down.
    pub fn wake_all(&self) {
        self.state().waits.values().flatten().for_each(|entry| entry.ready.notify_one());
    }

    fn state(&self) -> MutexGuard<'_, WaitTable> {
        // A thread that panicked while it held the lock left the table consistent: every change is one push or removal.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// One long poll; removed when it is dropped.
#[derive(Debug)]
pub struct QueueWait {
    waits: Arc<QueueWaits>,
    session: SessionId,
    number: u64,
    ready: Arc<Notify>,
}

impl QueueWait {
    /// Waits until the queue may have a message. Cancel safe.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        let mut state = self.waits.state();
        if let Some(waits) = state.waits.get_mut(&self.session) {
            waits.retain(|entry| entry.number != self.number);
            if waits.is_empty() {
                state.waits.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId { slot: 1, reuse: 0 };

    #[tokio::test]
    async fn an_event_wakes_the_long_polls_of_its_session_and_queue_only() {
        let waits = Arc::new(QueueWaits::default());
        let (one, two) = (waits.register(SESSION, "a"), waits.register(SESSION, "a"));
        let other_queue = waits.register(SESSION, "b");
        let other_session = waits.register(SessionId { slot: 2, reuse: 0 }, "a");
        waits.ready(SESSION, "a");
        one.ready().await;
        two.ready().await;
        for quiet in [&other_queue, &other_session, &one] {
            let woken = tokio::select! { biased; () = quiet.ready() => true, () = std::future::ready(()) => false };
            assert!(!woken);
        }
        drop((one, two, other_queue, other_session));
        assert!(waits.state().waits.is_empty(), "nothing stays behind");
    }
}
