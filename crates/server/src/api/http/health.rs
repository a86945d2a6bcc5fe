//! What machines look at: is it alive, is it ready, how does it do.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::Api;
use crate::meter::Looked;

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: ready when a turn answers.
pub async fn ready(State(api): State<Api>) -> Response {
    match tokio::time::timeout(Duration::from_secs(2), api.look(|grantor| grantor.time())).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "no turn has answered for two seconds\n").into_response(),
    }
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Api>) -> Response {
    match api.look(Looked::at).await {
        Ok(looked) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], api.meter.text(&looked)).into_response()
        }
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.message).into_response(),
    }
}
