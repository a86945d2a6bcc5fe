//! JSON responses with the journal position they depend on (E1), and heartbeats of streams.

use std::time::Duration;

use axum::Json;
use axum::http::HeaderName;
use axum::response::sse::KeepAlive;
use axum::response::{IntoResponse, Response};
use leasehold_wire::headers::POSITION;
use serde::Serialize;

use crate::transport::HttpProblem;

/// A JSON body and the journal position that it depends on.
pub struct WithPosition<T> {
    body: T,
    position: u64,
}

impl<T> WithPosition<T> {
    /// A body at a position.
    pub fn new(body: T, position: u64) -> Self {
        Self { body, position }
    }

    /// The result of a query, converted to its JSON body.
    pub fn of<M: Into<T>>((result, position): (M, u64)) -> Self {
        Self { body: result.into(), position }
    }

    /// The result of a query as the result of a handler.
    pub fn from_query<M: Into<T>>(result: (M, u64)) -> HttpResult<T> {
        Ok(Self::of(result))
    }
}

impl<T> WithPosition<Vec<T>> {
    /// A list, with each item converted to its JSON body.
    pub fn list<M: Into<T>>(items: Vec<M>, position: u64) -> Self {
        Self { body: items.into_iter().map(Into::into).collect(), position }
    }
}

impl<T: Serialize> IntoResponse for WithPosition<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.body).into_response();
        response.headers_mut().insert(HeaderName::from_static(POSITION), self.position.into());
        response
    }
}

/// Time between two comments on a quiet stream of events.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Comments on a quiet stream of events, so that both sides notice a connection that is gone.
pub fn heartbeat() -> KeepAlive {
    KeepAlive::new().interval(HEARTBEAT).text("heartbeat")
}

/// The result of a handler.
pub type HttpResult<T> = Result<WithPosition<T>, HttpProblem>;
