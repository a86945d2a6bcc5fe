//! HTTP and JSON, for people, curl and other languages: `POST /v1/leases/{name}:verb`, and looks by GET.

mod asks;
mod health;
mod heard;
mod looks;
mod past;
mod told;
mod verbs;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};

use super::{Api, openapi};
pub use heard::{Nothing, Question};
pub use told::{Problem, Refused};
use verbs::{OfLease, OfSession};

/// One method at one path.
struct Route {
    method: &'static str,
    path: &'static str,
    /// What may stand behind the last colon; nothing where there is none.
    verbs: Vec<&'static str>,
    handler: MethodRouter<Api>,
}

impl Route {
    fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "get", path, verbs: Vec::new(), handler: routing::get(handler) }
    }

    fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "post", path, verbs: Vec::new(), handler: routing::post(handler) }
    }

    fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "put", path, verbs: Vec::new(), handler: routing::put(handler) }
    }

    fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Self {
        Self { method: "delete", path, verbs: Vec::new(), handler: routing::delete(handler) }
    }

    fn with(self, verbs: &[&'static str]) -> Self {
        Self { verbs: verbs.to_vec(), ..self }
    }

    /// The paths as a description has them, one for each verb.
    fn paths(&self) -> Vec<String> {
        let plain = self.path.replace("{*", "{");
        match self.verbs.as_slice() {
            [] => vec![plain],
            verbs => verbs.iter().map(|verb| format!("{plain}:{verb}")).collect(),
        }
    }
}

/// Everything that is served over HTTP.
fn table() -> Vec<Route> {
    vec![
        Route::get("/v1/leases", looks::list),
        Route::post("/v1/leases/{*name}", asks::lease).with(&OfLease::WORDS),
        Route::get("/v1/leases/{*name}", looks::show),
        Route::post("/v1/sessions", asks::open_session),
        Route::post("/v1/sessions/{*session}", asks::session).with(&OfSession::WORDS),
        Route::get("/v1/events", looks::events),
        Route::get("/v1/holders/{holder}", looks::held_by),
        Route::get("/v1/waiters/{*name}", looks::waiters),
        Route::get("/v1/ends/{*name}", looks::ends),
        Route::get("/v1/history", past::all),
        Route::get("/v1/history/{*name}", past::history),
        Route::get("/v1/trail", past::export),
        Route::get("/v1/trail:verify", past::verify),
        Route::get("/v1/deadlocks", looks::deadlocks),
        Route::get("/v1/usage", looks::usage),
        Route::get("/v1/status", looks::status),
        Route::get("/v1/charters", looks::charters),
        Route::put("/v1/charters/{*prefix}", asks::set_charter),
        Route::delete("/v1/charters/{*prefix}", asks::remove_charter),
        Route::post("/v1/fences", asks::report),
        Route::get("/v1/fences/{*name}", looks::fences),
        Route::delete("/v1/fences/{*name}", asks::forget_target),
        Route::post("/v1/quarantine:waive", asks::waive),
        Route::get("/v1/cluster", looks::cluster),
        Route::post("/v1/cluster:step_down", asks::step_down),
        Route::get("/v1/backup", past::backup),
        Route::get("/v1/openapi.json", openapi::told),
        Route::get("/healthz", health::alive),
        Route::get("/readyz", health::ready),
        Route::get("/metrics", health::metrics),
    ]
}

/// Everything that is served over HTTP, as one router.
pub fn routes() -> Router<Api> {
    let routes = table().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    routes.layer(DefaultBodyLimit::max(leasehold_wire::MESSAGE_BYTES))
}

/// The same as methods and paths, as they are described.
pub fn served() -> Vec<(&'static str, String)> {
    table().iter().flat_map(|route| route.paths().into_iter().map(|path| (route.method, path))).collect()
}
