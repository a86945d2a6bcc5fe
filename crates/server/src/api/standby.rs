//! Endpoints of a standby: health, metrics and cluster status, queries of the replicated state (E1), and `NOT_LEADER` for the rest.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method};
use axum::response::IntoResponse;
use axum::routing::get;
use leasehold_core::access::Action;
use leasehold_wire::headers::STANDBY;
use leasehold_wire::{Code, v1};
use tokio::sync::watch;
use tower::ServiceExt;

use super::Api;
use super::http::openmetrics;
use super::problems::position_not_reached;
use crate::transport::{HttpProblem, OPEN_METHODS, SERVICE_PATH, error_layer::invalid, is_grpc, problem_response};

/// Queries that a standby answers, by gRPC method.
const QUERY_METHODS: [&str; 13] = [
    "Show",
    "List",
    "ListLeases",
    "HeldBy",
    "Waiters",
    "Deadlocks",
    "History",
    "State",
    "Queue",
    "Usage",
    "Status",
    "Charters",
    "Coverage",
];
/// Queries that a standby answers over HTTP, by the first path segment after `/v1/`.
const QUERY_PATHS: [&str; 12] = [
    "leases",
    "held-leases",
    "holders",
    "waiters",
    "ended-leases",
    "state",
    "queues",
    "deadlocks",
    "usage",
    "status",
    "charters",
    "coverage",
];

/// Paths that every server answers from what it knows of itself.
const OWN_PATHS: [&str; 3] = ["/v1/cluster", "/v1/keys", "/metrics"];

/// Paths that every server answers for anyone.
const OPEN_PATHS: [&str; 3] = ["/v1/openapi.json", "/healthz", "/readyz"];

/// Routes of a standby; `router` has the endpoints that it shares with a leader.
pub fn routes(api: Api, router: Router, leader: watch::Receiver<Option<String>>) -> Router {
    let metrics = {
        let api = api.clone();
        move || async move {
            match api.authorize_current(Action::Metrics) {
                Ok(_) => openmetrics(api.metrics.encode()),
                Err(problem) => HttpProblem(problem).into_response(),
            }
        }
    };
    let dispatch = move |request: Request<Body>| {
        let rejection = rejection(&request, &api, &leader);
        let (router, grpc) = (router.clone(), is_grpc(request.headers()));
        if let Some(problem) = &rejection {
            api.metrics.rejections().problem(problem);
        }
        async move {
            match rejection {
                Some(problem) => problem_response(problem, grpc),
                None => router.oneshot(request).await.into_response(),
            }
        }
    };
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }).fallback(dispatch.clone()))
        .route("/readyz", get(|| async { "standby\n" }).fallback(dispatch.clone()))
        .route("/metrics", get(metrics).fallback(dispatch.clone()))
        .fallback(dispatch)
}

/// The reason why a standby does not answer a request; `None` if it does.
fn rejection(request: &Request<Body>, api: &Api, leader: &watch::Receiver<Option<String>>) -> Option<v1::Problem> {
    let path = request.uri().path();
    let (method, rest) = (path.strip_prefix(SERVICE_PATH), path.strip_prefix("/v1/"));
    if OPEN_PATHS.contains(&path) || OPEN_METHODS.contains(&path) {
        return None;
    }
    // Any grant is enough to learn which server leads.
    if let Err(denied) = api.authorize_current(Action::Cluster) {
        return Some(*denied);
    }
    // Pages say that they are those of a standby.
    if request.method() == Method::GET && (path == "/" || path.starts_with("/ui/")) {
        return None;
    }
    // Every server reports its own role, and the methods that these paths allow.
    if matches!(method, Some("Cluster" | "Keys")) || OWN_PATHS.contains(&path) {
        return None;
    }
    let is_query = match (method, rest) {
        (Some(method), _) => QUERY_METHODS.contains(&method),
        (None, Some(rest)) => {
            request.method() == Method::GET && QUERY_PATHS.contains(&rest.split('/').next().unwrap_or_default())
        }
        (None, None) => false,
    };
    let Some(header) = request.headers().get(STANDBY).filter(|_| is_query) else {
        return Some(not_leader(leader.borrow().as_deref()));
    };
    let position = api.standby.as_ref().map_or(0, |standby| standby.position());
    match min_position(header) {
        Some(min) if min <= position => None,
        Some(min) => Some(position_not_reached(min, position)),
        None => Some(invalid(STANDBY, "the lowest journal position that a standby may answer from, 0 for any")),
    }
}

fn min_position(header: &HeaderValue) -> Option<u64> {
    header.to_str().ok()?.parse().ok()
}

/// Refers the caller to the leader, if it is known.
pub(super) fn not_leader(leader: Option<&str>) -> v1::Problem {
    match leader {
        Some(leader) => {
            let message =
                format!("this server is a standby, so nothing happened; send the request to the leader at {leader}");
            v1::Problem { leader: leader.to_owned(), ..v1::Problem::of(Code::NotLeader, message) }
        }
        None => {
            let message = "this server is a standby and no leader is known; retry after a moment";
            v1::Problem { retry_after_ms: Some(200), ..v1::Problem::of(Code::NotLeader, message) }
        }
    }
}
