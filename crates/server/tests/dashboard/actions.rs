//! Actions need access rules, a role and a reason, and show their effect first.

use serde_json::{Value, json};

use crate::access_server::ADMIN;
use crate::http_client::{free_port_config, http, http_with};
use crate::scene::{Scene, ok, page};
use crate::transport_clients::HttpConnection;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;

const FORM: &str =
    "content-type: application/x-www-form-urlencoded\r\norigin: http://localhost\r\nsec-fetch-site: same-origin\r\n";

async fn holder_of(http: &mut HttpConnection, name: &str) -> Value {
    ok(http, &format!("GET /v1/leases/{name}"), Value::Null).await["leases"][0]["holder"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_the_effect_and_revokes_with_a_reason() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    let resource = page(&mut operator, "/ui/resource/jobs/report").await;
    assert!(resource.contains("/ui/actions/revoke?resource=jobs%2Freport"), "{resource}");
    let preview = page(&mut operator, "/ui/actions/revoke?resource=jobs%2Freport").await;
    for part in ["worker-2", "loses token", "Next in line is", "worker-3", "ledger", "refuses a stale token"] {
        assert!(preview.contains(part), "no {part} in {preview}");
    }
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2", "a preview changes nothing");
    let without_reason = "resource=jobs%2Freport&comment=+&grace=0";
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, without_reason).await;
    assert_eq!(status, 400, "{text}");
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2");
    let body = "resource=jobs%2Freport&comment=stuck+since+noon&grace=0";
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, body).await;
    assert_eq!(status, 303, "{text}");
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-3", "the waiter follows");
    let history = ok(&mut scene.admin, "GET /v1/history/jobs/report?limit=5", Value::Null).await;
    let ended = history["entries"].as_array().expect("a list").iter().find(|entry| entry["kind"] == "ended");
    let ended = ended.expect("the lease ended");
    assert_eq!((&ended["comment"], &ended["by"]), (&json!("stuck since noon"), &json!("uid:1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_asks_the_holder_and_a_free_needs_a_block() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    let preview = page(&mut operator, "/ui/actions/handoff?resource=jobs%2Freport").await;
    assert!(preview.contains("is asked to stop within") && preview.contains("worker-3"), "{preview}");
    let body = "resource=jobs%2Freport&comment=maintenance";
    let (status, text) = operator.request("POST /ui/actions/handoff", FORM, body).await;
    assert_eq!(status, 303, "{text}");
    let shown = page(&mut operator, "/ui/resource/jobs/report").await;
    assert!(shown.contains("<span class=\"pill warn\">draining</span>"), "{shown}");
    let preview = page(&mut operator, "/ui/actions/free?resource=jobs%2Freport").await;
    assert!(preview.contains("is not blocked, so nothing changes"), "{preview}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_act_gets_no_link_no_preview_and_no_effect() {
    let mut scene = Scene::start(&[("uid:1", "observer", ""), ("uid:2", "operator", "disks")]).await;
    for principal in ["uid:1", "uid:2"] {
        let mut reader = scene.server.http_as(principal).await;
        let resource = page(&mut reader, "/ui/resource/jobs/report").await;
        assert!(!resource.contains("/ui/actions/"), "{principal}: {resource}");
        let (status, text) = reader.request("GET /ui/actions/revoke?resource=jobs%2Freport", "", "").await;
        assert_eq!(status, 403, "{principal}: {text}");
        for action in ["revoke", "handoff", "free", "waive"] {
            let body = "resource=jobs%2Freport&comment=no";
            let (status, text) = reader.request(&format!("POST /ui/actions/{action}"), FORM, body).await;
            assert_eq!(status, 403, "{principal} {action}: {text}");
        }
    }
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2");
}

/// The library would replace what is not UTF-8, so that the action names another resource than the form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_no_browser_encodes_acts_on_nothing() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    let body = json!({ "holder": "worker-9", "ttl": "60s" });
    ok(&mut scene.admin, "POST /v1/leases/jobs/%EF%BF%BD:acquire", body).await;
    let fields = ["jobs%2F%FF", "jobs%2F%F", "jobs%2F%zz", "jobs%2F\u{fffd}", "jobs%2F%EF%BF%BD&comment=no#"];
    for field in fields {
        let body = format!("resource={field}&comment=no");
        let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
        assert_eq!(status, 400, "{field}: {text}");
        assert!(text.contains("body"), "{field}: {text}");
    }
    assert_eq!(holder_of(&mut scene.admin, "jobs/%EF%BF%BD").await, "worker-9");
    let (status, text) =
        operator.request("POST /ui/actions/revoke", FORM, "resource=jobs%2F%EF%BF%BD&comment=yes").await;
    assert_eq!(status, 303, "a browser encodes it: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_form_of_this_server_acts() {
    let mut scene = Scene::start(&[]).await;
    let address = scene.server.listen_as(ADMIN).await;
    let body = "resource=jobs%2Freport&comment=no";
    let kind = "content-type: application/x-www-form-urlencoded\r\n";
    let refused = [
        format!("{kind}origin: http://evil.test\r\n"),
        format!("{kind}origin: null\r\n"),
        format!(
            "{kind}sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-user: ?1\r\n"
        ),
        format!("{kind}sec-fetch-site: same-site\r\n"),
    ];
    for headers in refused {
        let mut http = HttpConnection::connect(address).await;
        let (status, text) = http.request("POST /ui/actions/revoke", &headers, body).await;
        assert_eq!(status, 403, "{headers}: {text}");
    }
    for headers in ["content-type: text/plain\r\n", "content-type: application/json\r\n"] {
        let mut http = HttpConnection::connect(address).await;
        let (status, text) = http.request("POST /ui/actions/revoke", headers, body).await;
        assert_eq!(status, 400, "{headers}: {text}");
    }
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_access_rules_pages_are_read_only() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let acquired = http(server.address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(acquired.0, 200, "{acquired:?}");
    let (status, resource) = http(server.address, "GET", "/ui/resource/a", "").await;
    assert_eq!(status, 200);
    assert!(resource.contains("read-only") && !resource.contains("/ui/actions/"), "{resource}");
    let (status, text) = http_with(server.address, "POST", "/ui/actions/revoke", FORM, "").await;
    assert!(status == 403 || status == 400, "{status}: {text}");
    let mut connection = HttpConnection::connect(server.address).await;
    let (status, text) = connection.request("POST /ui/actions/revoke", FORM, "resource=a&comment=no").await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("pages are read-only"), "{text}");
    assert_eq!(holder_of(&mut connection, "a").await, "w");
    server.stop().await;
}
