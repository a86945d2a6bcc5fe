//! One message in this client's hands: acked, extended or given back under its receipt, and given back when dropped.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::command::Command;
use leasehold_core::holder::Loss;
use leasehold_core::lease::Reason;
use leasehold_core::name::resource_hash;
use leasehold_core::payload::delivery;
use leasehold_core::time::Instant;
use leasehold_core::token::{Number, Reach, Token};
use leasehold_wire::Issuer;

use super::{odd, spoken, told};
use crate::hold::lost;
use crate::holder::{Alive, Handle};
use crate::lock::millis;
use crate::{Error, Failure};

/// The shortest pause before a message is extended again.
const PAUSE: Duration = Duration::from_millis(10);

/// A message that was received. Not `Clone`: one delivery, one receipt. Dropping it gives the message back at once, which
/// costs an attempt, as running out of time does.
#[must_use = "a delivery that is dropped gives its message back"]
pub struct Delivery {
    handle: Arc<Handle>,
    queue: Arc<str>,
    item: u64,
    token: Token,
    attempt: u32,
    body: Arc<[u8]>,
    visibility_ms: u64,
    /// By its own clock, in nanoseconds.
    until: AtomicU64,
    /// A session's end gives its messages back.
    alive: Arc<Alive>,
    /// Whether dropping must give back.
    kept: bool,
}

impl Delivery {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        queue: &Arc<str>,
        issuer: Issuer,
        (sent, alive): (Instant, &Arc<Alive>),
        of: delivery::Delivery,
    ) -> Self {
        let until = AtomicU64::new(sent.plus_millis(handle.rate.shorter(of.remaining_ms)).0);
        let token = Token {
            cluster: issuer.cluster,
            incarnation: issuer.incarnation,
            resource: resource_hash(&format!("{queue}/{}", of.item)),
            reach: Reach::Slot(0),
            number: of.receipt,
        };
        let delivery::Delivery { item, attempt, body, remaining_ms, .. } = of;
        let (handle, queue, alive) = (handle.clone(), queue.clone(), alive.clone());
        Self { handle, queue, item, token, attempt, body, visibility_ms: remaining_ms, until, alive, kept: true }
    }

    pub(crate) const fn shown(&self) -> Token {
        self.token
    }

    /// What it says.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The message's id.
    pub const fn item(&self) -> u64 {
        self.item
    }

    /// Which attempt this is, from 1.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The receipt as a token's text, for the fence of what the message is about: each message is an object of its own,
    /// guarded by the queue's name, a slash and the message's id.
    pub fn token(&self) -> String {
        self.token.to_string()
    }

    /// The receipt: the token's number of this delivery.
    pub const fn receipt(&self) -> Number {
        self.token.number
    }

    /// How long the message stays here if nothing more is heard, by this client's own clock.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.deadline().0.saturating_sub(self.handle.clock.now().0))
    }

    fn deadline(&self) -> Instant {
        Instant(self.until.load(Ordering::Acquire)).min(self.alive.get())
    }

    /// Keeps the message for longer, counted from now.
    pub async fn extend(&self, visibility: Duration) -> Result<(), Error> {
        let command = delivery::Command::Extend {
            queue: &self.queue,
            item: self.item,
            receipt: self.token.number,
            visibility_ms: millis(visibility),
        };
        let read = |given| match spoken(given)? {
            (delivery::Answer::Extended { remaining_ms }, sent) => Ok((sent, remaining_ms)),
            _ => Err(odd()),
        };
        let asked = self.handle.ask_in_session(&Command::Delivery(command), read).await;
        let (sent, remaining_ms) = asked.map_err(Failure::into_error)?;
        self.until.store(sent.plus_millis(self.handle.rate.shorter(remaining_ms)).0, Ordering::Release);
        Ok(())
    }

    /// Runs work and keeps the message for as long as it takes. Work that cannot keep it is stopped at the local deadline.
    /// Then ack, or give back.
    pub async fn keep<W: Future>(&self, work: W) -> Result<W::Output, Error> {
        self.handle.check()?;
        let over = pin!(self.handle.over(|| self.deadline()));
        let extending = pin!(self.extend_on_and_on());
        match select(select(over, extending), pin!(work)).await {
            Either::Right((done, _)) => Ok(done),
            Either::Left((Either::Right((error, _)), _)) => Err(error),
            Either::Left((Either::Left(_), _)) => {
                self.handle.check()?;
                Err(lost(Loss::Ended(Reason::Ttl)))
            }
        }
    }

    /// Extends the message until that is refused for good.
    async fn extend_on_and_on(&self) -> Error {
        loop {
            self.handle.sleep_ms(millis((self.left() / 3).max(PAUSE))).await;
            match self.extend(Duration::from_millis(self.visibility_ms)).await {
                Err(error) if is_final(&error) => return error,
                _ => {}
            }
        }
    }

    /// The message is done, and forgotten. A receipt that is over acks nothing, and says so.
    pub async fn ack(mut self) -> Result<(), Failure<()>> {
        self.kept = false;
        let command = delivery::Command::Ack { queue: &self.queue, item: self.item, receipt: self.token.number };
        let read = |given| if told(given)? == delivery::Answer::Acked { Ok(()) } else { Err(odd()) };
        self.handle.ask_in_session(&Command::Delivery(command), read).await
    }

    /// Gives the message back undone; it can be received again after the delay. True if that was its last attempt, and it is
    /// dead now.
    pub async fn nack(mut self, delay: Duration) -> Result<bool, Failure<bool>> {
        self.kept = false;
        let read = |given| match told(given)? {
            delivery::Answer::Returned { dead } => Ok(dead),
            _ => Err(odd()),
        };
        self.handle.ask_in_session(&Command::Delivery(self.returned(delay)), read).await
    }

    fn returned(&self, delay: Duration) -> delivery::Command<'_> {
        let (queue, item, receipt) = (&*self.queue, self.item, self.token.number);
        delivery::Command::Nack { queue, item, receipt, delay_ms: millis(delay) }
    }
}

/// Whether asking again changes nothing.
pub(crate) fn is_final(error: &Error) -> bool {
    !error.is_unavailable() && !error.is_indeterminate()
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.kept {
            self.handle.tell(&Command::Delivery(self.returned(Duration::ZERO)));
        }
    }
}

/// Without the token: it must not reach a log.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, item, attempt) = (&self.queue, self.item, self.attempt);
        f.debug_struct("Delivery").field("queue", queue).field("item", &item).field("attempt", &attempt).finish()
    }
}
