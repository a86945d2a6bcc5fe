//! Who waits for which answer, and where answers go when what they depend on is durable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_core::command::{Answer, Event, Reply};
use leasehold_core::ids::SessionId;
use leasehold_wire::{Code, Renewals, v1};
use tokio::sync::{Notify, oneshot};

use crate::inbox::Body;

/// Answers and events that one connection may leave unread; then it is closed.
pub const UNREAD: usize = 1 << 18;

/// Where an answer goes.
pub enum To {
    /// To one caller who waits for the final answer.
    Caller(oneshot::Sender<Told>),
    /// To a connection, under the request's number.
    Stream(Arc<Outbox>, u64),
}

/// An answer with what is needed to spell it out.
#[derive(Debug)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// What was asked; a grant's token is spelled with its resource.
    pub body: Body,
    /// The journal position that the answer depends on.
    pub position: u64,
}

/// What lies ready for one connection.
#[derive(Debug)]
pub enum Item {
    /// The answer to a request.
    Answer(u64, Told),
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
}

/// Items, and the journal position that all of them depend on.
#[derive(Debug, Default)]
pub struct Items {
    /// The items, in the order in which they were told.
    pub list: Vec<Item>,
    /// The position.
    pub position: u64,
}

impl Outbox {
    fn put(&self, item: Item, position: u64) {
        let mut items = self.items.lock().unwrap_or_else(|e| e.into_inner());
        if self.closed.load(Ordering::Relaxed) || matches!(items.list.last(), Some(Item::Goodbye(_))) {
            return;
        }
        if items.list.len() >= UNREAD {
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

    fn ring(&self) {
        self.arrived.notify_one();
    }

    /// Waits for something to send; nothing more comes once nobody listens.
    pub async fn take(&self) -> Option<Items> {
        loop {
            let taken = std::mem::take(&mut *self.items.lock().unwrap_or_else(|e| e.into_inner()));
            if self.closed.load(Ordering::Relaxed) {
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
        self.closed.load(Ordering::Relaxed)
    }

    /// Nobody listens any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.arrived.notify_one();
    }
}

/// A connection read too slowly.
fn unread() -> v1::Problem {
    let told = v1::Problem::of(Code::ResourceExhausted, "too much was left unread; come back, and read faster");
    v1::Problem { limit: "unread".into(), max: Some(UNREAD as u64), got: Some(UNREAD as u64 + 1), ..told }
}

/// Everybody who waits for an answer of this grantor.
#[derive(Default)]
pub struct Desk {
    waiting: Vec<Option<Waiting>>,
    vacant: Vec<usize>,
    sessions: BTreeMap<SessionId, Arc<Outbox>>,
    /// Connections to be woken after this turn.
    touched: Vec<Arc<Outbox>>,
    /// The journal position that what is told depends on.
    position: u64,
}

enum Waiting {
    One { to: To, body: Body },
    Many { to: Arc<Outbox>, numbers: Vec<u64>, told: Renewals, at: usize },
}

impl Desk {
    /// Remembers who asked; the mark comes back with the answer.
    pub fn one(&mut self, to: To, body: Body) -> u64 {
        self.enter(Waiting::One { to, body })
    }

    /// What the request under this mark asks.
    pub fn body(&self, mark: u64) -> Option<&Body> {
        match self.waiting.get(mark as usize)?.as_ref()? {
            Waiting::One { body, .. } => Some(body),
            Waiting::Many { .. } => None,
        }
    }

    /// Whether what stands under this mark renews.
    pub fn renews(&self, mark: u64) -> bool {
        use v1::request::Ask::{Renew, RenewSession};
        match self.waiting.get(mark as usize).and_then(Option::as_ref) {
            Some(Waiting::Many { .. }) => true,
            Some(Waiting::One { body: Body::Ask(ask), .. }) => matches!(**ask, Renew(_) | RenewSession(_)),
            _ => false,
        }
    }

    /// Remembers who asked for many renewals.
    pub fn many(&mut self, to: Arc<Outbox>, sequence: u64, numbers: Vec<u64>) -> u64 {
        let told = Renewals::new(sequence, numbers.len());
        self.enter(Waiting::Many { to, numbers, told, at: 0 })
    }

    fn enter(&mut self, waiting: Waiting) -> u64 {
        let at = match self.vacant.pop() {
            Some(at) => {
                self.waiting[at] = Some(waiting);
                at
            }
            None => {
                self.waiting.push(Some(waiting));
                self.waiting.len() - 1
            }
        };
        at as u64
    }

    /// What is told from now on depends on this journal position.
    pub fn depends_on(&mut self, position: u64) {
        self.position = position;
    }

    /// Hands out one answer. The caller has made durable what it depends on.
    pub fn tell(&mut self, reply: Reply) {
        let at = reply.to as usize;
        let Some(waiting) = self.waiting.get_mut(at).and_then(Option::take) else {
            return;
        };
        match waiting {
            Waiting::Many { to, numbers, mut told, at: index } => {
                told.tell(index, numbers[index], &reply.answer);
                if told.is_complete() {
                    to.put(Item::Renewed(told.into_told()), self.position);
                    self.touch(to);
                    self.vacant.push(at);
                } else {
                    self.waiting[at] = Some(Waiting::Many { to, numbers, told, at: index + 1 });
                }
            }
            Waiting::One { to, body } => self.tell_one(at, to, body, reply.answer),
        }
    }

    fn tell_one(&mut self, at: usize, to: To, body: Body, answer: Answer) {
        let waits = matches!(answer, Answer::Waiting { .. });
        let position = self.position;
        match to {
            To::Caller(caller) if waits => {
                // One caller hears the end of a wait, not its beginning.
                self.waiting[at] = Some(Waiting::One { to: To::Caller(caller), body });
                return;
            }
            To::Caller(caller) => {
                // Whoever went away meanwhile can ask again under the same request id.
                let _ = caller.send(Told { answer, body, position });
            }
            To::Stream(outbox, number) => {
                if let Answer::Session(grant) = &answer {
                    self.sessions.insert(grant.session, outbox.clone());
                }
                self.touch(outbox.clone());
                if waits {
                    outbox.put(Item::Answer(number, Told { answer, body: body.clone(), position }), position);
                    self.waiting[at] = Some(Waiting::One { to: To::Stream(outbox, number), body });
                    return;
                }
                outbox.put(Item::Answer(number, Told { answer, body, position }), position);
            }
        }
        self.vacant.push(at);
    }

    /// Tells a session something, if somebody speaks for it.
    pub fn notify(&mut self, session: SessionId, event: Event) {
        let Some(outbox) = self.sessions.get(&session).cloned() else {
            return;
        };
        if outbox.is_closed() {
            self.sessions.remove(&session);
            return;
        }
        outbox.put(Item::Event(event, self.position), self.position);
        self.touch(outbox);
    }

    fn touch(&mut self, outbox: Arc<Outbox>) {
        let again = self.touched.last().is_some_and(|last| Arc::ptr_eq(last, &outbox));
        if !again {
            self.touched.push(outbox);
        }
    }

    /// Wakes every connection that was told something, once a turn.
    pub fn ring(&mut self) {
        self.touched.drain(..).for_each(|outbox| outbox.ring());
    }
}
