//! Message queues: every message is with one worker at a time, until it is acknowledged or out of attempts. A delivery is a lease
//! on its message, and the receipt is its token.

mod message;

pub use message::ReceivedMessage;

use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::select;
use futures::stream::{Stream, unfold};
use leasehold_core::command::{Answer, Command, SessionEvent};
use leasehold_core::lease::EndReason;
use leasehold_core::name::Name;
use leasehold_core::payload::delivery::{DeliveryAnswer, DeliveryCommand};
use leasehold_core::time::Instant;
use leasehold_wire::{delivery_resource, v1};
use tokio::sync::Notify;

use crate::failover::RetrySafety;
use crate::lock_builder::millis;
use crate::server_pool::GrpcClient;
use crate::session_worker::{Response, SessionListener};
use crate::{Client, Error, RequestError};

/// Default visibility.
const VISIBILITY: Duration = Duration::from_secs(30);
/// A waiting worker is notified of a new message. The notification can be lost with a grantor, so it also polls this often.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Dead letters of one page.
const PAGE: u32 = 100;

/// A message queue. It needs no setup: a queue exists while it has messages.
#[derive(Clone, Debug)]
#[must_use = "a queue does nothing until it is used"]
pub struct MessageQueue {
    client: Client,
    name: Arc<str>,
    holder: String,
    visibility: Duration,
    listener: Arc<OnceLock<Arc<ReadyListener>>>,
}

/// Receives the event that a queue has a message.
#[derive(Debug)]
struct ReadyListener {
    queue: Arc<str>,
    ready: Notify,
}

impl SessionListener for ReadyListener {
    fn on_event(&self, event: &SessionEvent) {
        if matches!(event, SessionEvent::Ready { queue } if **queue == *self.queue) {
            self.ready.notify_waiters();
        }
    }
}

/// Options of a message. Default: no delay, five attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SendOptions {
    delay: Duration,
    max_attempts: Option<u32>,
}

impl SendOptions {
    /// No delay, five attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Time before the message can be received.
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How often the message is delivered before it is dead. Default: 5.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }
}

/// Number of messages in a queue by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Can be received now.
    pub ready: u64,
    /// Can be received later.
    pub delayed: u64,
    /// Received and not acknowledged.
    pub in_flight: u64,
    /// Out of attempts.
    pub dead: u64,
}

/// A message that is out of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Id of the message.
    pub id: u64,
    /// Body of the message.
    pub body: Vec<u8>,
    /// How often it was delivered.
    pub attempts: u32,
    /// How its last delivery ended.
    pub reason: Option<EndReason>,
}

impl Client {
    /// A queue by its name.
    pub fn queue(&self, name: impl Into<String>) -> MessageQueue {
        let (holder, listener) = (self.holder_name(), Arc::new(OnceLock::new()));
        MessageQueue { client: self.clone(), name: name.into().into(), holder, visibility: VISIBILITY, listener }
    }
}

impl MessageQueue {
    /// How long a received message is invisible to others, unless extended. Default: 30 s.
    pub const fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sends a message. It is durable when this returns. Returns its id.
    pub async fn send(&self, body: &[u8]) -> Result<u64, RequestError<u64>> {
        self.send_with(body, SendOptions::new()).await
    }

    /// Sends a message with options. Returns its id.
    pub async fn send_with(&self, body: &[u8], options: SendOptions) -> Result<u64, RequestError<u64>> {
        let (delay_ms, max_attempts) = (millis(options.delay), options.max_attempts);
        let command = DeliveryCommand::Enqueue { queue: &self.name, body, delay_ms, max_attempts };
        self.call(command, |response| match answer(response)? {
            DeliveryAnswer::Enqueued { item } => Ok(item),
            _ => Err(unexpected()),
        })
        .await
    }

    /// Receives up to `limit` messages that are ready now, oldest first. Each belongs to this client until its visibility ends, the
    /// session ends, or it is returned. If the future is dropped, its messages are returned immediately.
    pub async fn receive(&self, limit: u32) -> Result<Vec<ReceivedMessage>, Error> {
        let command = DeliveryCommand::Receive {
            queue: &self.name,
            session: None,
            holder: &self.holder,
            visibility_ms: millis(self.visibility),
            limit,
        };
        Name::parse(&self.name)?;
        let worker = self.client.worker()?;
        let mut reply = worker.session_call(&Command::Delivery(command)).await?;
        let (sent, issuer) = (reply.sent, reply.issuer);
        let Answer::Delivery(answer) = reply.answer else {
            return Err(unexpected());
        };
        let DeliveryAnswer::Received(messages) = *answer else {
            return Err(unexpected());
        };
        let received = messages.into_iter().map(|message| {
            let issued = (issuer, reply.sealed.as_slice());
            let resource = delivery_resource(&self.name, message.item);
            let received = ReceivedMessage::new(&worker, &self.name, issued, (sent, &reply.session_deadline), message);
            self.client.servers.observe_token(received.token(), &resource);
            received
        });
        let received = received.collect();
        // From here on every message returns itself when dropped.
        reply.compensation.disarm();
        Ok(received)
    }

    /// Waits for a message and receives it. Cancel-safe: a message whose delivery is on its way is returned.
    pub async fn recv(&self) -> Result<ReceivedMessage, Error> {
        let worker = self.client.worker()?;
        let listener = self.listener.get_or_init(|| {
            let listener = Arc::new(ReadyListener { queue: self.name.clone(), ready: Notify::new() });
            worker.add_listener(Arc::downgrade(&listener) as Weak<dyn SessionListener>);
            listener
        });
        loop {
            // Registers before it receives, so that no notification in between is missed.
            let ready = pin!(listener.ready.notified());
            if let Some(message) = self.receive(1).await?.pop() {
                return Ok(message);
            }
            select(ready, pin!(worker.sleep_ms(millis(POLL_INTERVAL)))).await;
            self.client.worker()?;
        }
    }

    /// The messages as a stream. It never ends; after an error, polling again tries again.
    pub fn messages(&self) -> impl Stream<Item = Result<ReceivedMessage, Error>> + Send + use<> {
        unfold(self.clone(), |queue| async move {
            let message = queue.recv().await;
            Some((message, queue))
        })
    }

    /// Number of messages by state.
    pub async fn stats(&self) -> Result<QueueStats, Error> {
        let v1::QueueView { ready, delayed, in_flight, dead, .. } = self.view(0, None).await?;
        Ok(QueueStats { ready, delayed, in_flight, dead })
    }

    /// Up to 100 dead letters with a higher id than `after`, in the order of their ids.
    pub async fn dead_letters(&self, after: u64) -> Result<Vec<DeadLetter>, Error> {
        let view = self.view(after, Some(PAGE)).await?;
        let letter = |letter: v1::DeadLetter| {
            let reason = v1::EndReason::try_from(letter.reason).ok().and_then(Option::from);
            DeadLetter { id: letter.item, body: letter.body, attempts: letter.attempts, reason }
        };
        Ok(view.dead_letters.into_iter().map(letter).collect())
    }

    /// Makes a dead message ready again, with all its attempts.
    pub async fn redrive(&self, id: u64) -> Result<(), RequestError<()>> {
        let command = DeliveryCommand::Redrive { queue: &self.name, item: id };
        self.call(command, |response| expect(response, &DeliveryAnswer::Redriven)).await
    }

    /// Deletes a dead message.
    pub async fn discard(&self, id: u64) -> Result<(), RequestError<()>> {
        let command = DeliveryCommand::Drop { queue: &self.name, item: id };
        self.call(command, |response| expect(response, &DeliveryAnswer::Dropped)).await
    }

    async fn call<T>(
        &self,
        command: DeliveryCommand<'_>,
        decode: fn(Response) -> Result<T, Error>,
    ) -> Result<T, RequestError<T>> {
        Name::parse(&self.name).map_err(Error::from)?;
        self.client.worker()?.session_call_with(&Command::Delivery(command), decode).await
    }

    async fn view(&self, after: u64, limit: Option<u32>) -> Result<v1::QueueView, Error> {
        Name::parse(&self.name)?;
        #[cfg(any(test, feature = "testing"))]
        if let Some(view) = self.client.servers.memory_query(|grantor| {
            let (now, limit) = (grantor.status().time, limit.unwrap_or(0) as usize);
            leasehold_wire::queue_view(grantor.queues(), now, &self.name, after, limit)
        }) {
            return view;
        }
        let request = v1::QueueRequest { queue: (*self.name).into(), after, limit, min_position: 0 };
        let send = |mut client: GrpcClient, request| async move { client.queue(request).await };
        self.client.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await
    }
}

/// The answer of a queue.
fn answer(response: Response) -> Result<DeliveryAnswer, Error> {
    answer_with_time(response).map(|(answer, _)| answer)
}

/// The answer of a queue, and when its request was sent.
fn answer_with_time(response: Response) -> Result<(DeliveryAnswer, Instant), Error> {
    match response {
        Response::Session(reply) => match reply.answer {
            Answer::Delivery(answer) => Ok((*answer, reply.sent)),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

fn expect(response: Response, expected: &DeliveryAnswer) -> Result<(), Error> {
    if answer(response)? == *expected { Ok(()) } else { Err(unexpected()) }
}

fn unexpected() -> Error {
    Error::invalid_reply("an answer other than of a queue")
}

#[cfg(test)]
mod tests;
