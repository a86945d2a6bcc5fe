//! Broadcast of events to watchers, with the names of their resources. An event is sent once it is durable.
//!
//! A turn hands its events to a thread, which wakes the watchers: with thousands of them, that takes longer than a turn. The thread
//! pauses between two rounds for as long as the last one may have cost, so that renewals keep most of the machine. Events that wait
//! for it are limited to what a watcher may leave unread; beyond that the oldest are dropped, and every watcher learns that it
//! missed them.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_core::command::{Notice, SessionEvent};
use leasehold_core::grantor::Grantor;
use leasehold_core::time::WallClock;
use leasehold_wire::{encode_event, v1};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

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
    /// The number of the last message that it received, or of the last one before it subscribed.
    after: u64,
    /// A message that follows missed ones.
    pending: Option<WatchMessage>,
}

impl Subscription {
    /// The next message; fails if messages were missed.
    pub async fn recv(&mut self) -> Result<WatchMessage, RecvError> {
        if let Some(message) = self.pending.take() {
            return Ok(message);
        }
        loop {
            let (number, message) = match self.messages.recv().await {
                Err(RecvError::Lagged(missed)) => {
                    self.after += missed;
                    return Err(RecvError::Lagged(missed));
                }
                received => received?,
            };
            let Some(missed) = number.checked_sub(self.after + 1) else { continue };
            self.after = number;
            if missed == 0 {
                return Ok(message);
            }
            // They were dropped before they were sent.
            self.pending = Some(message);
            return Err(RecvError::Lagged(missed));
        }
    }
}

/// All watchers of a server.
pub struct Watchers {
    outgoing: Arc<EventBacklog>,
    messages: broadcast::Sender<Numbered>,
    closed: watch::Sender<bool>,
}

impl Default for Watchers {
    fn default() -> Self {
        let (messages, outgoing) = (broadcast::Sender::new(MAX_UNREAD), Arc::new(EventBacklog::default()));
        let (sender, incoming) = (messages.clone(), outgoing.clone());
        let run = move || send_in_rounds(&incoming, &sender);
        thread::Builder::new().name("watchers".into()).spawn(run).expect("a thread can be spawned");
        Self { outgoing, messages, closed: watch::Sender::new(false) }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.outgoing.end();
    }
}

/// Messages on their way to the thread that sends them.
#[derive(Default)]
struct EventBacklog {
    state: Mutex<BacklogState>,
    changed: Condvar,
}

#[derive(Default)]
struct BacklogState {
    /// At most [`MAX_UNREAD`]; a watcher could read no more than that.
    messages: VecDeque<Numbered>,
    /// The number of the last message.
    last: u64,
    /// Whether no pause delays the messages any more: the last one was added.
    ended: bool,
}

impl EventBacklog {
    fn state(&self) -> MutexGuard<'_, BacklogState> {
        // A thread that panicked while it held the lock left whole messages.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages; the oldest make room.
    fn add(&self, messages: impl IntoIterator<Item = WatchMessage>) {
        let mut state = self.state();
        for message in messages {
            state.last += 1;
            let numbered = (state.last, message);
            if state.messages.len() == MAX_UNREAD {
                state.messages.pop_front();
            }
            state.messages.push_back(numbered);
        }
        self.changed.notify_all();
    }

    /// The number of the last message.
    fn last(&self) -> u64 {
        self.state().last
    }

    /// What was added is sent without a pause, and the thread ends.
    fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Waits for messages and takes those of one round; `None` at the end.
    fn next_round(&self) -> Option<Vec<Numbered>> {
        let waiting = |state: &mut BacklogState| state.messages.is_empty() && !state.ended;
        let mut state = self.changed.wait_while(self.state(), waiting).unwrap_or_else(PoisonError::into_inner);
        let count = state.messages.len().min(MAX_UNREAD / 2);
        (count > 0).then(|| state.messages.drain(..count).collect())
    }

    /// Waits between two rounds, but not at the end.
    fn pause(&self, time: Duration) {
        if !time.is_zero() {
            drop(self.changed.wait_timeout_while(self.state(), time, |state| !state.ended));
        }
    }
}

/// Sends messages to the watchers until the server is gone. All messages that are ready wake a watcher once.
fn send_in_rounds(outgoing: &EventBacklog, messages: &broadcast::Sender<Numbered>) {
    while let Some(round) = outgoing.next_round() {
        for message in round {
            // Fails if there is no watcher.
            let _ = messages.send(message);
        }
        outgoing.pause(pause_after_round(messages.receiver_count()));
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
        let after = self.outgoing.last();
        (!self.is_closed()).then_some(Subscription { messages, after, pending: None })
    }

    /// Ends all watches. What waits for the thread is sent first, without a pause.
    pub fn close(&self) {
        if !self.closed.send_replace(true) {
            self.outgoing.add([WatchMessage::Closed]);
            self.outgoing.end();
        }
    }

    /// Whether the server shuts down.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the server shuts down.
    pub fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.closed.subscribe();
        async move {
            // Fails if the server is gone.
            let _ = closed.wait_for(|closed| *closed).await;
        }
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
        let mut events = Vec::with_capacity(notices.len());
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
            events.push(WatchMessage::Event(Arc::new(event)));
        }
        self.outgoing.add(events);
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
        (0..500).for_each(|n| watchers.outgoing.add([event(n)]));
        let mut late = watchers.subscribe().expect("open");
        watchers.outgoing.add((500..1_000).map(event));
        watchers.close();
        for n in 500..1_000 {
            assert_eq!(position(&late.recv().await.expect("nothing was missed")), n);
        }
        assert!(matches!(late.recv().await, Ok(WatchMessage::Closed)));
        assert!(watchers.subscribe().is_none());
    }

    #[test]
    fn what_waits_for_the_thread_is_limited_and_the_oldest_is_dropped() {
        let outgoing = EventBacklog::default();
        for turn in 0..10 * MAX_UNREAD as u64 {
            outgoing.add([event(2 * turn), event(2 * turn + 1)]);
        }
        assert_eq!(outgoing.state().messages.len(), MAX_UNREAD);
        outgoing.end();
        let mut numbers = Vec::new();
        while let Some(round) = outgoing.next_round() {
            assert!(round.len() <= MAX_UNREAD / 2, "a watcher can read one round while the next is sent");
            numbers.extend(round.into_iter().map(|(number, _)| number));
        }
        let last = 20 * MAX_UNREAD as u64;
        assert!(numbers.into_iter().eq(last - MAX_UNREAD as u64 + 1..=last));
    }

    #[tokio::test]
    async fn a_watcher_learns_of_events_that_were_dropped_before_they_were_sent() {
        let messages = broadcast::Sender::new(8);
        let mut watcher = Subscription { messages: messages.subscribe(), after: 3, pending: None };
        for (number, message) in [(3, event(3)), (4, event(4)), (9, event(9)), (10, WatchMessage::Closed)] {
            assert!(messages.send((number, message)).is_ok());
        }
        assert_eq!(position(&watcher.recv().await.expect("the next one")), 4);
        assert!(matches!(watcher.recv().await, Err(RecvError::Lagged(4))));
        assert_eq!(position(&watcher.recv().await.expect("the one after them")), 9);
        assert!(matches!(watcher.recv().await, Ok(WatchMessage::Closed)));
        // The channel drops messages too, and none is counted twice.
        (11..=20).for_each(|number| drop(messages.send((number, event(number)))));
        assert!(matches!(watcher.recv().await, Err(RecvError::Lagged(2))));
        assert_eq!(position(&watcher.recv().await.expect("the oldest that is left")), 13);
    }

    #[test]
    fn the_end_waits_for_no_pause() {
        let outgoing = Arc::new(EventBacklog::default());
        let (done, ended) = std::sync::mpsc::channel();
        let pausing = outgoing.clone();
        thread::spawn(move || {
            pausing.pause(Duration::from_secs(3_600));
            done.send(()).expect("the test waits");
        });
        outgoing.end();
        ended.recv_timeout(Duration::from_secs(60)).expect("the pause ends with the server");
    }

    #[test]
    fn many_watchers_are_woken_less_often() {
        assert_eq!(pause_after_round(64), Duration::ZERO);
        assert_eq!(pause_after_round(1_000), Duration::from_millis(20));
        assert_eq!(pause_after_round(1_000_000), Duration::from_millis(250));
    }
}
