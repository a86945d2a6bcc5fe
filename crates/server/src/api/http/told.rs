//! Answers as JSON, refusals as problems.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, Key, LEASE_TOKEN, POSITION, TOKEN_SEEN};
use leasehold_wire::json::{PROBLEM_TYPE, ProblemBody};
use leasehold_wire::{Issuer, problem, read_shown, v1};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Marks;

/// A refusal on its way out.
pub struct Problem(pub Box<v1::Problem>);

/// The refusal that an answer carries, for whoever counts at the door.
#[derive(Clone)]
pub struct Refused(pub Box<v1::Problem>);

impl From<v1::Problem> for Problem {
    fn from(problem: v1::Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        problem(&refusal).into()
    }
}

impl Problem {
    /// A refusal that depends on a journal position.
    pub fn at(self, position: u64) -> Response {
        let mut response = self.into_response();
        response.headers_mut().insert(HeaderName::from_static(POSITION), position.into());
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after = self.0.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1).to_string());
        let refused = Refused(self.0.clone());
        let body = ProblemBody::from(*self.0);
        let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_TYPE)], Json(body)).into_response();
        // Json sets its own type; a problem has another.
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(PROBLEM_TYPE));
        if let Some(seconds) = retry_after.and_then(|text| text.parse().ok()) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(refused);
        response
    }
}

/// An answer as JSON, with the journal position that it depends on (E1).
pub struct At<T> {
    body: T,
    position: u64,
}

impl<T> At<T> {
    /// A body at a position.
    pub fn new(body: T, position: u64) -> Self {
        Self { body, position }
    }

    /// What was seen, in JSON's words.
    pub fn told<M: Into<T>>((seen, position): (M, u64)) -> Told<T> {
        Ok(Self { body: seen.into(), position })
    }
}

impl<T> At<Vec<T>> {
    /// A list of what was seen.
    pub fn all<M: Into<T>>(seen: Vec<M>, position: u64) -> Self {
        Self { body: seen.into_iter().map(Into::into).collect(), position }
    }
}

impl<T: Serialize> IntoResponse for At<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.body).into_response();
        response.headers_mut().insert(HeaderName::from_static(POSITION), self.position.into());
        response
    }
}

/// An answer, or a problem.
pub type Told<T> = Result<At<T>, Problem>;

/// Reads a body, strictly.
pub fn read<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    leasehold_wire::json::read(bytes).map_err(Problem)
}

/// What stands in the headers of a request.
pub fn marks(headers: &HeaderMap, issuer: &Issuer) -> Result<Marks, Problem> {
    let key = match text(headers, IDEMPOTENCY_KEY)? {
        None => None,
        Some(key) => Some(Key::parse(key).map_err(|_| Refusal::Invalid {
            field: IDEMPOTENCY_KEY,
            reason: "<session>:<sequence>, as in 17.0:42; without a session there is no retry protection",
        })?),
    };
    let seen = read_shown(text(headers, TOKEN_SEEN)?.unwrap_or_default(), issuer)?;
    Ok(Marks { key, seen })
}

/// The token in the header, or in the body; two that differ are refused.
pub fn token(headers: &HeaderMap, body: &mut String) -> Result<(), Problem> {
    let Some(header) = text(headers, LEASE_TOKEN)? else {
        return Ok(());
    };
    if !body.is_empty() && body != header {
        return Err(
            Refusal::Invalid { field: LEASE_TOKEN, reason: "differs from the token in the body; send one" }.into()
        );
    }
    *body = header.to_owned();
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Refusal::Invalid { field: name, reason: "plain text" }.into()),
        },
    }
}
