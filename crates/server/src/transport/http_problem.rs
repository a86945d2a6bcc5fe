//! Problems over HTTP, as `application/problem+json`.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::POSITION;
use leasehold_wire::json::{PROBLEM_TYPE, ProblemBody};
use leasehold_wire::{problem, v1};

/// A problem as an HTTP response.
pub struct HttpProblem(pub Box<v1::Problem>);

/// The problem of a response, as an extension for the layer that counts problems.
#[derive(Clone)]
pub struct ProblemExt(pub Box<v1::Problem>);

impl From<v1::Problem> for HttpProblem {
    fn from(problem: v1::Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<Refusal> for HttpProblem {
    fn from(refusal: Refusal) -> Self {
        problem(&refusal).into()
    }
}

impl HttpProblem {
    /// The response to a refusal that depends on a journal position.
    pub fn with_position(self, position: u64) -> Response {
        let mut response = self.into_response();
        response.headers_mut().insert(HeaderName::from_static(POSITION), position.into());
        response
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let retry_after = self.0.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1).to_string());
        let extension = ProblemExt(self.0.clone());
        let body = ProblemBody::from(*self.0);
        let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(body)).into_response();
        // `Json` sets its own content type.
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(PROBLEM_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(seconds) = retry_after.and_then(|text| text.parse().ok()) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(extension);
        response
    }
}
