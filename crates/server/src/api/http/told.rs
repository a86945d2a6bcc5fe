//! Answers as JSON, refusals as problems.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::POSITION;
use leasehold_wire::json::{PROBLEM_TYPE, ProblemBody};
use leasehold_wire::{problem, v1};
use serde::Serialize;

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
