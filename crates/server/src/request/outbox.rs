//! Replies and events of one connection that are not sent yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use leasehold_core::command::{Answer, SessionEvent};
use leasehold_core::payload::delivery;
use leasehold_wire::{Code, v1};
use tokio::sync::Notify;

use super::DurableReply;

/// Replies and events that one connection may leave unread before it is closed. A long one counts as several.
pub const MAX_UNREAD: usize = 1 << 18;
/// A reply up to this many bytes has weight one.
const WEIGHT_BYTES: usize = 512;

/// A message to one connection.
#[derive(Debug)]
pub enum Outgoing {
    /// The answer to a request.
    Answer(u64, DurableReply),
    /// A request that was rejected before it reached the queue.
    Refused(u64, Box<v1::Problem>),
    /// The answers to a batch of renewals, in its order, and when the batch arrived.
    Renewed(v1::RenewBatchResult, Instant),
    /// A session event and the journal position it depends on.
    Event(SessionEvent, u64),
    /// The reason for the end of the stream; nothing follows.
    Close(Box<v1::Problem>),
}

/// Send queue of one connection. The driver fills it, the connection empties it.
#[derive(Debug, Default)]
pub struct Outbox {
    pending: Mutex<OutboxBatch>,
    arrived: Notify,
    closed: AtomicBool,
    ended: Notify,
}

/// Messages to send together, and the journal position that all of them depend on.
#[derive(Debug, Default)]
pub struct OutboxBatch {
    /// The messages, in order.
    pub items: Vec<Outgoing>,
    /// The highest position that any of them depends on.
    pub position: u64,
    weight: usize,
}

impl Outgoing {
    /// Its share of [`MAX_UNREAD`].
    fn weight(&self) -> usize {
        match self {
            Self::Renewed(renewed, _) => 1 + renewed.details.len(),
            Self::Answer(_, DurableReply { answer: Answer::Delivery(delivery), .. }) => match &**delivery {
                delivery::DeliveryAnswer::Received(items) => {
                    items.iter().map(|item| 1 + item.body.len() / WEIGHT_BYTES).sum::<usize>().max(1)
                }
                _ => 1,
            },
            _ => 1,
        }
    }
}

impl Outbox {
    /// Adds a message that depends on a journal position. The connection is woken by [`Outbox::wake`], once per turn.
    pub fn push(&self, item: Outgoing, position: u64) {
        let mut pending = self.pending();
        if self.is_closed() || matches!(pending.items.last(), Some(Outgoing::Close(_))) {
            return;
        }
        pending.weight += item.weight();
        if pending.weight > MAX_UNREAD {
            pending.items = vec![Outgoing::Close(Box::new(unread_limit()))];
        } else {
            pending.items.push(item);
            pending.position = pending.position.max(position);
        }
    }

    /// Adds a message that depends on no position and wakes the connection.
    pub fn send(&self, item: Outgoing) {
        self.push(item, 0);
        self.wake();
    }

    /// Wakes the connection.
    pub fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Waits for messages to send; `None` once the outbox is closed.
    pub async fn recv(&self) -> Option<OutboxBatch> {
        loop {
            let batch = std::mem::take(&mut *self.pending());
            if self.is_closed() {
                return None;
            }
            if !batch.items.is_empty() {
                return Some(batch);
            }
            self.arrived.notified().await;
        }
    }

    /// Whether the receiving connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Records that the receiving connection has ended.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
        self.ended.notify_waiters();
    }

    /// Waits until the outbox is closed.
    pub async fn closed(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        // Registered before the check, so that a close between the check and the wait is not missed.
        ended.as_mut().enable();
        if !self.is_closed() {
            ended.await;
        }
    }

    fn pending(&self) -> MutexGuard<'_, OutboxBatch> {
        // A thread that panicked while it held the lock left the list consistent: every change is one push.
        self.pending.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The receiving half of an outbox; the outbox is closed when it is dropped.
#[derive(Debug, Default)]
pub struct OutboxReceiver(Arc<Outbox>);

impl OutboxReceiver {
    /// The outbox, for those that fill it.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.0
    }
}

impl Drop for OutboxReceiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The connection read too slowly.
fn unread_limit() -> v1::Problem {
    let problem = v1::Problem::of(
        Code::ResourceExhausted,
        format!("more than {MAX_UNREAD} replies and events are unread; reconnect, resume the session and read faster"),
    );
    v1::Problem { limit: "unread".into(), max: Some(MAX_UNREAD as u64), got: Some(MAX_UNREAD as u64 + 1), ..problem }
}
