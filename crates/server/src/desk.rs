//! Who waits for which answer, and where answers go when what they depend on is durable.

mod outbox;
#[cfg(test)]
mod tests;
mod unheard;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use leasehold_core::command::{Answer, Event, Reply, Request};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::{Refusal, What};
use leasehold_wire::{Code, Renewals, v1};
use tokio::sync::oneshot;

use crate::inbox::{Body, Inbox};

pub use outbox::{Item, Items, Outbox, UNREAD};
pub use unheard::Unheard;

/// With fewer sessions than this nobody looks for those whose connection is gone.
const SESSIONS_LEAST: usize = 256;

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
    /// What is given back unless it is heard.
    pub unheard: Option<Unheard>,
}

/// Everybody who waits for an answer of this grantor.
pub struct Desk {
    inbox: Arc<Inbox>,
    waiting: Vec<Option<Waiting>>,
    vacant: Vec<usize>,
    /// Who listens to a wait that can be asked for again: session and sequence of the request.
    waits: HashMap<(SessionId, u64), u64>,
    sessions: BTreeMap<SessionId, Arc<Outbox>>,
    /// How many sessions there are when those without a connection are dropped.
    look_through: usize,
    /// Connections to be woken after this turn.
    touched: Vec<Arc<Outbox>>,
    /// The journal position that what is told depends on.
    position: u64,
}

enum Waiting {
    One(One),
    Many { to: Arc<Outbox>, numbers: Vec<u64>, told: Renewals, at: usize },
}

struct One {
    to: To,
    body: Body,
    /// The id under which it can be asked again.
    id: Option<(SessionId, u64)>,
}

impl Desk {
    /// An empty desk. What nobody hears goes back through the inbox.
    pub fn new(inbox: Arc<Inbox>) -> Self {
        Self {
            inbox,
            waiting: Vec::new(),
            vacant: Vec::new(),
            waits: HashMap::new(),
            sessions: BTreeMap::new(),
            look_through: 0,
            touched: Vec::new(),
            position: 0,
        }
    }

    /// Remembers who asked; the mark comes back with the answer.
    pub fn one(&mut self, to: To, request: &Request, body: Body) -> u64 {
        let id = request.id.map(|id| (id.session, id.sequence));
        self.enter(Waiting::One(One { to, body, id }))
    }

    /// What the request under this mark asks.
    pub fn body(&self, mark: u64) -> Option<&Body> {
        match self.waiting.get(mark as usize)?.as_ref()? {
            Waiting::One(one) => Some(&one.body),
            Waiting::Many { .. } => None,
        }
    }

    /// Whether what stands under this mark renews.
    pub fn renews(&self, mark: u64) -> bool {
        use v1::request::Ask::{Renew, RenewSession};
        match self.waiting.get(mark as usize).and_then(Option::as_ref) {
            Some(Waiting::Many { .. }) => true,
            Some(Waiting::One(One { body: Body::Ask(ask), .. })) => matches!(**ask, Renew(_) | RenewSession(_)),
            _ => false,
        }
    }

    /// Whether the caller under this mark has gone away.
    pub fn is_gone(&self, mark: u64) -> bool {
        match self.waiting.get(mark as usize) {
            Some(Some(Waiting::One(One { to: To::Caller(caller), .. }))) => caller.is_closed(),
            _ => false,
        }
    }

    /// Nobody waits under this mark any more, and nothing was decided.
    pub fn forget(&mut self, mark: u64) {
        self.leave(mark);
    }

    /// How many answers are waited for.
    pub fn waiting(&self) -> usize {
        self.waiting.len() - self.vacant.len()
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
            Waiting::One(one) => {
                let goes_on = matches!(reply.answer, Answer::Waiting { .. });
                match one.id {
                    Some(id) if goes_on => self.listens(id, reply.to, &one.to),
                    Some(id) if self.waits.get(&id) == Some(&reply.to) => drop(self.waits.remove(&id)),
                    _ => {}
                }
                match self.tell_one(one, reply.answer, goes_on) {
                    Some(one) => self.waiting[at] = Some(Waiting::One(one)),
                    None => self.vacant.push(at),
                }
            }
        }
    }

    /// Whoever asked last listens to a wait; nobody else is told its end.
    fn listens(&mut self, id: (SessionId, u64), mark: u64, now: &To) {
        let before = self.waits.insert(id, mark).filter(|before| *before != mark);
        let Some(before) = before else { return };
        // A single caller sees that nobody answers it any more.
        if let Some(Waiting::One(One { to: To::Stream(outbox, number), body, .. })) = self.leave(before)
            && !matches!(now, To::Stream(now, _) if Arc::ptr_eq(now, &outbox))
        {
            let answer = Answer::Refused(Refusal::Conflict(What::Request));
            outbox.put(
                Item::Answer(number, Told { answer, body, position: self.position, unheard: None }),
                self.position,
            );
            self.touch(outbox);
        }
    }

    fn leave(&mut self, mark: u64) -> Option<Waiting> {
        let left = self.waiting.get_mut(mark as usize).and_then(Option::take);
        self.vacant.extend(left.is_some().then_some(mark as usize));
        left
    }

    /// Tells one, and gives it back if more will follow.
    fn tell_one(&mut self, one: One, answer: Answer, goes_on: bool) -> Option<One> {
        let position = self.position;
        let One { to, body, id } = one;
        match to {
            // One caller hears the end of a wait, not its beginning.
            To::Caller(caller) if goes_on => Some(One { to: To::Caller(caller), body, id }),
            To::Caller(caller) => {
                // Whoever went away meanwhile can ask again under the same request id, if there is one.
                let unheard = if id.is_none() { Unheard::of(&answer, &self.inbox) } else { None };
                let _ = caller.send(Told { answer, body, position, unheard });
                None
            }
            To::Stream(outbox, number) => {
                if let (Answer::Session(grant), Body::Open(..) | Body::Resume(_)) = (&answer, &body) {
                    self.speaks_for(grant.session, outbox.clone());
                }
                self.touch(outbox.clone());
                let told = Told { answer, body: body.clone(), position, unheard: None };
                outbox.put(Item::Answer(number, told), position);
                goes_on.then_some(One { to: To::Stream(outbox, number), body, id })
            }
        }
    }

    /// One connection speaks for a session: the one that came last, unless it has gone already.
    fn speaks_for(&mut self, session: SessionId, outbox: Arc<Outbox>) {
        if outbox.is_closed() {
            return;
        }
        if let Some(before) = self.sessions.insert(session, outbox.clone())
            && !Arc::ptr_eq(&before, &outbox)
        {
            before.put(Item::Goodbye(Box::new(elsewhere())), 0);
            self.touch(before);
        }
        // Looked through again only after as many have come as were left.
        if self.sessions.len() >= self.look_through.max(SESSIONS_LEAST) {
            self.sessions.retain(|_, outbox| !outbox.is_closed());
            self.look_through = 2 * self.sessions.len();
        }
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

    /// Nothing more will be told, and why. Single callers see that nobody answers any more.
    pub fn farewell(&mut self, why: &v1::Problem) {
        let waiting = self.waiting.drain(..).flatten().filter_map(|waiting| match waiting {
            Waiting::One(One { to: To::Stream(outbox, _), .. }) | Waiting::Many { to: outbox, .. } => Some(outbox),
            Waiting::One(One { to: To::Caller(_), .. }) => None,
        });
        let sessions = std::mem::take(&mut self.sessions);
        for outbox in waiting.chain(sessions.into_values()) {
            outbox.tell(Item::Goodbye(Box::new(why.clone())));
        }
        self.vacant.clear();
        self.waits.clear();
    }
}

/// Another connection resumed the session.
fn elsewhere() -> v1::Problem {
    let told = v1::Problem::of(Code::Conflict, "the session goes on over another connection; use that one");
    v1::Problem { about: "session".into(), ..told }
}
