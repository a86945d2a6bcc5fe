//! Problems that gRPC and HTTP share.

use leasehold_wire::{Code, v1};

use crate::metrics::IDENTITY_QUEUED_REQUESTS;
use crate::request_queue::{IDENTITY_REQUESTS, RequestQueue, SubmitError};

/// The request was not queued, so nothing happened. A server that no longer leads refers the caller to the leader.
pub fn not_submitted(error: SubmitError, queue: &RequestQueue) -> v1::Problem {
    match error {
        SubmitError::Full => queue_full(),
        SubmitError::IdentityFull => identity_queue_full(),
        SubmitError::Stopping => not_answered(queue),
    }
}

/// The request queue has no capacity left.
pub fn queue_full() -> v1::Problem {
    let message = "the request queue is full; retry the same request after a moment";
    v1::Problem { retry_after_ms: Some(100), ..v1::Problem::of(Code::Unavailable, message) }
}

/// An identity has too many requests in the queue.
pub fn identity_queue_full() -> v1::Problem {
    let max = IDENTITY_REQUESTS as u64;
    let message = format!(
        "this identity has {max} queued requests and may have at most {max}; nothing happened, retry after a moment or send fewer requests at once"
    );
    v1::Problem {
        limit: IDENTITY_QUEUED_REQUESTS.into(),
        max: Some(max),
        got: Some(max + 1),
        retry_after_ms: Some(100),
        ..v1::Problem::of(Code::ResourceExhausted, message)
    }
}

/// A query was not answered. It changes nothing, so its outcome is not unknown.
pub fn not_answered(queue: &RequestQueue) -> v1::Problem {
    queue.close_reason().cloned().unwrap_or_else(shutting_down)
}

/// The server accepts no more requests.
pub fn shutting_down() -> v1::Problem {
    v1::Problem::of(Code::Unavailable, "the server is shutting down; retry when it is available again")
}

/// A standby has no state yet.
pub fn standby_not_ready() -> v1::Problem {
    let message = "the standby has not loaded the state yet; retry after a moment or query the leader";
    v1::Problem { retry_after_ms: Some(200), ..v1::Problem::of(Code::Unavailable, message) }
}

/// The caller requires a later journal position than this server has.
pub fn position_not_reached(min: u64, position: u64) -> v1::Problem {
    let message = format!(
        "min_position: the journal is at {position}, below the requested {min}; query the server that reported it, or retry later"
    );
    let problem = v1::Problem::of(Code::Unavailable, message);
    v1::Problem { field: "min_position".into(), max: Some(position), got: Some(min), ..problem }
}

/// There will be no reply, so the outcome is unknown (X3).
pub fn no_reply() -> v1::Problem {
    let message =
        "the server stopped, or the same request was sent on another connection; retry with the same request id";
    v1::Problem::of(Code::Indeterminate, message)
}
