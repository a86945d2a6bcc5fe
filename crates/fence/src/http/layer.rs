//! The gate around a service: what a request shows is asked before, and it is inside until its answer is through.

use std::error::Error as StdError;
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

use super::Shared;
use super::body::{Answered, Carried, Ends, by_trailers};
use super::figures::Figures;
use super::gate::{Denied, Gate, Inside};
use super::standing::Fate;
use super::told::{Problem, in_grpc, in_json, speaks_grpc};
use crate::Act;
use crate::place::Passed;

/// Carries the token's text.
pub const LEASE_TOKEN: &str = "lease-token";
/// Carries the request's number inside its hold, where late duplicates must not be applied twice.
pub const LEASE_SEQUENCE: &str = "lease-sequence";
/// In the answer to a late duplicate: the last sequence that was let through.
pub const LEASE_APPLIED: &str = "lease-applied";
/// Where a holder claims: a POST with its token, and nothing reaches the service.
pub const CLAIM: &str = "/-/claim";
/// The same as a gRPC method, from an empty message to an empty message.
pub const CLAIM_GRPC: &str = "/leasehold.Fence/Claim";

/// What a service may say about a request that it did not answer itself, in the extensions of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing of it reached the target.
    NotBegun,
    /// It may have been applied, or still be. The gate stays shut for the bound.
    Unknown,
}

/// Puts a service behind the fence.
#[derive(Clone, Debug)]
pub struct FenceLayer(pub(super) Arc<Shared>);

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, shared: self.0.clone() }
    }
}

/// A service behind the fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    shared: Arc<Shared>,
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<Carried<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<Answered<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was found ready is the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let shared = self.shared.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let grpc = speaks_grpc(&head.headers);
            let inside = match shared.admit(&head).await {
                Ok(Admitted::Inside(inside)) => inside,
                Ok(Admitted::Free) => {
                    let answer = inner.call(Request::from_parts(head, Carried::new(body, None))).await?;
                    return Ok(answer.map(|body| Answered::by_target(body, None)));
                }
                Ok(Admitted::Claimed(mark)) if grpc => return Ok(claimed(in_grpc(), mark)),
                Ok(Admitted::Claimed(mark)) => {
                    return Ok(claimed(in_json(StatusCode::OK, &json!({ "mark": mark.to_string() })), mark));
                }
                Ok(Admitted::Before(last)) => return Ok(before(last, grpc)),
                Err(problem) => return Ok(problem.answer(grpc)),
            };
            let inside = Arc::new(inside);
            let token = sequenced(&head.headers);
            // From here on only the target can say what becomes of it.
            inside.is(Fate::Unknown);
            let call = inner.call(Request::from_parts(head, Carried::new(body, Some(inside.clone()))));
            let response = match timeout_at(inside.until, call).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    Figures::count(&shared.figures.unknown);
                    return Err(error);
                }
                Err(_) => {
                    Figures::count(&shared.figures.unknown);
                    let told = "the target did not answer within the bound; read there whether it was applied";
                    return Ok(Problem::new("INDETERMINATE", told).answer(grpc));
                }
            };
            if let Some(token) = token.filter(|_| done(&response)) {
                inside.remembered(&token).await;
            }
            Ok(shared.heard(response, inside))
        })
    }
}

/// What becomes of a request at the fence.
enum Admitted {
    Inside(Inside),
    Free,
    Claimed(Number),
    /// It was applied before.
    Before(u64),
}

impl Shared {
    async fn admit(&self, head: &Parts) -> Result<Admitted, Problem> {
        let (path, headers) = (head.uri.path(), &head.headers);
        if head.method == Method::POST && (path == CLAIM || path == CLAIM_GRPC) {
            return self.claim(headers).await.map(Admitted::Claimed);
        }
        let place = self.rules.of(&head.method, path, headers).map_err(|_| {
            let told = "path: it has segments that lead elsewhere; send it without . and .. and empty segments";
            self.malformed(Problem::new("INVALID_ARGUMENT", told).about("path", "winding"))
        })?;
        let Some(place) = place else {
            Figures::count(&self.figures.free);
            return Ok(Admitted::Free);
        };
        let gate = &self.gates[place];
        let token = self.token(headers)?;
        let sequence = self.sequence(headers)?;
        let entered = async { gate.enter(token, gate.place.read(token)?, sequence).await };
        match self.told(gate, Act::Write, entered.await) {
            Ok(inside) => Ok(Admitted::Inside(inside)),
            Err(Denied::AlreadyApplied { last }) => Ok(Admitted::Before(last)),
            Err(denied) => Err(denied.into()),
        }
    }

    /// The token says itself which of the places it is for.
    async fn claim(&self, headers: &HeaderMap) -> Result<Number, Problem> {
        let token = self.token(headers)?;
        let fits = |gate: &&Arc<Gate>| gate.place.read(token).is_ok();
        let gate = self.gates.iter().find(fits).unwrap_or(&self.gates[0]);
        let claimed = async {
            let shown = gate.place.read(token)?;
            gate.claim(token, shown).await?;
            Ok(shown.number)
        };
        self.told(gate, Act::Claim, claimed.await).map_err(Problem::from)
    }

    /// Counts an answer and tells the observer.
    fn told<T: Shows>(&self, gate: &Gate, act: Act, answer: Result<T, Denied>) -> Result<T, Denied> {
        let (name, slot) = (&gate.place.name, gate.place.guarded.slot);
        match answer {
            Ok(admitted) => {
                self.watch.told(name, slot, act, Ok(&Passed { number: admitted.number(), left: None }));
                Ok(admitted)
            }
            Err(Denied::Fence(error)) => {
                self.watch.told(name, slot, act, Err(&error));
                Err(Denied::Fence(error))
            }
            Err(denied) => {
                Figures::count(match denied {
                    Denied::AlreadyApplied { .. } => &self.figures.duplicates,
                    Denied::Unknown => &self.figures.unknown,
                    _ => &self.figures.blocked,
                });
                Err(denied)
            }
        }
    }

    /// The one token that is shown; none reads as an empty one, which the fence refuses as absent.
    fn token<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let mut shown = headers.get_all(LEASE_TOKEN).iter();
        let first = shown.next().map_or(Ok(""), |value| value.to_str());
        if shown.next().is_some() {
            let told = "lease-token: it stands there more than once; show the one token of this hold";
            return Err(self.malformed(Problem::new("INVALID_ARGUMENT", told).about(LEASE_TOKEN, "more than one")));
        }
        // What is not text is not a token either.
        Ok(first.unwrap_or("?"))
    }

    fn sequence(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let mut shown = headers.get_all(LEASE_SEQUENCE).iter();
        let Some(first) = shown.next() else { return Ok(None) };
        let number = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match (number.and_then(|text| text.parse().ok()), shown.next()) {
            (Some(sequence), None) => Ok(Some(sequence)),
            _ => {
                let told =
                    "lease-sequence: not one whole number below 2^64; number the writes of a hold upwards, like 17";
                Err(self.malformed(Problem::new("INVALID_ARGUMENT", told).about(LEASE_SEQUENCE, "not a number")))
            }
        }
    }

    fn malformed(&self, problem: Problem) -> Problem {
        Figures::count(&self.figures.malformed);
        problem
    }

    /// The service answered. The request is inside until the answer is through.
    fn heard<R: Body>(&self, response: Response<R>, inside: Arc<Inside>) -> Response<Answered<R>> {
        let fate = match response.extensions().get::<Outcome>() {
            Some(Outcome::Unknown) => {
                Figures::count(&self.figures.unknown);
                return response.map(|body| Answered::by_target(body, None));
            }
            Some(Outcome::NotBegun) => Fate::NotApplied,
            None if response.status().as_u16() < 400 => by_trailers(response.headers(), Fate::Applied),
            None => Fate::NotApplied,
        };
        let length = response.headers().get(header::CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let bare = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || left == Some(0);
        let over = bare || response.body().is_end_stream();
        if over {
            inside.is(fate);
        }
        let ends = (!over).then(|| Ends::new(inside, left, fate));
        response.map(|body| Answered::by_target(body, ends))
    }
}

/// The token of a request that carries a sequence.
fn sequenced(headers: &HeaderMap) -> Option<String> {
    headers.get(LEASE_SEQUENCE).and(headers.get(LEASE_TOKEN)?.to_str().ok()).map(str::to_owned)
}

/// Whether the head of an answer says that it was done. In gRPC only the end does.
fn done<R>(response: &Response<R>) -> bool {
    let grpc = speaks_grpc(response.headers());
    response.status().as_u16() < 400 && !grpc && response.extensions().get::<Outcome>().is_none()
}

/// What was let in, by number.
trait Shows {
    fn number(&self) -> Number;
}

impl Shows for Number {
    fn number(&self) -> Number {
        *self
    }
}

impl Shows for Inside {
    fn number(&self) -> Number {
        self.shown
    }
}

fn claimed<B>(mut response: Response<Answered<B>>, mark: Number) -> Response<Answered<B>> {
    response.headers_mut().insert("lease-mark", header::HeaderValue::from(mark.get()));
    response
}

/// The answer to a late duplicate. It is no failure: what was asked was done.
fn before<B>(last: u64, grpc: bool) -> Response<Answered<B>> {
    let mut response = if grpc {
        let mut response = Response::new(Answered::told(None, None));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
        // There is no message to answer with: what was answered the first time is not kept.
        response.headers_mut().insert("grpc-status", header::HeaderValue::from_static("6"));
        response
    } else {
        in_json(StatusCode::OK, &json!({ "already_applied": true, "last": last.to_string() }))
    };
    response.headers_mut().insert(LEASE_APPLIED, header::HeaderValue::from(last));
    response
}
