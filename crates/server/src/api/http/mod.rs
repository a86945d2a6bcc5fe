//! HTTP endpoints with JSON bodies: commands are `POST /v1/leases/{name}:verb`, queries are `GET`.

mod audit_and_backup;
mod cache;
mod commands;
mod extract;
mod health;
mod queries;
mod queues;
mod respond;
mod sessions;
mod verbs;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{self, MethodRouter};

use super::Api;
use extract::no_body;
use verbs::{CacheVerb, LeaseVerb, ProposalVerb, QueueVerb, SessionVerb};

pub use audit_and_backup::verification_body;
pub use extract::{NoQuery, PathName, StrictQuery, is_percent_encoded};
pub use health::openmetrics;

/// One method at one path.
struct Route {
    method: &'static str,
    path: &'static str,
    /// Verbs after the last colon, if the path has any.
    verbs: Vec<&'static str>,
    handler: MethodRouter<Api>,
}

impl Route {
    fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "get", path, verbs: Vec::new(), handler: routing::get(handler).route_layer(from_fn(no_body)) }
    }

    fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "post", path, verbs: Vec::new(), handler: routing::post(handler) }
    }

    fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "put", path, verbs: Vec::new(), handler: routing::put(handler) }
    }

    fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self {
            method: "delete",
            path,
            verbs: Vec::new(),
            handler: routing::delete(handler).route_layer(from_fn(no_body)),
        }
    }

    fn with_verbs(self, verbs: &[&'static str]) -> Self {
        Self { verbs: verbs.to_vec(), ..self }
    }

    /// The paths as in the OpenAPI document, one for each verb.
    fn paths(&self) -> Vec<String> {
        let plain = self.path.replace("{*", "{");
        match self.verbs.as_slice() {
            [] => vec![plain],
            verbs => verbs.iter().map(|verb| format!("{plain}:{verb}")).collect(),
        }
    }
}

/// All HTTP endpoints.
fn table() -> Vec<Route> {
    vec![
        Route::get("/v1/leases", queries::list),
        Route::post("/v1/leases/{*name}", commands::lease).with_verbs(&LeaseVerb::WORDS),
        Route::get("/v1/leases/{*name}", queries::show),
        Route::post("/v1/leases:acquire_all", commands::acquire_all),
        Route::post("/v1/leases:renew", commands::renew_leases),
        Route::post("/v1/sessions", sessions::open),
        Route::post("/v1/sessions/{session}", sessions::command).with_verbs(&SessionVerb::WORDS),
        Route::get("/v1/sessions/{session}/leases", sessions::leases),
        Route::get("/v1/sessions/{session}/events", sessions::events),
        Route::post("/v1/queues/{*name}", queues::command).with_verbs(&QueueVerb::WORDS),
        Route::get("/v1/queues/{*name}", queues::show),
        Route::post("/v1/cache/{*key}", cache::command).with_verbs(&CacheVerb::WORDS),
        Route::get("/v1/state/{*name}", queries::state),
        Route::get("/v1/events", queries::events),
        Route::get("/v1/held-leases", queries::list_leases),
        Route::get("/v1/holders/{holder}", queries::held_by),
        Route::get("/v1/waiters/{*name}", queries::waiters),
        Route::get("/v1/ended-leases/{*name}", queries::ended_leases),
        Route::get("/v1/history", audit_and_backup::history),
        Route::get("/v1/history/{*name}", audit_and_backup::resource_history),
        Route::get("/v1/audit", audit_and_backup::export),
        Route::get("/v1/audit:verify", audit_and_backup::verify),
        Route::get("/v1/audit-heads", audit_and_backup::heads),
        Route::get("/v1/denials", audit_and_backup::denials),
        Route::get("/v1/deadlocks", queries::deadlocks),
        Route::get("/v1/usage", queries::usage),
        Route::get("/v1/status", queries::status),
        Route::get("/v1/charters", queries::charters),
        Route::put("/v1/charters/{*prefix}", commands::set_charter),
        Route::delete("/v1/charters/{*prefix}", commands::remove_charter),
        Route::post("/v1/coverage", commands::report_fences),
        Route::get("/v1/coverage/{*name}", queries::coverage),
        Route::delete("/v1/coverage/{*name}", commands::forget_target),
        Route::post("/v1/quarantine:waive", commands::waive),
        Route::get("/v1/proposals", queries::proposals),
        Route::post("/v1/proposals/{*proposal}", commands::proposal).with_verbs(&ProposalVerb::WORDS),
        Route::get("/v1/cluster", queries::cluster),
        Route::post("/v1/cluster:set_max_ttl", commands::set_max_ttl),
        Route::post("/v1/cluster:step_down", commands::step_down),
        Route::get("/v1/keys", queries::keys),
        Route::get("/v1/backup", audit_and_backup::backup),
        Route::get("/v1/openapi.json", health::openapi_document),
        Route::get("/healthz", health::alive),
        Route::get("/readyz", health::ready),
        Route::get("/metrics", health::metrics),
    ]
}

/// The router of all HTTP endpoints.
pub fn routes() -> Router<Api> {
    let routes = table().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    routes.layer(DefaultBodyLimit::max(leasehold_wire::MAX_TRANSPORT_BYTES))
}

/// Methods and paths of all endpoints, as in the OpenAPI document.
pub fn served() -> Vec<(&'static str, String)> {
    table().iter().flat_map(|route| route.paths().into_iter().map(|path| (route.method, path))).collect()
}
