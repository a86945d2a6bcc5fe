//! Endpoints for machines: liveness, readiness, metrics and the OpenAPI document.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::grantor::{Query, QueryAnswer};
use leasehold_wire::Code;

use super::extract::{NoQuery, StrictQuery};
use crate::api::{Api, openapi};
use crate::metrics::GrantorStats;
use crate::transport::HttpProblem;

/// Time for a turn to answer a readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: ready if a turn answers.
pub async fn ready(State(api): State<Api>) -> Response {
    match tokio::time::timeout(READY_TIMEOUT, api.confirm()).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable\n").into_response(),
    }
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Api>) -> Response {
    let stats = |answer: QueryAnswer<'_>| match answer {
        QueryAnswer::Everything(grantor) => Some(GrantorStats::read(grantor)),
        _ => None,
    };
    match api.query(0, Query::Metrics, stats).await {
        Ok((grantor, _)) => openmetrics(api.metrics.encode_with(&grantor)),
        Err(problem) if problem.known_code() == Some(Code::PermissionDenied) => {
            HttpProblem::from(problem).into_response()
        }
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.message).into_response(),
    }
}

/// Metrics as a response.
pub fn openmetrics(text: String) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// `GET /v1/openapi.json`.
pub async fn openapi_document(_: StrictQuery<NoQuery>) -> Result<Response, HttpProblem> {
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::document()).into_response())
}
