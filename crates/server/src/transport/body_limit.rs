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
use super::grpc_detection::{is_grpc, is_streamed, malformed_message, message_too_large, problem_response};
use super::identity_traffic::{BodyKind, IdentityTraffic, TrafficBytes};
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

    /// The part of a new connection, whose identity has a limit of its own with access rules.
    pub fn connection(&self, traffic: Option<Arc<IdentityTraffic>>) -> Arc<ConnectionBodies> {
        let own = Arc::new(Semaphore::new(CONNECTION_BODY_BYTES));
        Arc::new(ConnectionBodies { own, shared: self.0.clone(), traffic })
    }
}

impl ConnectionBodies {
    /// The same for a request of an identity that its bearer token proves.
    pub fn of_identity(&self, traffic: Option<Arc<IdentityTraffic>>) -> Arc<Self> {
        Arc::new(Self { own: self.own.clone(), shared: self.shared.clone(), traffic })
    }
}

/// Bytes of unfinished bodies of one connection: first its own allowance, then the budget of the server as far as the limit of its
/// identity allows.
#[derive(Debug)]
pub struct ConnectionBodies {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
    traffic: Option<Arc<IdentityTraffic>>,
}

/// Why further bytes of a body are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRefusal {
    /// The budget of the server is used up.
    Server,
    /// The limit of the identity is reached.
    Identity,
}

/// The bytes of one body, returned to the budget when it is dropped.
#[derive(Debug, Default)]
pub(super) struct BodyCharge {
    permits: Vec<OwnedSemaphorePermit>,
    of_identity: Option<TrafficBytes>,
}

impl BodyCharge {
    /// Charges further bytes, unless a limit is reached.
    pub(super) fn add(&mut self, bodies: &ConnectionBodies, bytes: usize, kind: BodyKind) -> Result<(), BodyRefusal> {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(permit) = bodies.own.clone().try_acquire_many_owned(count) {
            self.keep(permit);
            return Ok(());
        }
        let of_identity = match &bodies.traffic {
            Some(traffic) => Some(traffic.charge_body(bytes as u64, kind).ok_or(BodyRefusal::Identity)?),
            None => None,
        };
        let permit = bodies.shared.clone().try_acquire_many_owned(count).map_err(|_| BodyRefusal::Server)?;
        self.keep(permit);
        match (&mut self.of_identity, of_identity) {
            (Some(held), Some(more)) => held.merge(more),
            (held, more) => *held = held.take().or(more),
        }
        Ok(())
    }

    fn keep(&mut self, permit: OwnedSemaphorePermit) {
        match self.permits.iter_mut().find(|held| Arc::ptr_eq(held.semaphore(), permit.semaphore())) {
            Some(held) => held.merge(permit),
            None => self.permits.push(permit),
        }
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

/// Passes a request on when its whole body has arrived. Streams are exempt: their bodies do not end.
pub async fn read_body(State(reader): State<BodyReader>, request: Request, next: Next) -> Response {
    if is_streamed(request.uri().path()) || request.body().is_end_stream() {
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
            let of_identity = bodies.as_ref().and_then(|bodies| bodies.traffic.as_ref());
            let problem = match (error, of_identity) {
                (BodyError::IdentityLimit, Some(traffic)) => traffic.body_problem(),
                _ => error.problem(grpc),
            };
            let mut response = problem_response(problem, grpc);
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
    IdentityLimit,
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
            Self::NoBudget | Self::IdentityLimit => {
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
    const MAX: usize = MAX_TRANSPORT_BYTES + GRPC_PREFIX;
    // A declared length is refused before the body arrives.
    if body.size_hint().lower() > MAX as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| BodyError::Broken)?;
        if bytes.len() + chunk.len() > MAX {
            return Err(BodyError::TooLarge);
        }
        if let Some(bodies) = bodies {
            charge.add(bodies, chunk.len(), BodyKind::Request).map_err(|refusal| match refusal {
                BodyRefusal::Server => BodyError::NoBudget,
                BodyRefusal::Identity => BodyError::IdentityLimit,
            })?;
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
    use std::collections::HashMap;

    use super::super::identity_traffic::{TrafficLimiter, TrafficLimits, TrafficRules};
    use super::*;
    use crate::identity::{Identity, Via};

    #[test]
    fn a_body_is_charged_to_its_connection_and_then_to_the_server() {
        let add =
            |charge: &mut BodyCharge, bodies: &ConnectionBodies, bytes| charge.add(bodies, bytes, BodyKind::Request);
        let budget = BodyBudget::new(1_000);
        let (one, other) = (budget.connection(None), budget.connection(None));
        let mut large = BodyCharge::default();
        assert_eq!(add(&mut large, &one, CONNECTION_BODY_BYTES), Ok(()));
        assert_eq!(add(&mut large, &one, 999), Ok(()));
        assert_eq!(add(&mut large, &one, 2), Err(BodyRefusal::Server), "neither has two bytes left");
        assert_eq!(add(&mut large, &one, 1), Ok(()));
        let mut small = BodyCharge::default();
        assert_eq!(add(&mut small, &other, CONNECTION_BODY_BYTES), Ok(()), "another connection has its own allowance");
        assert_eq!(add(&mut small, &other, 1), Err(BodyRefusal::Server));
        drop(large);
        assert_eq!(add(&mut small, &other, 1_000), Ok(()), "an ended body returns its bytes");
        assert_eq!(add(&mut BodyCharge::default(), &one, CONNECTION_BODY_BYTES), Ok(()));
    }

    #[test]
    fn the_limit_of_an_identity_counts_over_its_connections_and_leaves_the_budget_to_others() {
        let limits = TrafficLimits { connections: 9, watches: 9, requests_per_second: 9, body_bytes: 600 };
        let limiter = TrafficLimiter::new(TrafficRules { principals: HashMap::new(), others: limits });
        let traffic = |principal: &str| {
            limiter.of(&Identity { principal: principal.into(), via: Via::Uid, ..Identity::local(None) })
        };
        let budget = BodyBudget::new(1_000);
        let ann = [budget.connection(traffic("uid:1")), budget.connection(traffic("uid:1"))];
        let bob = budget.connection(traffic("uid:2"));
        let mut charges: [BodyCharge; 3] = Default::default();
        for (charge, bodies) in charges.iter_mut().zip([&ann[0], &ann[1], &bob]) {
            assert_eq!(charge.add(bodies, CONNECTION_BODY_BYTES, BodyKind::Request), Ok(()));
        }
        assert_eq!(charges[0].add(&ann[0], 400, BodyKind::Request), Ok(()));
        assert_eq!(charges[1].add(&ann[1], 201, BodyKind::Request), Err(BodyRefusal::Identity));
        assert_eq!(charges[2].add(&bob, 600, BodyKind::Request), Ok(()));
        assert_eq!(charges[1].add(&ann[1], 200, BodyKind::Request), Err(BodyRefusal::Server));
        charges[0] = BodyCharge::default();
        assert_eq!(charges[1].add(&ann[1], 400, BodyKind::Request), Ok(()), "a refusal charges nothing");
        let by_token = ann[0].of_identity(traffic("uid:3"));
        let mut charge = BodyCharge::default();
        assert_eq!(charge.add(&by_token, CONNECTION_BODY_BYTES, BodyKind::Request), Ok(()), "of the same connection");
        assert_eq!(charges[0].add(&ann[0], 201, BodyKind::Request), Err(BodyRefusal::Identity));
        assert_eq!(charge.add(&by_token, 201, BodyKind::Request), Err(BodyRefusal::Server), "of another identity");
    }
}
