//! A server with something to see in every view, as a small company would have it: leases of several teams, waiters, a chain of waits, a
//! revoked holder whose late writes were refused, and a target without a fence.

use std::process::Stdio;

use leasehold_testkit::process::TestProcess;
use serde_json::{Value, json};

use crate::support::{Server, TEST_TIMEOUT, text};

/// The resource with the longest story.
pub const RESOURCE: &str = "billing/settle";

/// The views with their titles.
pub const VIEWS: [(&str, &str); 8] = [
    ("/", "Overview"),
    ("/ui/leases", "Leases"),
    ("/ui/resource/billing/settle", RESOURCE),
    ("/ui/waits", "Waits"),
    ("/ui/coverage", "Coverage"),
    ("/ui/handovers", "Handovers"),
    ("/ui/cluster", "Cluster"),
    ("/ui/audit", "Audit log"),
];

/// A server and the processes that wait for its leases.
pub struct Scene {
    pub server: Server,
    _waiting: Vec<TestProcess>,
}

/// Sends a request to the HTTP API, which must succeed.
#[track_caller]
pub fn api(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = server.http(method, path, "", &body);
    let (head, body) = response.split_once("\r\n\r\n").expect("a response has a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {response}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// Starts a process that waits for a lease.
#[track_caller]
pub fn start_waiting(server: &Server, resource: &str, holder: &str) -> TestProcess {
    let mut command = server.command(&["acquire", resource, "--holder", holder, "--ttl", "600s", "--wait", "1h"]);
    let before = waiters(server, resource);
    let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = TestProcess::spawn(piped).expect("the binary was built for this test");
    server.wait_until_resource(resource, |show| show["waiters"].as_u64().is_some_and(|now| now > before));
    process
}

fn waiters(server: &Server, resource: &str) -> u64 {
    server.json(&["show", resource])["waiters"].as_u64().expect("a number")
}

impl Scene {
    pub fn start() -> Self {
        let server = Server::start();
        let targets = json!([
            { "name": "ledger", "at": "postgres://db/billing", "mode": "forced" },
            { "name": "invoices", "at": "s3://invoices", "mode": "cooperative" },
        ]);
        let charter = json!({ "charter": { "targets": targets, "handoff": { "mode": "gap", "drain_ms": 10000 } }, "comment": "agreed with finance" });
        api(&server, "PUT", "/v1/charters/billing", &charter);
        let targets = json!([{ "name": "search", "at": "http://search/", "mode": "cooperative" }]);
        api(
            &server,
            "PUT",
            "/v1/charters/search",
            &json!({ "charter": { "targets": targets }, "comment": "one index" }),
        );
        let hold = |resource: &str, holder: &str| {
            api(&server, "POST", &format!("/v1/leases/{resource}:acquire"), &json!({ "holder": holder, "ttl": "600s" }))
        };
        let first = hold(RESOURCE, "settle-1");
        let comment = json!({ "comment": "stuck since 02:10, see incident 1042" });
        api(&server, "POST", &format!("/v1/leases/{RESOURCE}:revoke"), &comment);
        let second = hold(RESOURCE, "settle-2");
        for (resource, holder) in [
            ("billing/invoices/eu", "invoice-eu"),
            ("billing/invoices/us", "invoice-us"),
            ("leader/scheduler", "scheduler-b"),
            ("media/transcode/4711", "transcode-7"),
            ("media/transcode/4712", "transcode-2"),
            ("media/transcode/4713", "transcode-5"),
            ("migrations/users", "deploy-318"),
            ("search/reindex", "indexer-1"),
            ("shards/orders/00", "orders-a"),
            ("shards/orders/01", "orders-b"),
            ("shards/orders/02", "orders-c"),
            ("warehouse/load", "etl-7"),
            ("warehouse/publish", "reports-2"),
        ] {
            hold(resource, holder);
        }
        let cluster = text(&server.json(&["status"])["cluster"]);
        let numbers = (text(&first["token_number"]), text(&second["token_number"]));
        let zombie = json!({ "presented": numbers.0, "mark": numbers.1, "times": 3, "holder": "settle-1" });
        let refused = json!({
            "resource": RESOURCE, "target": "ledger", "mode": "forced", "checks": 41, "refusals": 3, "checked_ago": "0ms",
            "highest": numbers.1, "zombie": zombie,
        });
        let checked = json!({ "resource": "search/reindex", "target": "search", "mode": "cooperative", "checks": 1204, "refusals": 0, "checked_ago": "0ms" });
        api(&server, "POST", "/v1/coverage", &json!({ "cluster": cluster, "reports": [refused, checked] }));
        let waiting = [
            (RESOURCE, "settle-3"),
            (RESOURCE, "settle-4"),
            ("leader/scheduler", "scheduler-a"),
            ("leader/scheduler", "scheduler-c"),
            ("migrations/users", "deploy-319"),
            ("warehouse/publish", "etl-7"),
            ("warehouse/load", "dashboards-1"),
            ("warehouse/load", "dashboards-2"),
        ];
        let waiting = waiting.map(|(resource, holder)| start_waiting(&server, resource, holder)).into();
        Self { server, _waiting: waiting }
    }

    /// The address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// Waits until the server has sampled its counters twice, so that the overview has charts.
    pub fn wait_for_charts(&self) {
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        while self.server.http("GET", "/", "", "").contains("Charts start with the second sample") {
            assert!(std::time::Instant::now() < deadline, "the server does not sample its counters");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
