//! Endpoints for machines: liveness, readiness, metrics and the OpenAPI document.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::grantor::{Grantor, Query, QueryAnswer};
use leasehold_core::refusal::Limit;
use leasehold_wire::Code;

use super::extract::{NoQuery, StrictQuery};
use crate::access::AccessRules;
use crate::api::{Api, openapi};
use crate::metrics::GrantorStats;
use crate::transport::{HttpProblem, share};

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: ready if a turn answers.
pub async fn ready(State(api): State<Api>) -> Response {
    match api.is_ready().await {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "unavailable\n").into_response(),
    }
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Api>) -> Response {
    let rules = api.access.rules();
    let stats = move |answer: QueryAnswer<'_>| match answer {
        QueryAnswer::Everything(grantor) => Some((GrantorStats::read(grantor), highest_shares(grantor, &rules))),
        _ => None,
    };
    match api.query(0, Query::Metrics, stats).await {
        Ok(((grantor, shares), _)) => {
            for (limit, share) in shares.into_iter().chain(api.access.traffic().highest_shares()) {
                api.metrics.identities().set(limit, share);
            }
            openmetrics(api.metrics.encode_with(&grantor))
        }
        Err(problem) if problem.known_code() == Some(Code::PermissionDenied) => {
            HttpProblem::from(problem).into_response()
        }
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.message).into_response(),
    }
}

/// The highest share of each limit on the state that one identity uses.
fn highest_shares(grantor: &Grantor, rules: &AccessRules) -> [(&'static str, f64); 11] {
    let mut highest = [
        Limit::IdentitySessions,
        Limit::IdentityKeys,
        Limit::IdentityLeases,
        Limit::IdentityWaiters,
        Limit::IdentityMetadata,
        Limit::IdentityCharters,
        Limit::IdentityTargets,
        Limit::IdentityMessages,
        Limit::IdentityMessageBytes,
        Limit::IdentityCacheGrants,
        Limit::IdentityStateBytes,
    ]
    .map(|limit| (limit.word(), 0.0));
    for (principal, has) in grantor.identity_usages() {
        let max = rules.rights_of(principal).limits();
        let shares = [
            share(has.sessions, max.sessions),
            share(has.keys, max.keys),
            share(has.leases, max.leases),
            share(has.waiters, max.waiters),
            share(has.metadata_bytes, max.metadata_bytes),
            share(has.charters, max.charters),
            share(has.targets, max.targets),
            share(has.messages, max.messages),
            share(has.message_bytes, max.message_bytes),
            share(has.cache_grants, max.cache_grants),
            share(has.state_bytes, max.state_bytes),
        ];
        for ((_, highest), share) in highest.iter_mut().zip(shares) {
            *highest = share.max(*highest);
        }
    }
    highest
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
