//! A connection that asks too often is told so, before anybody looks at what it asks.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refused::speaks_grpc;
use crate::api::Problem;
use crate::pace::Walk;

/// What is never refused for coming too often: it keeps or ends a hold, or only looks whether the server is well. A stream
/// counts its requests itself.
const FREE: [&str; 8] = [
    "/leasehold.v1.Leasehold/Session",
    "/leasehold.v1.Leasehold/Renew",
    "/leasehold.v1.Leasehold/RenewSession",
    "/leasehold.v1.Leasehold/Release",
    "/leasehold.v1.Leasehold/Drained",
    "/healthz",
    "/readyz",
    "/metrics",
];
/// The same of the paths that end in a verb.
const FREE_VERBS: [&str; 3] = [":renew", ":release", ":drained"];

/// Lets a request through unless its connection goes too fast.
pub async fn paced(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if FREE.contains(&path) || FREE_VERBS.iter().any(|verb| path.ends_with(verb)) {
        return next.run(request).await;
    }
    match request.extensions().get::<Arc<Walk>>().map_or(Ok(()), |walk| walk.step()) {
        Ok(()) => next.run(request).await,
        Err(problem) if speaks_grpc(request.headers()) => leasehold_wire::status(*problem).into_http(),
        Err(problem) => Problem::from(*problem).into_response(),
    }
}
