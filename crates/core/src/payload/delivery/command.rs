//! What can be asked of a queue, and what it answers.

use std::sync::Arc;

use crate::ids::SessionId;
use crate::lease::Reason;
use crate::time::Millis;
use crate::token::Number;

/// What can be asked of a queue. Names were checked at the edge.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Adds a message.
    Enqueue {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        body: &'a [u8],
        /// Milliseconds before it can be received.
        delay_ms: u64,
        /// Deliveries before it is dead.
        max_attempts: Option<u32>,
    },
    /// Takes messages, each under a receipt of its own.
    Receive {
        /// The queue's resource name.
        queue: &'a str,
        /// The session with which the receipts end; without one each lives by its visibility alone.
        session: Option<SessionId>,
        /// Who receives.
        holder: &'a str,
        /// How long each message stays with the holder unless extended.
        visibility_ms: u64,
        /// At most so many.
        most: u32,
    },
    /// Keeps a message for longer, counted from now.
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
    /// Says that a message is done; it is forgotten.
    Ack {
        /// The queue's resource name.
        queue: &'a str,
        /// The message.
        item: u64,
        /// The receipt.
        receipt: Number,
    },
    /// Gives a message back undone.
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
    /// Brings a dead message back to life, with all its attempts.
    Redrive {
        /// The queue's resource name.
        queue: &'a str,
        /// The dead message.
        item: u64,
    },
    /// Forgets a dead message.
    Drop {
        /// The queue's resource name.
        queue: &'a str,
        /// The dead message.
        item: u64,
    },
}

/// What a granted command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The message is kept until it is acked or dead.
    Enqueued {
        /// How the message is called; ids rise and are never used twice.
        item: u64,
    },
    /// The messages, oldest first; none if nothing can be received now.
    Received(Vec<Delivery>),
    /// The message stays with its holder.
    Extended {
        /// For how long.
        remaining_ms: u64,
    },
    /// The message is done.
    Acked,
    /// The message was given back.
    Returned {
        /// Whether that was its last attempt.
        dead: bool,
    },
    /// The message can be received again.
    Redriven,
    /// The message is forgotten.
    Dropped,
}

/// One message in one holder's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub item: u64,
    /// The token of this delivery.
    pub receipt: Number,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What it says.
    pub body: Arc<[u8]>,
    /// For how long it stays with the holder.
    pub remaining_ms: u64,
}

/// How many messages a queue has, by what may happen to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Can be received now.
    pub ready: usize,
    /// Can be received later.
    pub delayed: usize,
    /// In a holder's hands.
    pub live: usize,
    /// Out of attempts.
    pub dead: usize,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// Waiting to be received.
    Ready {
        /// From this time on.
        from: Millis,
    },
    /// In a holder's hands.
    Live {
        /// The current receipt.
        receipt: Number,
        /// Who has it.
        holder: &'a str,
        /// Until when, unless extended; stalls of the grantor are given back on top.
        deadline: Millis,
    },
    /// Out of attempts.
    Dead {
        /// Since this time.
        since: Millis,
        /// How its last delivery ended.
        reason: Reason,
    },
}

/// What is known about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The message.
    pub item: u64,
    /// What it says.
    pub body: &'a Arc<[u8]>,
    /// How often it was handed out.
    pub attempts: u32,
    /// How often it may be.
    pub max_attempts: u32,
    /// Where it stands.
    pub standing: Standing<'a>,
}
