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
use crate::holder::Handle;
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
    /// Whether dropping must give back.
    kept: bool,
}

impl Delivery {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        queue: &Arc<str>,
        issuer: Issuer,
        sent: Instant,
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
        let (handle, queue) = (handle.clone(), queue.clone());
        Self { handle, queue, item, token, attempt, body, visibility_ms: remaining_ms, until, kept: true }
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
        let until = self.until.load(Ordering::Acquire);
        Duration::from_nanos(until.saturating_sub(self.handle.clock.now().0))
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
        let mut work = pin!(work);
        loop {
            self.handle.check()?;
            let left = self.left();
            if left.is_zero() {
                return Err(lost(Loss::Ended(Reason::Ttl)));
            }
            let pause = pin!(self.handle.sleep_ms(millis((left / 3).max(PAUSE))));
            if let Either::Right((done, _)) = select(pause, work.as_mut()).await {
                return Ok(done);
            }
            let left = self.left();
            let late = pin!(self.handle.sleep_ms(millis(left)));
            let asking = pin!(self.extend(Duration::from_millis(self.visibility_ms)));
            match select(select(late, asking), work.as_mut()).await {
                Either::Right((done, _)) => return Ok(done),
                Either::Left((Either::Right((Err(error), _)), _)) if is_final(&error) => return Err(error),
                Either::Left(_) => {}
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
fn is_final(error: &Error) -> bool {
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
