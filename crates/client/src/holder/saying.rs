//! What is asked in the client's session beside its leases, what takes it back, and who hears what the session is told.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use leasehold_core::command::{Answer, Command, Event};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::time::Instant;
use leasehold_wire::Issuer;
use leasehold_wire::v1::request::Ask as Message;

use super::cell::Alive;
use super::inbox::{Ask, By, Given};
use super::line::Line;
use super::requests::{Pending, Purpose};
use super::{Handle, reply};
use crate::failure::Asked;
use crate::{Error, Failure};

/// How often a deadline is looked at that can come nearer without a word, in milliseconds: a session's end brings one.
const LOOK_EVERY: u64 = 250;

/// Hears what the session is told, on the thread that holds: it must not wait, and it must not hold what it hears.
pub(crate) trait Listen: fmt::Debug + Send + Sync {
    fn heard(&self, event: &Event);
}

/// An answer that was given in a session.
#[derive(Debug)]
pub(crate) struct Spoken {
    pub(crate) answer: Answer,
    /// When it was asked for: what lasts is counted from there.
    pub(crate) sent: Instant,
    /// Who gave it, as tokens name it.
    pub(crate) issuer: Issuer,
    /// Until when that session may be thought alive: what it was given ends with it.
    pub(crate) alive: Arc<Alive>,
    /// What takes back that which was given.
    pub(crate) undo: Undo,
}

/// Takes something back when it is dropped, without waiting for it.
#[derive(Default)]
pub(crate) struct Undo(Option<(Weak<Handle>, Vec<Message>)>);

impl Undo {
    /// It is over in another way: nothing is to be taken back any more.
    pub(crate) fn settled(&mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((handle, messages)) = self.0.take()
            && let Some(handle) = handle.upgrade()
        {
            messages.into_iter().for_each(|message| handle.put(Ask::Tell(Box::new(message))));
        }
    }
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Undo").field(&self.0.is_some()).finish()
    }
}

impl Handle {
    /// Asks something in this client's session.
    pub(crate) async fn say(self: &Arc<Self>, command: &Command<'_>) -> Result<Spoken, Failure<Spoken>> {
        let message = Box::new(spelled(command)?);
        let read = |given| match given {
            Given::Spoken(spoken) => Ok(*spoken),
            Given::Answer(_) | Given::Guards(_) => Err(Error::garbled("an answer to something else")),
        };
        self.ask(|by, handle| Ask::Say { by, message, handle }, read).await?.outcome().await
    }

    /// The same, with the answer read by whoever asks; what it gave is then not taken back.
    pub(crate) async fn ask_in_session<T>(
        self: &Arc<Self>,
        command: &Command<'_>,
        read: fn(Given) -> Result<T, Error>,
    ) -> Result<T, Failure<T>> {
        let message = Box::new(spelled(command)?);
        self.ask(|by, handle| Ask::Say { by, message, handle }, read).await?.outcome().await
    }

    /// The same for which nobody waits.
    pub(crate) fn tell(&self, command: &Command<'_>) {
        if let Ok(message) = spelled(command) {
            self.put(Ask::Tell(Box::new(message)));
        }
    }

    /// Tells it what the session hears, for as long as it lives.
    pub(crate) fn listen(&self, listener: Weak<dyn Listen>) {
        self.put(Ask::Listen(listener));
    }

    /// Sleeps until then, by the clock that leases are counted by. Ends early only with the thread.
    pub(crate) async fn sleep_until(self: &Arc<Self>, at: Instant) {
        let (tell, told) = reply();
        self.put(Ask::Alarm { at, tell });
        let sleeping = Asked { handle: self.clone(), key: 0, told, read: |_| Ok(()), settled: true };
        // A thread that ended wakes everybody; whoever asks it next is told.
        let _ = sleeping.outcome().await;
    }

    /// Waits until a deadline is over, which may move meanwhile. It looks at the clock whenever it is polled: whatever else
    /// woke this task must not be done first. Over, too, once the thread has ended: nothing moves a deadline any more.
    pub(crate) async fn over(self: &Arc<Self>, deadline: impl Fn() -> Instant) {
        let is_over = || self.clock.now() >= deadline() || self.check().is_err();
        while !is_over() {
            let look = self.clock.now().plus_millis(LOOK_EVERY);
            let mut alarm = pin!(self.sleep_until(deadline().min(look)));
            poll_fn(|context| {
                let rung = alarm.as_mut().poll(context);
                if is_over() { Poll::Ready(()) } else { rung }
            })
            .await;
        }
    }

    /// Sleeps for so long.
    pub(crate) async fn sleep_ms(self: &Arc<Self>, ms: u64) {
        self.sleep_until(self.clock.now().plus_millis(ms)).await;
    }
}

fn spelled(command: &Command<'_>) -> Result<Message, Error> {
    leasehold_wire::ask(command).ok_or_else(|| Error::garbled("a question that no stream asks"))
}

impl Line {
    /// Puts what is asked in the session among the requests.
    pub(super) fn say(&mut self, now: Instant, by: By, message: Message, handle: Weak<Handle>) {
        let key = by.key;
        self.ask(now, key, message, Purpose::Say { by, handle });
    }

    /// Takes in the answer.
    pub(super) fn said(
        &mut self,
        sent: Instant,
        by: By,
        handle: Weak<Handle>,
        asked: &Message,
        answer: Result<Answer, Error>,
    ) {
        let spoken = answer.and_then(|answer| {
            let session = self.session.as_ref().ok_or_else(|| Error::garbled("an answer outside of a session"))?;
            let undo = Undo(Some((handle, undo(asked, &answer))));
            let (alive, issuer) = (session.alive.clone(), session.issuer);
            Ok(Given::Spoken(Box::new(Spoken { answer, sent, issuer, alive, undo })))
        });
        by.tell.done(spoken);
    }

    /// What was asked in a session that is over: what had left may have happened, the rest is asked in the next one.
    pub(super) fn said_in_vain(&mut self, pending: Pending, sent: bool) {
        match pending.purpose {
            Purpose::Say { by, .. } if sent => {
                by.tell.done(Err(Error::indeterminate("the session ended before the answer came", None)));
            }
            _ => self.requests.put(pending),
        }
    }

    /// Tells those who listen.
    pub(super) fn tell_listeners(&mut self, event: &Event) {
        self.listeners.retain(|listener| listener.strong_count() > 0);
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            listener.heard(event);
        }
    }
}

/// What takes back that which an answer gave.
fn undo(asked: &Message, told: &Answer) -> Vec<Message> {
    match (asked, told) {
        (Message::Cache(asked), Answer::Cache(told)) => undo_cache(&asked.key, told).into_iter().collect(),
        (Message::Delivery(asked), Answer::Delivery(told)) => match &**told {
            delivery::Answer::Received(taken) => {
                let nack = |one: &delivery::Delivery| {
                    let (queue, item, receipt) = (asked.queue.as_str(), one.item, one.receipt);
                    let nack = delivery::Command::Nack { queue, item, receipt, delay_ms: 0 };
                    leasehold_wire::ask(&Command::Delivery(nack))
                };
                taken.iter().filter_map(nack).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn undo_cache(key: &str, told: &cache::Answer) -> Option<Message> {
    let command = match *told {
        cache::Answer::Reading { lease, .. } => cache::Command::Invalidated { key, lease },
        cache::Answer::Intended { intent, .. } => cache::Command::Abort { key, number: intent },
        cache::Answer::Fill { token, .. } => cache::Command::Abort { key, number: token },
        _ => return None,
    };
    leasehold_wire::ask(&Command::Cache(command))
}
