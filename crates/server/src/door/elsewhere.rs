//! What a server says that does not lead: that it lives, that it stands by, and who decides.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use leasehold_wire::{Code, v1};
use tokio::sync::watch;

use super::refused::speaks_grpc;
use crate::api::Problem;
use crate::meter::Meter;

/// Everything that is served by whoever stands by.
pub fn routes(meter: Arc<Meter>, leader: watch::Receiver<Option<String>>) -> Router {
    let figures = {
        let meter = meter.clone();
        move || {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let text = meter.written();
            async move { ([(header::CONTENT_TYPE, kind)], text) }
        }
    };
    let told = move |request: Request<Body>| {
        let problem = elsewhere(leader.borrow().as_deref());
        meter.refused().at_door(&problem);
        let grpc = speaks_grpc(request.headers());
        async move { told(problem, grpc) }
    };
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(|| async { "standby\n" }))
        .route("/metrics", get(figures))
        .fallback(told)
}

fn told(problem: v1::Problem, grpc: bool) -> Response {
    if grpc { leasehold_wire::status(problem).into_http() } else { Problem::from(problem).into_response() }
}

/// Who decides, if that is known.
fn elsewhere(leader: Option<&str>) -> v1::Problem {
    match leader {
        Some(leader) => {
            let told = format!("this server stands by, and nothing happened; ask the one that leads, at {leader}");
            v1::Problem { leader: leader.to_owned(), ..v1::Problem::of(Code::NotLeader, told) }
        }
        None => {
            let told = "this server stands by, and nobody leads yet; ask again in a moment";
            v1::Problem { retry_after_ms: Some(200), ..v1::Problem::of(Code::NotLeader, told) }
        }
    }
}
