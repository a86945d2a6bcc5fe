//! The router of a server: gRPC, HTTP, the dashboard, health and metrics behind the middlewares of the transport.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use leasehold_wire::v1::leasehold_server::LeaseholdServer;
use tokio::sync::watch;
use tonic_health::pb::health_server::HealthServer;

use super::grpc::GrpcService;
use super::grpc_health::{GrpcHealth, MAX_HEALTH_BYTES};
use super::{Api, dashboard, grpc_reflection, http, standby};
use crate::transport::body_limit::{self, BodyReader};
use crate::transport::{TransportLimits, error_layer, rate_limit};

/// Serves all endpoints.
pub fn router(api: Api, limits: TransportLimits) -> Router {
    let service = GrpcService { api: api.clone(), hello_timeout: limits.body_timeout };
    let service = LeaseholdServer::new(service)
        .max_decoding_message_size(leasehold_wire::MAX_REQUEST_BYTES)
        .max_encoding_message_size(4 * leasehold_wire::MAX_TRANSPORT_BYTES);
    let reader = BodyReader { timeout: limits.body_timeout, metrics: api.metrics.clone() };
    let health = HealthServer::new(GrpcHealth::new(api.clone())).max_decoding_message_size(MAX_HEALTH_BYTES);
    let (reflection, reflection_alpha) = grpc_reflection::services();
    let grpc = tonic::service::Routes::new(service)
        .add_service(health)
        .add_service(reflection)
        .add_service(reflection_alpha)
        .into_axum_router();
    let pages = dashboard::routes().with_state(api.clone());
    let routes = http::routes().with_state(api.clone()).merge(pages).merge(grpc).fallback(error_layer::not_found);
    // Around the routes as a whole, which add the header `Allow` outside of their own layers.
    Router::new()
        .fallback_service(routes)
        .layer(from_fn_with_state(reader, body_limit::read_body))
        .layer(from_fn(rate_limit::limit_rate))
        .layer(from_fn_with_state(api.metrics, error_layer::problems))
}

/// Serves the endpoints of a standby: queries for callers that accept them, and the address of the leader for all others.
pub fn standby_router(api: Api, limits: TransportLimits, leader: watch::Receiver<Option<String>>) -> Router {
    standby::routes(api.clone(), router(api, limits), leader)
}
