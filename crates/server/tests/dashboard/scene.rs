//! A server with something to see: a holder, a waiter, a successor after an expiry, a target with a refused zombie, and a charter.

use serde_json::{Value, json};

use crate::access_server::{ADMIN, AccessServer};
use crate::transport_clients::HttpConnection;

/// The addresses of all views.
pub const VIEWS: [&str; 8] = [
    "/",
    "/ui/leases",
    "/ui/resource/jobs/report",
    "/ui/waits",
    "/ui/coverage",
    "/ui/handovers",
    "/ui/cluster",
    "/ui/audit",
];

/// A server with the scene, and a connection of its administrator.
pub struct Scene {
    pub server: AccessServer,
    pub admin: HttpConnection,
    waiting: tokio::task::JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

/// Sends a request that must succeed.
pub async fn ok(http: &mut HttpConnection, request: &str, body: Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, text) = http.request(request, "", &body).await;
    assert_eq!(status, 200, "{request}: {text}");
    serde_json::from_str(&text).expect("the reply is JSON")
}

/// Reads a page that must exist.
pub async fn page(http: &mut HttpConnection, path: &str) -> String {
    let (status, text) = http.request(&format!("GET {path}"), "", "").await;
    assert_eq!(status, 200, "{path}: {text}");
    text
}

impl Scene {
    /// Builds the scene with these names.
    pub async fn with_names(grants: &[(&str, &str, &str)], holder: &str, target: &str, comment: &str) -> Self {
        let mut server = AccessServer::start(grants).await;
        let mut admin = server.http_as(ADMIN).await;
        let targets = json!([{ "name": target, "at": "postgres://db/app", "mode": "forced" }]);
        let charter = json!({ "charter": { "targets": targets }, "comment": comment });
        ok(&mut admin, "PUT /v1/charters/jobs", charter).await;
        let acquire = json!({ "holder": holder, "ttl": "60s" });
        let first = ok(&mut admin, "POST /v1/leases/jobs/report:acquire", acquire.clone()).await;
        ok(&mut admin, "POST /v1/leases/jobs/report:revoke", json!({ "comment": comment })).await;
        let second =
            ok(&mut admin, "POST /v1/leases/jobs/report:acquire", json!({ "holder": "worker-2", "ttl": "60s" })).await;
        ok(&mut admin, "POST /v1/leases/disks/d1:acquire", acquire).await;
        let zombie =
            json!({ "presented": first["token_number"], "mark": second["token_number"], "times": 3, "holder": holder });
        let report = json!({
            "resource": "jobs/report", "target": target, "mode": "forced", "checks": 5, "refusals": 3, "checked_ago": "0ms",
            "highest": second["token_number"], "zombie": zombie,
        });
        let cluster = ok(&mut admin, "GET /v1/status", Value::Null).await["cluster"].clone();
        ok(&mut admin, "POST /v1/coverage", json!({ "cluster": cluster, "reports": [report] })).await;
        let mut waiter = server.http_as(ADMIN).await;
        let waiting = tokio::spawn(async move {
            let wait = json!({ "holder": "worker-3", "ttl": "60s", "wait": "600s" }).to_string();
            waiter.request("POST /v1/leases/jobs/report:acquire", "", &wait).await;
        });
        while ok(&mut admin, "GET /v1/leases/jobs/report", Value::Null).await["waiters"] == json!(0) {
            tokio::task::yield_now().await;
        }
        Self { server, admin, waiting }
    }

    /// Builds the scene with plain names.
    pub async fn start(grants: &[(&str, &str, &str)]) -> Self {
        Self::with_names(grants, "worker-1", "ledger", "monthly close").await
    }
}
