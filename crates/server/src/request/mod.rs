//! Requests on their way to a turn and replies on their way back.
//!
//! A [`QueuedRequest`] carries its [`RequestPayload`] and its [`ReplyTo`]. The reply arrives as a [`DurableReply`], through a oneshot
//! channel for a unary caller or through the [`Outbox`] of a session stream.

mod body;
mod durable_reply;
mod operation_name;
mod outbox;
mod queued_request;

pub use body::RequestPayload;
pub use durable_reply::{DurableReply, RaisedToken, ReplyTokens, RequestTiming, StampTargets};
pub use operation_name::operation_name;
pub use outbox::{MAX_UNREAD, Outbox, OutboxBatch, OutboxReceiver, Outgoing};
pub use queued_request::{QueuedRequest, RenewalBatch, ReplyTo, SeenToken};
