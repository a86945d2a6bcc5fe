//! Broadcast of events to watchers, with the names of their resources. An event is sent once it is durable.
//!
//! A turn hands its events to a thread, which wakes the watchers: with thousands of them, that takes longer than a turn. The thread
//! pauses between two rounds for as long as the last one may have cost, so that renewals keep most of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold_core::command::{Notice, SessionEvent};
use leasehold_core::grantor::Grantor;
use leasehold_core::time::WallClock;
use leasehold_wire::{encode_event, v1};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

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

/// A message with its number.
type Numbered = (u64, WatchMessage);

/// The messages of one watcher.
pub struct Subscription {
    messages: broadcast::Receiver<Numbered>,
    /// The number of the last message before it subscribed.
    after: u64,
}

impl Subscription {
    /// The next message; fails if messages were missed.
    pub async fn recv(&mut self) -> Result<WatchMessage, RecvError> {
        loop {
            match self.messages.recv().await? {
                (number, message) if number > self.after => return Ok(message),
                _ => {}
            }
        }
    }
}

/// All watchers of a server.
pub struct Watchers {
    /// Messages on their way to the thread that sends them.
    outgoing: mpsc::Sender<Numbered>,
    messages: broadcast::Sender<Numbered>,
    /// The number of the last message.
    last: AtomicU64,
    closed: AtomicBool,
}

impl Default for Watchers {
    fn default() -> Self {
        let (messages, (outgoing, incoming)) = (broadcast::Sender::new(MAX_UNREAD), mpsc::channel());
        let sender = messages.clone();
        let run = move || send_in_rounds(&incoming, &sender);
        thread::Builder::new().name("watchers".into()).spawn(run).expect("a thread can be spawned");
        Self { outgoing, messages, last: AtomicU64::new(0), closed: AtomicBool::new(false) }
    }
}

/// Sends messages to the watchers until the server is gone. All messages that are ready wake a watcher once.
fn send_in_rounds(incoming: &mpsc::Receiver<Numbered>, messages: &broadcast::Sender<Numbered>) {
    while let Ok(first) = incoming.recv() {
        for message in std::iter::once(first).chain(incoming.try_iter().take(MAX_UNREAD / 2)) {
            // Fails if there is no watcher.
            let _ = messages.send(message);
        }
        thread::sleep(pause_after_round(messages.receiver_count()));
    }
}

/// Time for this many watchers to write what they received. A few need none.
fn pause_after_round(watchers: usize) -> Duration {
    const FEW: usize = 64;
    const EACH: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(250);
    if watchers <= FEW { Duration::ZERO } else { LONGEST.min(EACH * u32::try_from(watchers).unwrap_or(u32::MAX)) }
}

impl Watchers {
    /// Subscribes to events from now on; `None` once the server shuts down.
    pub fn subscribe(&self) -> Option<Subscription> {
        let messages = self.messages.subscribe();
        // After the subscription, so that no later message is missed; before the check, so that a watcher sees the flag or receives
        // `Closed`.
        let after = self.last.load(Ordering::SeqCst);
        (!self.closed.load(Ordering::SeqCst)).then_some(Subscription { messages, after })
    }

    /// Ends all watches.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.send(WatchMessage::Closed);
    }

    fn send(&self, message: WatchMessage) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.outgoing.send((number, message)).expect("the thread runs as long as the server");
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
            self.send(WatchMessage::Event(Arc::new(event)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64) -> WatchMessage {
        let event = SessionEvent::Drained { lease: leasehold_core::ids::LeaseId { slot: 0, reuse: 0 } };
        let (resource, holder) = (String::new(), String::new());
        WatchMessage::Event(Arc::new(ResourceEvent { resource, holder, event, position, wall: WallClock(0) }))
    }

    fn position(message: &WatchMessage) -> u64 {
        match message {
            WatchMessage::Event(event) => event.position,
            WatchMessage::Closed => panic!("not closed"),
        }
    }

    #[tokio::test]
    async fn a_watcher_receives_what_is_sent_after_it_subscribed_in_order() {
        let watchers = Watchers::default();
        let _keeps_messages = watchers.subscribe().expect("open");
        (0..500).for_each(|n| watchers.send(event(n)));
        let mut late = watchers.subscribe().expect("open");
        (500..1_000).for_each(|n| watchers.send(event(n)));
        watchers.close();
        for n in 500..1_000 {
            assert_eq!(position(&late.recv().await.expect("nothing was missed")), n);
        }
        assert!(matches!(late.recv().await, Ok(WatchMessage::Closed)));
        assert!(watchers.subscribe().is_none());
    }

    #[test]
    fn many_watchers_are_woken_less_often() {
        assert_eq!(pause_after_round(64), Duration::ZERO);
        assert_eq!(pause_after_round(1_000), Duration::from_millis(20));
        assert_eq!(pause_after_round(1_000_000), Duration::from_millis(250));
    }
}
