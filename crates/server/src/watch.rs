//! Broadcast of events to watchers, with the names of their resources. An event is sent once it is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::command::{Notice, SessionEvent};
use leasehold_core::grantor::Grantor;
use leasehold_core::time::WallClock;
use leasehold_wire::{encode_event, v1};
use tokio::sync::broadcast;

/// Events that one watcher may leave unread before its watch ends.
pub const MAX_UNREAD: usize = 1 << 14;

/// An event with the names it is about.
#[derive(Clone, Debug)]
pub struct ResourceEvent {
    /// The resource; empty if there is none.
    pub resource: String,
    /// The holder; empty if there is none.
    pub holder: String,
    /// The event.
    pub event: SessionEvent,
    /// The journal position it depends on.
    pub position: u64,
    /// The server's wall clock when the event became durable.
    pub wall: WallClock,
}

impl ResourceEvent {
    /// The event as a message.
    pub fn encode(&self) -> v1::Event {
        let event = encode_event(&self.event, self.position, &self.resource, &self.holder);
        v1::Event { wall_ms: self.wall.0, ..event }
    }
}

/// A message to watchers.
#[derive(Clone, Debug)]
pub enum WatchMessage {
    /// An event.
    Event(Arc<ResourceEvent>),
    /// The server shuts down; no message follows.
    Closed,
}

/// All watchers of a server.
pub struct Watchers {
    messages: broadcast::Sender<WatchMessage>,
    closed: AtomicBool,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { messages: broadcast::Sender::new(MAX_UNREAD), closed: AtomicBool::new(false) }
    }
}

impl Watchers {
    /// Subscribes to events from now on; `None` once the server shuts down.
    pub fn subscribe(&self) -> Option<broadcast::Receiver<WatchMessage>> {
        let messages = self.messages.subscribe();
        // Subscribed before the check, so that a watcher sees the flag or receives `Closed`.
        (!self.closed.load(Ordering::SeqCst)).then_some(messages)
    }

    /// Ends all watches.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Fails if there is no watcher.
        let _ = self.messages.send(WatchMessage::Closed);
    }

    /// Whether the server shuts down.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether there is a watcher.
    pub fn any(&self) -> bool {
        self.messages.receiver_count() > 0
    }

    /// Sends the events of a turn. Names are looked up only if there is a watcher.
    pub fn publish(&self, notices: &[Notice], grantor: &Grantor, position: u64, wall: WallClock) {
        if notices.is_empty() || !self.any() {
            return;
        }
        let ends = notices.iter().filter(|notice| matches!(notice.event, SessionEvent::Ended { .. })).count();
        let mut ended = grantor.last_ended(ends).into_iter();
        for notice in notices {
            let (resource, holder) = match &notice.event {
                // The grant is also sent to its session; watchers receive it once.
                SessionEvent::Granted { .. } if notice.session.is_some() => continue,
                SessionEvent::Granted { lease, .. }
                | SessionEvent::Draining { lease, .. }
                | SessionEvent::Drained { lease } => match grantor.names_of(*lease) {
                    Some((resource, holder)) => (resource.to_owned(), holder.to_owned()),
                    None => continue,
                },
                SessionEvent::Ended { .. } => match ended.next() {
                    Some(ended) => (ended.resource, ended.holder),
                    None => continue,
                },
                SessionEvent::Zombie(zombie) => (zombie.resource.clone(), zombie.holder.clone()),
                _ => (String::new(), String::new()),
            };
            let event = ResourceEvent { resource, holder, event: notice.event.clone(), position, wall };
            let _ = self.messages.send(WatchMessage::Event(Arc::new(event)));
        }
    }
}
