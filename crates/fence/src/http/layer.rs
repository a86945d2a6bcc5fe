//! Tower layer that checks the token of each request, and keeps the request in flight until its response is complete.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use leasehold_core::token::Number;
use serde_json::json;
use tokio::time::timeout_at;
use tower::{Layer, Service};

use super::FenceShared;
use super::gate::{Gate, GateRejection, InFlight};
use super::gate_state::RequestOutcome;
use super::in_flight_body::{BoxError, OutcomeTracker, RequestBody, ResponseBody, outcome_from_trailers};
use super::metrics::GateCounters;
use super::problem::{FenceProblem, empty_grpc_response, is_grpc, json_response};
use crate::admission::Admission;
use crate::{Error, FenceRefusal, Operation, TokenError};

/// Request header with the token.
pub const LEASE_TOKEN: &str = "lease-token";
/// Request header with a sequence, which the holder counts upward: duplicates are not forwarded.
pub const LEASE_SEQUENCE: &str = "lease-sequence";
/// Response header to a duplicate: the last sequence that was forwarded.
pub const LEASE_APPLIED: &str = "lease-applied";
/// Path of a claim: a POST with a token, which is not forwarded to the service.
pub const CLAIM_PATH: &str = "/-/claim";
/// The gRPC method of a claim, with an empty request and response.
pub const CLAIM_GRPC_PATH: &str = "/leasehold.Fence/Claim";

/// Method of a probe. The fence replies itself with a refusal and its rules, or with its rules if they exempt the path.
pub const PROBE_METHOD: &str = "LEASEHOLD-PROBE";

/// What a proxying service knows about a request without a response of the target. The service puts it into the extensions of
/// its own response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamOutcome {
    /// No part of the request reached the target.
    NotSent,
    /// The request may have been applied, or may still be. The gate blocks higher tokens for the settle time.
    Unknown,
}

/// Adds the fence to a service.
#[derive(Clone, Debug)]
pub struct FenceLayer(pub(super) Arc<FenceShared>);

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, shared: self.0.clone() }
    }
}

/// A service with a fence.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    shared: Arc<FenceShared>,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Call the instance that was polled ready.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let shared = self.shared.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let grpc = is_grpc(&head.headers);
            let in_flight = match shared.admit(&head).await {
                Ok(GateDecision::Admitted(in_flight)) => in_flight,
                Ok(GateDecision::Exempt) => {
                    let result = inner.call(Request::from_parts(head, RequestBody::new(body, None))).await?;
                    return Ok(result.map(|body| ResponseBody::from_service(body, None)));
                }
                Ok(GateDecision::Claimed(mark)) if grpc => return Ok(with_mark_header(empty_grpc_response(), mark)),
                Ok(GateDecision::Claimed(mark)) => {
                    return Ok(with_mark_header(
                        json_response(StatusCode::OK, &json!({ "mark": mark.to_string() })),
                        mark,
                    ));
                }
                Ok(GateDecision::Probed) => {
                    let body = json!({ "exempt": true, "rules": shared.rules.report() });
                    return Ok(json_response(StatusCode::OK, &body));
                }
                Ok(GateDecision::Duplicate(last)) => return Ok(duplicate_response(last, grpc)),
                Err(problem) => return Ok(problem.into_response(grpc)),
            };
            let in_flight = Arc::new(in_flight);
            let token = token_of_sequenced_request(&head.headers);
            // From now on only the target knows the outcome.
            in_flight.set_outcome(RequestOutcome::Unknown);
            let call = inner.call(Request::from_parts(head, RequestBody::new(body, Some(in_flight.clone()))));
            let response = match timeout_at(in_flight.until, call).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    GateCounters::count(&shared.counters.unknown);
                    return Err(error);
                }
                Err(_) => {
                    GateCounters::count(&shared.counters.unknown);
                    let message = "the service did not reply in time; read there whether the request was applied";
                    return Ok(FenceProblem::new("INDETERMINATE", message).into_response(grpc));
                }
            };
            if let Some(token) = token.filter(|_| head_reports_success(&response)) {
                in_flight.record_applied(&token).await;
            }
            Ok(shared.track_response(response, in_flight))
        })
    }
}

/// The decision about a request.
enum GateDecision {
    Admitted(InFlight),
    Exempt,
    Claimed(Number),
    /// It is a probe of a path that needs no token.
    Probed,
    /// It was applied earlier.
    Duplicate(u64),
}

impl FenceShared {
    async fn admit(&self, head: &Parts) -> Result<GateDecision, FenceProblem> {
        let (path, headers) = (head.uri.path(), &head.headers);
        if head.method == Method::POST && (path == CLAIM_PATH || path == CLAIM_GRPC_PATH) {
            return self.claim(headers).await.map(GateDecision::Claimed);
        }
        if head.method.as_str() == PROBE_METHOD {
            return self.probe(head);
        }
        let guarded_by = self.rules.id_index(&head.method, path, headers).map_err(|error| {
            self.malformed(FenceProblem::new("INVALID_ARGUMENT", error.detail).with_field(error.field, "ambiguous"))
        })?;
        let Some(index) = guarded_by else {
            GateCounters::count(&self.counters.exempt);
            return Ok(GateDecision::Exempt);
        };
        let gate = &self.gates[index];
        let token = self.token(headers)?;
        let sequence = self.sequence(headers)?;
        let admitted = async { gate.enter(token, gate.fence_id.parse_token(token)?, sequence).await };
        match self.record(gate, Operation::Write, admitted.await) {
            Ok(in_flight) => Ok(GateDecision::Admitted(in_flight)),
            Err(GateRejection::AlreadyApplied { last }) => Ok(GateDecision::Duplicate(last)),
            Err(rejection) => Err(rejection.into()),
        }
    }

    /// Replies to a probe as to a request without a token, with all rules. Nothing is forwarded, counted or reported.
    fn probe(&self, head: &Parts) -> Result<GateDecision, FenceProblem> {
        match self.rules.id_index(&head.method, head.uri.path(), &head.headers) {
            Ok(None) => Ok(GateDecision::Probed),
            _ => {
                let absent = Error::from(FenceRefusal::Token(TokenError::Absent));
                Err(FenceProblem::from(&absent).with("rules", self.rules.report()))
            }
        }
    }

    /// Claims with the token. It determines the gate itself.
    async fn claim(&self, headers: &HeaderMap) -> Result<Number, FenceProblem> {
        let token = self.token(headers)?;
        let matches = |gate: &&Arc<Gate>| gate.fence_id.parse_token(token).is_ok();
        let gate = self.gates.iter().find(matches).unwrap_or(&self.gates[0]);
        let claimed = async {
            let presented = gate.fence_id.parse_token(token)?;
            gate.claim(token, presented).await?;
            Ok(presented.number)
        };
        self.record(gate, Operation::Claim, claimed.await).map_err(FenceProblem::from)
    }

    /// Records a decision.
    fn record<T: TokenNumber>(
        &self,
        gate: &Gate,
        operation: Operation,
        result: Result<T, GateRejection>,
    ) -> Result<T, GateRejection> {
        match result {
            Ok(admitted) => {
                let admission = Admission { number: admitted.number(), previous_incarnation: None };
                self.events.record(&gate.fence_id, operation, Ok(&admission));
                Ok(admitted)
            }
            Err(GateRejection::Fence(error)) => {
                self.events.record(&gate.fence_id, operation, Err(&error));
                Err(GateRejection::Fence(error))
            }
            Err(rejection) => {
                GateCounters::count(match rejection {
                    GateRejection::AlreadyApplied { .. } => &self.counters.duplicates,
                    GateRejection::Unknown => &self.counters.unknown,
                    _ => &self.counters.blocked,
                });
                Err(rejection)
            }
        }
    }

    /// The token of a request. A missing token is empty text, which the fence rejects as absent.
    fn token<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, FenceProblem> {
        let mut presented = headers.get_all(LEASE_TOKEN).iter();
        let first = presented.next().map_or(Ok(""), |value| value.to_str());
        if presented.next().is_some() {
            let message = "lease-token: the header occurs more than once; send one token";
            return Err(
                self.malformed(FenceProblem::new("INVALID_ARGUMENT", message).with_field(LEASE_TOKEN, "more than one"))
            );
        }
        // A value that is not text is not a token.
        Ok(first.unwrap_or("?"))
    }

    fn sequence(&self, headers: &HeaderMap) -> Result<Option<u64>, FenceProblem> {
        let mut presented = headers.get_all(LEASE_SEQUENCE).iter();
        let Some(first) = presented.next() else { return Ok(None) };
        let number = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match (number.and_then(|text| text.parse().ok()), presented.next()) {
            (Some(sequence), None) => Ok(Some(sequence)),
            _ => {
                let message =
                    "lease-sequence: not an integer below 2^64; number the writes of a lease upward, for example 17";
                Err(self.malformed(
                    FenceProblem::new("INVALID_ARGUMENT", message).with_field(LEASE_SEQUENCE, "not a number"),
                ))
            }
        }
    }

    fn malformed(&self, problem: FenceProblem) -> FenceProblem {
        GateCounters::count(&self.counters.malformed);
        problem
    }

    /// Handles a response of the service. The request is in flight until the response is complete.
    fn track_response<R: Body>(&self, response: Response<R>, in_flight: Arc<InFlight>) -> Response<ResponseBody<R>> {
        let outcome = match response.extensions().get::<UpstreamOutcome>() {
            Some(UpstreamOutcome::Unknown) => {
                GateCounters::count(&self.counters.unknown);
                return response.map(|body| ResponseBody::from_service(body, None));
            }
            Some(UpstreamOutcome::NotSent) => RequestOutcome::NotApplied,
            None if response.status().as_u16() < 400 => {
                outcome_from_trailers(response.headers(), RequestOutcome::Applied)
            }
            // A gateway behind the fence does not know what its service did.
            None if matches!(response.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) => {
                RequestOutcome::Unknown
            }
            None => RequestOutcome::NotApplied,
        };
        let length = response.headers().get(header::CONTENT_LENGTH);
        let remaining = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let empty =
            matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || remaining == Some(0);
        let complete = empty || response.body().is_end_stream();
        if complete {
            in_flight.set_outcome(outcome);
        }
        let tracker = (!complete).then(|| OutcomeTracker::new(in_flight, remaining, outcome));
        response.map(|body| ResponseBody::from_service(body, tracker))
    }
}

/// The token of a request that has a sequence.
fn token_of_sequenced_request(headers: &HeaderMap) -> Option<String> {
    headers.get(LEASE_SEQUENCE).and(headers.get(LEASE_TOKEN)?.to_str().ok()).map(str::to_owned)
}

/// Whether the head of a response reports success. In gRPC only the trailers do.
fn head_reports_success<R>(response: &Response<R>) -> bool {
    let grpc = is_grpc(response.headers());
    response.status().as_u16() < 400 && !grpc && response.extensions().get::<UpstreamOutcome>().is_none()
}

/// An admitted request, which knows its token number.
trait TokenNumber {
    fn number(&self) -> Number;
}

impl TokenNumber for Number {
    fn number(&self) -> Number {
        *self
    }
}

impl TokenNumber for InFlight {
    fn number(&self) -> Number {
        self.presented
    }
}

fn with_mark_header<B>(mut response: Response<ResponseBody<B>>, mark: Number) -> Response<ResponseBody<B>> {
    response.headers_mut().insert("lease-mark", header::HeaderValue::from(mark.get()));
    response
}

/// The response to a duplicate. It is not a failure: the request was applied.
fn duplicate_response<B>(last: u64, grpc: bool) -> Response<ResponseBody<B>> {
    let mut response = if grpc {
        let mut response = Response::new(ResponseBody::from_fence(None, None));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
        // ALREADY_EXISTS: the first response was not stored, so there is no message to return.
        response.headers_mut().insert("grpc-status", header::HeaderValue::from_static("6"));
        response
    } else {
        json_response(StatusCode::OK, &json!({ "already_applied": true, "last": last.to_string() }))
    };
    response.headers_mut().insert(LEASE_APPLIED, header::HeaderValue::from(last));
    response
}
