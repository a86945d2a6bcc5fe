//! A received message: acknowledge, extend or return it under its receipt. Dropping it returns it.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_core::command::Command;
use leasehold_core::holder::Loss;
use leasehold_core::lease::EndReason;
use leasehold_core::payload::delivery::{DeliveredMessage, DeliveryAnswer, DeliveryCommand};
use leasehold_core::time::Instant;
use leasehold_core::token::Number;
use leasehold_wire::{TokenIssuer, delivery_resource, delivery_token};

use super::{answer, answer_with_time, expect, unexpected};
use crate::lock_builder::millis;
use crate::session_worker::{SessionDeadline, WorkerHandle};
use crate::{Error, FencingToken, RequestError};

/// Shortest pause before a message is extended again.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// A received message. Not `Clone`: a delivery has one receipt. Dropping it returns the message immediately, which costs an
/// attempt, as the end of its visibility does.
#[must_use = "dropping a message returns it to the queue"]
pub struct ReceivedMessage {
    worker: Arc<WorkerHandle>,
    queue: Arc<str>,
    id: u64,
    token: FencingToken,
    attempt: u32,
    body: Arc<[u8]>,
    visibility_ms: u64,
    /// End of the visibility by the local clock, in nanoseconds.
    until: AtomicU64,
    /// The end of the session returns its messages.
    session: Arc<SessionDeadline>,
    return_on_drop: bool,
}

impl ReceivedMessage {
    pub(super) fn new(
        worker: &Arc<WorkerHandle>,
        queue: &Arc<str>,
        (issuer, sealed): (TokenIssuer, &[FencingToken]),
        (sent, session): (Instant, &Arc<SessionDeadline>),
        message: DeliveredMessage,
    ) -> Self {
        let until = AtomicU64::new(sent.plus_millis(worker.clock_drift.shrink(message.remaining_ms)).0);
        let resource = delivery_resource(queue, message.item);
        let token = delivery_token(&issuer, &resource, message.receipt.get()).expect("a receipt is a token number");
        let token = sealed.iter().copied().find(|sealed| sealed.parsed() == token).unwrap_or(FencingToken::from(token));
        let DeliveredMessage { item: id, attempt, body, remaining_ms: visibility_ms, .. } = message;
        let (worker, queue, session) = (worker.clone(), queue.clone(), session.clone());
        Self { worker, queue, id, token, attempt, body, visibility_ms, until, session, return_on_drop: true }
    }

    /// Body of the message.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Id of the message.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Number of this attempt, from 1.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The receipt as a fencing token, for targets that the message is about. Every message is a resource of its own: the queue's
    /// name, a slash and the message's id.
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// The receipt: the token number of this delivery.
    pub const fn receipt(&self) -> Number {
        self.token.number()
    }

    /// How long the message belongs to this worker without an extension, by the local clock.
    pub fn remaining(&self) -> Duration {
        Duration::from_nanos(self.deadline().0.saturating_sub(self.worker.clock.now().0))
    }

    fn deadline(&self) -> Instant {
        Instant(self.until.load(Ordering::Acquire)).min(self.session.get())
    }

    /// Extends the visibility, counted from now.
    pub async fn extend(&self, visibility: Duration) -> Result<(), Error> {
        let command = DeliveryCommand::Extend {
            queue: &self.queue,
            item: self.id,
            receipt: self.token.number(),
            visibility_ms: millis(visibility),
        };
        let decode = |response| match answer_with_time(response)? {
            (DeliveryAnswer::Extended { remaining_ms }, sent) => Ok((sent, remaining_ms)),
            _ => Err(unexpected()),
        };
        let (sent, remaining_ms) = self.worker.session_call_with(&Command::Delivery(command), decode).await?;
        self.until.store(sent.plus_millis(self.worker.clock_drift.shrink(remaining_ms)).0, Ordering::Release);
        Ok(())
    }

    /// Runs work and extends the message until it has returned. Work whose message cannot be extended is dropped at the local
    /// deadline. Then acknowledge or return the message.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, Error> {
        self.worker.check_running()?;
        let expired = pin!(self.worker.wait_deadline(|| self.deadline()));
        let extending = pin!(self.extend_repeatedly());
        match select(select(expired, extending), pin!(work)).await {
            Either::Right((output, _)) => Ok(output),
            Either::Left((Either::Right((error, _)), _)) => Err(error),
            Either::Left((Either::Left(_), _)) => {
                self.worker.check_running()?;
                Err(Loss::Ended(EndReason::Ttl).into())
            }
        }
    }

    /// Extends the message until an extension is refused.
    async fn extend_repeatedly(&self) -> Error {
        loop {
            self.worker.sleep_ms(millis((self.remaining() / 3).max(MIN_PAUSE))).await;
            match self.extend(Duration::from_millis(self.visibility_ms)).await {
                Err(error) if is_final(&error) => return error,
                _ => {}
            }
        }
    }

    /// Acknowledges the message, which deletes it. An outdated receipt is refused.
    pub async fn ack(mut self) -> Result<(), RequestError<()>> {
        self.return_on_drop = false;
        let command = DeliveryCommand::Ack { queue: &self.queue, item: self.id, receipt: self.token.number() };
        let decode = |response| expect(response, &DeliveryAnswer::Acked);
        self.worker.session_call_with(&Command::Delivery(command), decode).await
    }

    /// Returns the message to the queue; it can be received again after the delay. Returns true if this was its last attempt and it
    /// is dead now.
    pub async fn nack(mut self, delay: Duration) -> Result<bool, RequestError<bool>> {
        self.return_on_drop = false;
        let decode = |response| match answer(response)? {
            DeliveryAnswer::Returned { dead } => Ok(dead),
            _ => Err(unexpected()),
        };
        self.worker.session_call_with(&Command::Delivery(self.nack_command(delay)), decode).await
    }

    fn nack_command(&self, delay: Duration) -> DeliveryCommand<'_> {
        let (queue, item, receipt) = (&*self.queue, self.id, self.token.number());
        DeliveryCommand::Nack { queue, item, receipt, delay_ms: millis(delay) }
    }
}

/// Whether a retry cannot succeed.
fn is_final(error: &Error) -> bool {
    !error.is_retryable() && !error.outcome_unknown()
}

impl Drop for ReceivedMessage {
    fn drop(&mut self) {
        if self.return_on_drop {
            self.worker.send_command(&Command::Delivery(self.nack_command(Duration::ZERO)));
        }
    }
}

/// Omits the token, which must not reach a log.
impl fmt::Debug for ReceivedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, id, attempt) = (&self.queue, self.id, self.attempt);
        f.debug_struct("ReceivedMessage").field("queue", queue).field("id", &id).field("attempt", &attempt).finish()
    }
}
