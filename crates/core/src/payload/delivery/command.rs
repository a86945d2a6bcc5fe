//! Commands for message queues, and their answers.

use std::sync::Arc;

use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::time::GrantorTime;
use crate::token::Number;

/// A command for a message queue. Names are validated before.
#[derive(Clone, Copy, Debug)]
pub enum DeliveryCommand<'a> {
    /// Adds a message.
    Enqueue {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        body: &'a [u8],
        /// Milliseconds before it can be received.
        delay_ms: u64,
        /// Deliveries before it becomes a dead letter.
        max_attempts: Option<u32>,
    },
    /// Receives messages, each under its own receipt.
    Receive {
        /// The queue's resource name.
        queue: &'a str,
        /// The session that carries the receipts; without one, each receipt lasts for its visibility.
        session: Option<SessionId>,
        /// Name of the consumer.
        holder: &'a str,
        /// How long each message stays with the consumer unless extended.
        visibility_ms: u64,
        /// Maximum number of messages.
        limit: u32,
    },
    /// Extends the visibility of a message, counted from now.
    Extend {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// The new visibility.
        visibility_ms: u64,
    },
    /// Acknowledges a message and deletes it.
    Ack {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// Returns a message to the queue.
    Nack {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
        /// Milliseconds before it can be received again.
        delay_ms: u64,
    },
    /// Returns a dead letter to the queue, with all its attempts.
    Redrive {
        /// The queue's resource name.
        queue: &'a str,
        /// The dead letter.
        item: u64,
    },
    /// Deletes a dead letter.
    Drop {
        /// The queue's resource name.
        queue: &'a str,
        /// The dead letter.
        item: u64,
    },
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryAnswer {
    /// The message is stored until it is acknowledged or becomes a dead letter.
    Enqueued {
        /// The message id; ids rise and are never reused.
        item: u64,
    },
    /// The messages, oldest first; empty if none can be received now.
    Received(Vec<DeliveredMessage>),
    /// The visibility is extended.
    Extended {
        /// Time until the receipt expires.
        remaining_ms: u64,
    },
    /// The message is acknowledged.
    Acked,
    /// The message is back in the queue, or a dead letter.
    Returned {
        /// Whether that was its last attempt.
        dead: bool,
    },
    /// The message can be received again.
    Redriven,
    /// The message is deleted.
    Dropped,
}

/// One delivery of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// The message.
    pub item: u64,
    /// The receipt: the token of this delivery.
    pub receipt: Number,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// The message body.
    pub body: Arc<[u8]>,
    /// Time until the receipt expires.
    pub remaining_ms: u64,
}

/// Number of messages of a queue, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Can be received now.
    pub ready: usize,
    /// Can be received later.
    pub delayed: usize,
    /// Being processed by a consumer.
    pub live: usize,
    /// Dead letters: out of attempts.
    pub dead: usize,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState<'a> {
    /// It can be received.
    Ready {
        /// From this time on.
        from: GrantorTime,
    },
    /// A consumer processes it.
    Live {
        /// The current receipt.
        receipt: Number,
        /// Name of the consumer.
        holder: &'a str,
        /// End of the visibility unless extended; stalls of the grantor are added.
        deadline: GrantorTime,
    },
    /// It is a dead letter: out of attempts.
    Dead {
        /// Since this time.
        since: GrantorTime,
        /// How its last delivery ended.
        reason: EndReason,
    },
}

/// A message and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageView<'a> {
    /// The message.
    pub item: u64,
    /// The message body.
    pub body: &'a Arc<[u8]>,
    /// Deliveries so far.
    pub attempts: u32,
    /// Deliveries allowed.
    pub max_attempts: u32,
    /// The state.
    pub state: MessageState<'a>,
}
