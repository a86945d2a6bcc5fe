//! The result of a job that a task waits for.

use leasehold_core::command::Answer;

use super::compensated_reply::SessionReply;
use super::owned_lease::OwnedLease;
use super::reply_channel::ReplySender;
use crate::Error;

/// Result of a job of the session worker.
#[derive(Debug)]
pub(crate) enum Response {
    /// Granted leases, in the order of the request.
    Leases(Vec<OwnedLease>),
    /// Reply to a session call.
    Session(Box<SessionReply>),
    /// Any other reply.
    Answer(Answer),
}

/// Sends an answer if a caller waits for it.
pub(super) fn send_answer(reply: Option<ReplySender<Response>>, answer: Result<Answer, Error>) {
    if let Some(reply) = reply {
        reply.send(answer.map(Response::Answer));
    }
}
