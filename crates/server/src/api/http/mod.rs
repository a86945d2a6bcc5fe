//! HTTP and JSON, for people, curl and other languages: `POST /v1/leases/{name}:verb`, and looks by GET.

mod asks;
mod looks;
mod past;
mod told;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use super::Api;
pub use told::{Problem, Refused};

/// Everything under `/v1`.
pub fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/leases", get(looks::list))
        .route("/v1/leases/{*name}", post(asks::lease).get(looks::show))
        .route("/v1/sessions", post(asks::open_session))
        .route("/v1/sessions/{*session}", post(asks::session))
        .route("/v1/events", get(looks::events))
        .route("/v1/holders/{holder}", get(looks::held_by))
        .route("/v1/waiters/{*name}", get(looks::waiters))
        .route("/v1/ends/{*name}", get(looks::ends))
        .route("/v1/history", get(past::all))
        .route("/v1/history/{*name}", get(past::history))
        .route("/v1/trail", get(past::export))
        .route("/v1/trail:verify", get(past::verify))
        .route("/v1/deadlocks", get(looks::deadlocks))
        .route("/v1/usage", get(looks::usage))
        .route("/v1/status", get(looks::status))
        .route("/v1/charters", get(looks::charters))
        .route("/v1/charters/{*prefix}", axum::routing::put(asks::set_charter).delete(asks::remove_charter))
        .route("/v1/quarantine:waive", post(asks::waive))
        .route("/v1/backup", get(past::backup))
        .layer(DefaultBodyLimit::max(leasehold_wire::MESSAGE_BYTES))
}
