//! Bodies of commands about queues, and the view of a queue.

use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::bytes::{bytes_of, bytes_text};
use super::request_fields::{decimal, session};
use super::{hex, optional_enum_word};
use crate::duration::HumanDuration;
use crate::v1::delivery_command::Command;
use crate::v1::request::Operation;
use crate::{TokenIssuer, delivery_resource, delivery_token, v1};

fn delivery(queue: &str, command: Command) -> Operation {
    Operation::Delivery(v1::DeliveryCommand { queue: queue.into(), command: Some(command) })
}

/// `POST /v1/queues/{name}:send`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields, default)]
pub struct SendBody {
    /// The message as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The message as bytes in base64, instead of `body`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Delay before the message can be received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// Deliveries before the message becomes a dead letter; 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

impl SendBody {
    /// Converts the body into the request for this queue.
    pub fn into_operation(self, queue: &str) -> Result<Operation, Refusal> {
        let body = bytes_of("body", "body_base64", self.body, self.body_base64)?;
        let reason = "required; send the message as body, or in base64 as body_base64";
        Ok(delivery(
            queue,
            Command::Enqueue(v1::Enqueue {
                body: body.ok_or(Refusal::Invalid { field: "body", reason })?,
                delay_ms: self.delay.map_or(0, HumanDuration::millis),
                max_attempts: self.max_attempts,
            }),
        ))
    }
}

/// The added message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentBody {
    /// Id of the message.
    pub item: String,
}

/// `POST /v1/queues/{name}:receive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ReceiveBody {
    /// Name of the receiver.
    pub holder: String,
    /// Id of the session that carries the deliveries. Absent: they live by their visibility timeout alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Visibility timeout: how long a message stays with the receiver unless extended.
    pub visibility: HumanDuration,
    /// Maximum number of messages; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Longest wait if the queue has no message; return an empty list immediately if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<HumanDuration>,
}

impl ReceiveBody {
    /// Converts the body into the request for this queue.
    pub fn into_operation(self, queue: &str) -> Result<Operation, Refusal> {
        Ok(delivery(
            queue,
            Command::Receive(v1::Receive {
                holder: self.holder,
                session: session(self.session.as_deref())?,
                visibility_ms: self.visibility.millis(),
                limit: self.limit.unwrap_or(1),
                wait_ms: self.wait.map_or(0, HumanDuration::millis),
            }),
        ))
    }
}

/// Received messages, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeliveriesBody {
    /// The messages; empty if there is none.
    pub deliveries: Vec<DeliveryBody>,
}

/// One delivery of one message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeliveryBody {
    /// Id of the message.
    pub item: String,
    /// Number of the delivery's token: present it when you acknowledge, return or extend the delivery.
    pub receipt: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// The message in base64.
    pub body_base64: String,
    /// The message as text, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Remaining visibility timeout.
    pub remaining_ms: u64,
    /// Text of the fencing token of this delivery. Its resource is the queue's name, `/` and `item`.
    pub token: String,
    /// Secret that proves in later requests that the caller received the message, in hexadecimal. Send it as `Lease-Secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Omits the secret and the text of the token, which must not reach a log.
impl std::fmt::Debug for DeliveryBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DeliveryBody");
        shown.field("item", &self.item).field("receipt", &self.receipt).finish_non_exhaustive()
    }
}

impl DeliveriesBody {
    /// The messages of a queue. A token that the server does not seal is built here.
    pub fn new(queue: &str, from: v1::Deliveries, issuer: &TokenIssuer) -> Self {
        let one = |from: v1::Delivery| {
            let (body_base64, body) = bytes_text(from.body);
            let token = match from.token.is_empty() {
                false => from.token,
                true => delivery_token(issuer, &delivery_resource(queue, from.item), from.receipt)
                    .map_or_else(String::new, |token| token.to_string()),
            };
            DeliveryBody {
                item: from.item.to_string(),
                receipt: from.receipt.to_string(),
                attempt: from.attempt,
                body_base64,
                body,
                remaining_ms: from.remaining_ms,
                token,
                secret: (!from.secret.is_empty()).then(|| hex(&from.secret)),
            }
        };
        Self { deliveries: from.deliveries.into_iter().map(one).collect() }
    }
}

/// `POST /v1/queues/{name}:ack`: the message is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ReceiptBody {
    /// Id of the message.
    pub item: String,
    /// Number of the delivery's token.
    pub receipt: String,
}

impl ReceiptBody {
    fn into_receipt(self) -> Result<v1::Receipt, Refusal> {
        Ok(v1::Receipt { item: decimal("item", &self.item)?, receipt: decimal("receipt", &self.receipt)? })
    }

    /// Converts the body into the request for this queue.
    pub fn into_operation(self, queue: &str) -> Result<Operation, Refusal> {
        Ok(delivery(queue, Command::Ack(self.into_receipt()?)))
    }
}

/// `POST /v1/queues/{name}:nack`: returns the message undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct NackBody {
    /// Id of the message.
    pub item: String,
    /// Number of the delivery's token.
    pub receipt: String,
    /// Delay before the message can be received again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
}

impl NackBody {
    /// Converts the body into the request for this queue.
    pub fn into_operation(self, queue: &str) -> Result<Operation, Refusal> {
        let delay_ms = self.delay.map_or(0, HumanDuration::millis);
        let returned = ReceiptBody { item: self.item, receipt: self.receipt }.into_receipt()?;
        Ok(delivery(queue, Command::Nack(v1::Nack { delivery: Some(returned), delay_ms })))
    }
}

/// The message is back in its queue, or a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NackedBody {
    /// Whether the message used up its attempts and became a dead letter.
    pub dead: bool,
}

/// `POST /v1/queues/{name}:extend`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ExtendBody {
    /// Id of the message.
    pub item: String,
    /// Number of the delivery's token.
    pub receipt: String,
    /// New visibility timeout, from now.
    pub visibility: HumanDuration,
}

impl ExtendBody {
    /// Converts the body into the request for this queue.
    pub fn into_operation(self, queue: &str) -> Result<Operation, Refusal> {
        let visibility_ms = self.visibility.millis();
        let extended = ReceiptBody { item: self.item, receipt: self.receipt }.into_receipt()?;
        Ok(delivery(queue, Command::Extend(v1::Extend { delivery: Some(extended), visibility_ms })))
    }
}

/// The visibility timeout is extended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExtendedBody {
    /// Remaining visibility timeout.
    pub remaining_ms: u64,
}

/// A dead letter: `:redrive` makes it deliverable again, `:drop` deletes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ItemBody {
    /// Id of the message.
    pub item: String,
}

impl ItemBody {
    /// Converts the body into a redrive in this queue.
    pub fn into_redrive(self, queue: &str) -> Result<Operation, Refusal> {
        Ok(delivery(queue, Command::Redrive(decimal("item", &self.item)?)))
    }

    /// Converts the body into a deletion in this queue.
    pub fn into_drop(self, queue: &str) -> Result<Operation, Refusal> {
        Ok(delivery(queue, Command::Drop(decimal("item", &self.item)?)))
    }
}

/// Counters of a queue, and a page of its dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueBody {
    /// Name of the queue.
    pub queue: String,
    /// Messages that can be received now.
    pub ready: u64,
    /// Messages that can be received later.
    pub delayed: u64,
    /// Messages that a receiver has.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// Time until a message can be received, as far as known; null if none is scheduled.
    pub next_ms: Option<u64>,
    /// Dead letters by id. To page, pass the last id as `after` until the list is empty.
    pub dead_letters: Vec<DeadLetterBody>,
}

/// A message that used up its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterBody {
    /// Id of the message.
    pub item: String,
    /// The message in base64.
    pub body_base64: String,
    /// The message as text, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Number of deliveries.
    pub attempts: u32,
    /// How the last delivery ended.
    pub reason: Option<String>,
}

impl QueueBody {
    /// The view of a queue.
    pub fn new(queue: String, from: v1::QueueView) -> Self {
        let letter = |from: v1::DeadLetter| {
            let (body_base64, body) = bytes_text(from.body);
            DeadLetterBody {
                item: from.item.to_string(),
                body_base64,
                body,
                attempts: from.attempts,
                reason: optional_enum_word::<v1::EndReason, _>(from.reason, EndReason::word),
            }
        };
        Self {
            queue,
            ready: from.ready,
            delayed: from.delayed,
            in_flight: from.in_flight,
            dead: from.dead,
            next_ms: from.next_ms,
            dead_letters: from.dead_letters.into_iter().map(letter).collect(),
        }
    }
}
