//! Middleware that reads the whole body of a request, within a time limit and two size limits: one for each body, and one for all
//! unfinished bodies of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;
use leasehold_wire::{Code, MAX_TRANSPORT_BYTES, v1};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error_layer::{body_too_large, invalid};
use super::grpc_requests::{SESSION_PATH, is_grpc, malformed_message, message_too_large, problem_response};
use super::limits::{BODY_BYTES, CONNECTION_BODY_BYTES};
use crate::metrics::{BODY_BYTES_LIMIT, Metrics};

/// Bytes before each gRPC message: a flag and the length.
pub(super) const GRPC_PREFIX: usize = 5;

/// Bytes of unfinished bodies that all connections share.
#[derive(Clone, Debug)]
pub struct BodyBudget(Arc<Semaphore>);

impl BodyBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// The part of a new connection.
    pub fn connection(&self) -> Arc<ConnectionBodies> {
        Arc::new(ConnectionBodies { own: Arc::new(Semaphore::new(CONNECTION_BODY_BYTES)), shared: self.0.clone() })
    }
}

/// Bytes of unfinished bodies of one connection: first its own allowance, then the budget of the server.
#[derive(Debug)]
pub struct ConnectionBodies {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// The bytes of one body, returned to the budget when it is dropped.
#[derive(Debug, Default)]
pub(super) struct BodyCharge {
    permits: Vec<OwnedSemaphorePermit>,
}

impl BodyCharge {
    /// Charges further bytes; false if the budget is used up.
    pub(super) fn add(&mut self, bodies: &ConnectionBodies, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = [&bodies.own, &bodies.shared]
            .into_iter()
            .find_map(|budget| budget.clone().try_acquire_many_owned(bytes).ok());
        let Some(permit) = permit else { return false };
        match self.permits.iter_mut().find(|held| Arc::ptr_eq(held.semaphore(), permit.semaphore())) {
            Some(held) => held.merge(permit),
            None => self.permits.push(permit),
        }
        true
    }
}

/// What the middleware needs.
#[derive(Clone)]
pub struct BodyReader {
    /// Time for a body.
    pub timeout: Duration,
    /// Counts the bodies that exceed the budget.
    pub metrics: Arc<Metrics>,
}

/// Passes a request on when its whole body has arrived. The session stream is exempt: its body does not end.
pub async fn read_body(State(reader): State<BodyReader>, request: Request, next: Next) -> Response {
    if request.uri().path() == SESSION_PATH || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let grpc = is_grpc(request.headers());
    let (mut head, body) = request.into_parts();
    let mut charge = BodyCharge::default();
    let bodies = head.extensions.get::<Arc<ConnectionBodies>>().cloned();
    let read = tokio::time::timeout(reader.timeout, collect(body, &mut charge, bodies.as_deref()));
    match read.await.unwrap_or(Err(BodyError::Timeout)) {
        // The decoder would execute the first message and ignore the rest.
        Ok(bytes) if grpc && has_trailing_bytes(&bytes) => problem_response(malformed_message(), grpc),
        Ok(bytes) => {
            // Until the body is decoded.
            head.extensions.insert(Arc::new(charge));
            next.run(Request::from_parts(head, Body::from(bytes))).await
        }
        Err(error) => {
            if error == BodyError::NoBudget {
                reader.metrics.rejections().limit(BODY_BYTES_LIMIT);
            }
            let mut response = problem_response(error.problem(grpc), grpc);
            if !grpc && error != BodyError::TooLarge {
                // Do not wait for the rest of the body.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyError {
    Timeout,
    TooLarge,
    NoBudget,
    Broken,
}

impl BodyError {
    fn problem(self, grpc: bool) -> v1::Problem {
        match self {
            Self::Timeout => {
                let message = "body: did not arrive in time; nothing happened, send it at once";
                v1::Problem { field: "body".into(), ..v1::Problem::of(Code::Timeout, message) }
            }
            // The decoder reports a message that is slightly too large; this limit only bounds memory.
            Self::TooLarge if grpc => message_too_large(),
            Self::TooLarge => body_too_large(),
            Self::NoBudget => {
                let message = "body: too many requests are unfinished; nothing happened, retry after a moment";
                let problem = v1::Problem::of(Code::Unavailable, message);
                let (limit, max) = (BODY_BYTES_LIMIT.into(), Some(BODY_BYTES as u64));
                v1::Problem { field: "body".into(), limit, max, retry_after_ms: Some(1_000), ..problem }
            }
            Self::Broken if grpc => malformed_message(),
            Self::Broken => invalid("body", "cannot be read to its end; check its length or its chunks"),
        }
    }
}

async fn collect(body: Body, charge: &mut BodyCharge, bodies: Option<&ConnectionBodies>) -> Result<Bytes, BodyError> {
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| BodyError::Broken)?;
        if bytes.len() + chunk.len() > MAX_TRANSPORT_BYTES + GRPC_PREFIX {
            return Err(BodyError::TooLarge);
        }
        if bodies.is_some_and(|bodies| !charge.add(bodies, chunk.len())) {
            return Err(BodyError::NoBudget);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// Whether bytes follow the first gRPC message.
fn has_trailing_bytes(bytes: &[u8]) -> bool {
    let Some((&[_, a, b, c, d], rest)) = bytes.split_first_chunk::<GRPC_PREFIX>() else { return false };
    rest.len() > u32::from_be_bytes([a, b, c, d]) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_charged_to_its_connection_and_then_to_the_server() {
        let budget = BodyBudget::new(1_000);
        let (one, other) = (budget.connection(), budget.connection());
        let mut large = BodyCharge::default();
        assert!(large.add(&one, CONNECTION_BODY_BYTES));
        assert!(large.add(&one, 999));
        assert!(!large.add(&one, 2), "neither has two bytes left");
        assert!(large.add(&one, 1));
        let mut small = BodyCharge::default();
        assert!(small.add(&other, CONNECTION_BODY_BYTES), "another connection has its own allowance");
        assert!(!small.add(&other, 1));
        drop(large);
        assert!(small.add(&other, 1_000), "an ended body returns its bytes");
        assert!(BodyCharge::default().add(&one, CONNECTION_BODY_BYTES));
    }
}
