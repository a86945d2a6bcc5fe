//! What was told to one connection and has not left yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use leasehold_core::command::{Answer, Event};
use leasehold_core::payload::delivery;
use leasehold_wire::{Code, v1};
use tokio::sync::Notify;

use super::Told;

/// Answers and events that one connection may leave unread, a long one counting as several; then it is closed.
pub const UNREAD: usize = 1 << 18;
/// An answer of so many bytes counts as one.
const ONE: usize = 512;

/// What lies ready for one connection.
#[derive(Debug)]
pub enum Item {
    /// The answer to a request.
    Answer(u64, Told),
    /// A request that was not even taken, and why.
    Refused(u64, Box<v1::Problem>),
    /// The answers to many renewals, in their order.
    Renewed(v1::Renewed),
    /// Something the session should know, and the journal position it depends on.
    Event(Event, u64),
    /// Nothing more follows, and why.
    Goodbye(Box<v1::Problem>),
}

/// What the driver has told one connection and the connection has not yet sent.
#[derive(Debug, Default)]
pub struct Outbox {
    items: Mutex<Items>,
    arrived: Notify,
    closed: AtomicBool,
    ended: Notify,
}

/// Items, and the journal position that all of them depend on.
#[derive(Debug, Default)]
pub struct Items {
    /// The items, in the order in which they were told.
    pub list: Vec<Item>,
    /// The position.
    pub position: u64,
    weight: usize,
}

impl Item {
    /// How much of what may be unread it takes.
    fn weight(&self) -> usize {
        match self {
            Self::Renewed(renewed) => 1 + renewed.others.len(),
            Self::Answer(_, Told { answer: Answer::Delivery(delivery), .. }) => match &**delivery {
                delivery::Answer::Received(items) => {
                    items.iter().map(|item| 1 + item.body.len() / ONE).sum::<usize>().max(1)
                }
                _ => 1,
            },
            _ => 1,
        }
    }
}

impl Outbox {
    pub(super) fn put(&self, item: Item, position: u64) {
        let mut items = self.items();
        if self.is_closed() || matches!(items.list.last(), Some(Item::Goodbye(_))) {
            return;
        }
        items.weight += item.weight();
        if items.weight > UNREAD {
            items.list = vec![Item::Goodbye(Box::new(unread()))];
        } else {
            items.list.push(item);
            items.position = items.position.max(position);
        }
    }

    /// Puts something there that depends on nothing, and wakes the connection.
    pub fn tell(&self, item: Item) {
        self.put(item, 0);
        self.ring();
    }

    pub(super) fn ring(&self) {
        self.arrived.notify_one();
    }

    /// Waits for something to send; nothing more comes once nobody listens.
    pub async fn take(&self) -> Option<Items> {
        loop {
            let taken = std::mem::take(&mut *self.items());
            if self.is_closed() {
                return None;
            }
            if !taken.list.is_empty() {
                return Some(taken);
            }
            self.arrived.notified().await;
        }
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Nobody listens any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
        self.ended.notify_waiters();
    }

    /// Waits until nobody listens any more.
    pub async fn closed(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        // Whoever closes between the look and the wait is heard.
        ended.as_mut().enable();
        if !self.is_closed() {
            ended.await;
        }
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        // A thread that panicked with the items in hand left them whole: every change is one push.
        self.items.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A connection read too slowly.
fn unread() -> v1::Problem {
    let told = v1::Problem::of(Code::ResourceExhausted, "too much was left unread; come back, and read faster");
    v1::Problem { limit: "unread".into(), max: Some(UNREAD as u64), got: Some(UNREAD as u64 + 1), ..told }
}
