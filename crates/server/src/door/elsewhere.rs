//! What a server says that does not lead: that it lives, that it stands by, and who decides. Whoever asks for it may look
//! at what it has followed so far (E1).

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use leasehold_wire::headers::STANDBY;
use leasehold_wire::{Code, v1};
use tokio::sync::watch;
use tower::ServiceExt;

use super::refused::speaks_grpc;
use crate::api::{Api, Problem, behind};

/// What may be looked at where another server leads, by the names of the calls.
const CALLS: [&str; 12] = [
    "Show",
    "List",
    "HeldBy",
    "Waiters",
    "Deadlocks",
    "History",
    "State",
    "Queue",
    "Usage",
    "Status",
    "Charters",
    "Fences",
];
/// The same over HTTP, by the segment behind `/v1/`.
const PATHS: [&str; 9] = ["leases", "holders", "waiters", "ends", "deadlocks", "usage", "status", "charters", "fences"];
const SERVICE: &str = "/leasehold.v1.Leasehold/";

/// Everything that is served by whoever stands by.
pub fn routes(api: Api, inside: Router, leader: watch::Receiver<Option<String>>) -> Router {
    let figures = {
        let meter = api.meter.clone();
        move || {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let text = meter.written();
            async move { ([(header::CONTENT_TYPE, kind)], text) }
        }
    };
    let told = move |request: Request<Body>| {
        let refused = refused(&request, &api, &leader);
        let (inside, grpc) = (inside.clone(), speaks_grpc(request.headers()));
        if let Some(problem) = &refused {
            api.meter.refused().at_door(problem);
        }
        async move {
            match refused {
                Some(problem) => told(problem, grpc),
                None => inside.oneshot(request).await.into_response(),
            }
        }
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

/// Why a request is not answered here, if it is not.
fn refused(request: &Request<Body>, api: &Api, leader: &watch::Receiver<Option<String>>) -> Option<v1::Problem> {
    let path = request.uri().path();
    let (call, segment) = (path.strip_prefix(SERVICE), path.strip_prefix("/v1/"));
    // What a server is to the others is asked of each.
    if call == Some("Cluster") || path == "/v1/cluster" || path == "/v1/openapi.json" {
        return None;
    }
    let look = match (call, segment) {
        (Some(call), _) => CALLS.contains(&call),
        (None, Some(rest)) => {
            request.method() == Method::GET && PATHS.contains(&rest.split('/').next().unwrap_or_default())
        }
        (None, None) => false,
    };
    let Some(least) = request.headers().get(STANDBY).filter(|_| look) else {
        return Some(elsewhere(leader.borrow().as_deref()));
    };
    match (least_position(least), api.following.as_ref().map_or(0, |following| following.position())) {
        (Some(least), position) if least <= position => None,
        (Some(least), position) => Some(behind(least, position)),
        (None, _) => {
            let reason = "the least journal position from which a standby may answer, 0 for any";
            let told = v1::Problem::of(Code::InvalidArgument, format!("{STANDBY}: {reason}"));
            Some(v1::Problem { field: STANDBY.into(), reason: reason.into(), ..told })
        }
    }
}

fn least_position(text: &HeaderValue) -> Option<u64> {
    text.to_str().ok()?.parse().ok()
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
