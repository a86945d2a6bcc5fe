//! A queue: every message is in one holder's hands at a time, until it is acked or out of attempts. A delivery is a lease
//! on its message, and the receipt is its token.

mod receipt;

pub use receipt::Delivery;

use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::select;
use leasehold_core::command::{Answer, Command, Event};
use leasehold_core::lease::Reason;
use leasehold_core::name::Name;
use leasehold_core::payload::delivery;
use leasehold_core::time::Instant;
use leasehold_wire::v1;
use tokio::sync::Notify;

use crate::holder::{Given, Listen};
use crate::lease::To;
use crate::lock::millis;
use crate::look::checked;
use crate::route::Nature;
use crate::{Client, Error, Failure};

/// How long a message stays with whoever took it, for those who do not say.
const VISIBILITY: Duration = Duration::from_secs(30);
/// Whoever waits for a message is told when there is one. The word can get lost with a grantor, so it also asks this often.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Dead messages of one page.
const PAGE: u32 = 100;

/// A queue of a cluster. Nothing is set up: a queue is there from its first message to its last.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    name: Arc<str>,
    holder: String,
    visibility: Duration,
    ear: Arc<OnceLock<Arc<Ear>>>,
}

/// What hears that a queue has something.
#[derive(Debug)]
struct Ear {
    queue: Arc<str>,
    rung: Notify,
}

impl Listen for Ear {
    fn heard(&self, event: &Event) {
        if matches!(event, Event::Ready { queue } if **queue == *self.queue) {
            self.rung.notify_waiters();
        }
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// How long before it can be received.
    pub delay: Duration,
    /// How often it is handed out before it is dead; five times for those who do not say.
    pub attempts: Option<u32>,
}

/// How many messages a queue has, by what may happen to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Can be received now.
    pub ready: u64,
    /// Can be received later.
    pub delayed: u64,
    /// In a holder's hands.
    pub live: u64,
    /// Out of attempts.
    pub dead: u64,
}

/// A message that is out of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message.
    pub item: u64,
    /// What it says.
    pub body: Vec<u8>,
    /// How often it was handed out.
    pub attempts: u32,
    /// How its last delivery ended.
    pub reason: Option<Reason>,
}

impl Client {
    /// A queue by its name.
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        let holder = self.holder_name();
        let ear = Arc::new(OnceLock::new());
        Queue { client: self.clone(), name: name.into().into(), holder, visibility: VISIBILITY, ear }
    }
}

impl Queue {
    /// How long a message stays with whoever took it, unless extended: thirty seconds for those who do not say.
    #[must_use]
    pub const fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// Puts a message in; it is kept when this is answered. Returns its id.
    pub async fn send(&self, body: &[u8]) -> Result<u64, Failure<u64>> {
        self.send_with(body, Sending::default()).await
    }

    /// The same, later, or with another number of attempts.
    pub async fn send_with(&self, body: &[u8], how: Sending) -> Result<u64, Failure<u64>> {
        let (delay_ms, max_attempts) = (millis(how.delay), how.attempts);
        let command = delivery::Command::Enqueue { queue: &self.name, body, delay_ms, max_attempts };
        self.ask(command, |given| match told(given)? {
            delivery::Answer::Enqueued { item } => Ok(item),
            _ => Err(odd()),
        })
        .await
    }

    /// Takes up to so many messages that can be received now, oldest first. Each is this client's until its time is over,
    /// the session ends, or it is given back. Those of a call that was given up go back at once.
    pub async fn receive(&self, most: u32) -> Result<Vec<Delivery>, Error> {
        let command = delivery::Command::Receive {
            queue: &self.name,
            session: None,
            holder: &self.holder,
            visibility_ms: millis(self.visibility),
            most,
        };
        checked(Name::parse(&self.name))?;
        let handle = self.client.handle()?;
        let mut spoken = handle.say(&Command::Delivery(command)).await.map_err(Failure::into_error)?;
        let (sent, issuer) = (spoken.sent, spoken.issuer);
        let Answer::Delivery(told) = spoken.answer else {
            return Err(odd());
        };
        let delivery::Answer::Received(items) = *told else {
            return Err(odd());
        };
        let taken = items.into_iter().map(|item| {
            let one = Delivery::new(&handle, &self.name, issuer, (sent, &spoken.alive), item);
            self.client.saw(one.shown());
            one
        });
        let taken = taken.collect();
        // From here on each gives itself back.
        spoken.undo.settled();
        Ok(taken)
    }

    /// Waits for a message. The grantor tells whoever found nothing when there is something, one for each message.
    pub async fn next(&self) -> Result<Delivery, Error> {
        let handle = self.client.handle()?;
        let ear = self.ear.get_or_init(|| {
            let ear = Arc::new(Ear { queue: self.name.clone(), rung: Notify::new() });
            handle.listen(Arc::downgrade(&ear) as Weak<dyn Listen>);
            ear
        });
        loop {
            // Listens before it asks, so that nothing told in between is missed.
            let rung = pin!(ear.rung.notified());
            if let Some(one) = self.receive(1).await?.pop() {
                return Ok(one);
            }
            select(rung, pin!(handle.sleep_ms(millis(ASK_EVERY)))).await;
            self.client.handle()?;
        }
    }

    /// How many messages there are.
    pub async fn counts(&self) -> Result<Counts, Error> {
        let v1::QueueView { ready, delayed, live, dead, .. } = self.look(0, None).await?;
        Ok(Counts { ready, delayed, live, dead })
    }

    /// Dead messages above an id, in the order of their ids; none after the last.
    pub async fn dead_letters(&self, after: u64) -> Result<Vec<DeadLetter>, Error> {
        let seen = self.look(after, Some(PAGE)).await?;
        let letter = |told: v1::DeadLetter| {
            let reason = v1::Reason::try_from(told.reason).ok().and_then(Option::from);
            DeadLetter { item: told.item, body: told.body, attempts: told.attempts, reason }
        };
        Ok(seen.dead_letters.into_iter().map(letter).collect())
    }

    /// Brings a dead message back to life, with all its attempts.
    pub async fn redrive(&self, item: u64) -> Result<(), Failure<()>> {
        let command = delivery::Command::Redrive { queue: &self.name, item };
        self.ask(command, |given| if told(given)? == delivery::Answer::Redriven { Ok(()) } else { Err(odd()) }).await
    }

    /// Forgets a dead message.
    pub async fn discard(&self, item: u64) -> Result<(), Failure<()>> {
        let command = delivery::Command::Drop { queue: &self.name, item };
        self.ask(command, |given| if told(given)? == delivery::Answer::Dropped { Ok(()) } else { Err(odd()) }).await
    }

    async fn ask<T>(
        &self,
        command: delivery::Command<'_>,
        read: fn(Given) -> Result<T, Error>,
    ) -> Result<T, Failure<T>> {
        checked(Name::parse(&self.name))?;
        self.client.handle()?.ask_in_session(&Command::Delivery(command), read).await
    }

    async fn look(&self, after: u64, most: Option<u32>) -> Result<v1::QueueView, Error> {
        checked(Name::parse(&self.name))?;
        let ask = v1::QueueRequest { queue: (*self.name).into(), after, most, min_position: 0 };
        #[cfg(any(test, feature = "testing"))]
        if let Some(seen) = self.client.in_memory(|grantor| {
            let (now, most) = (grantor.status().time, most.unwrap_or(0) as usize);
            leasehold_wire::queue_view(grantor.queues(), now, &self.name, after, most)
        }) {
            return seen;
        }
        let send = |mut to: To, ask| async move { to.queue(ask).await };
        self.client.call(Nature::Look, Duration::ZERO, ask, send).await
    }
}

/// What a queue answered.
fn told(given: Given) -> Result<delivery::Answer, Error> {
    spoken(given).map(|(told, _)| told)
}

fn spoken(given: Given) -> Result<(delivery::Answer, Instant), Error> {
    match given {
        Given::Spoken(spoken) => match spoken.answer {
            Answer::Delivery(told) => Ok((*told, spoken.sent)),
            _ => Err(odd()),
        },
        _ => Err(odd()),
    }
}

fn odd() -> Error {
    Error::garbled("another answer than a queue's")
}

#[cfg(test)]
mod tests;
