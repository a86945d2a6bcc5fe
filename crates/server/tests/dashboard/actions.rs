//! Actions need access rules, a role and a reason, and show their effect first.

use serde_json::{Value, json};

use crate::access_server::{ADMIN, AccessServer, access_text};
use crate::http_client::{free_port_config, http, http_with};
use crate::log_collector;
use crate::scene::{Scene, ok, page};
use crate::transport_clients::HttpConnection;
use leasehold_server::access::AccessFile;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;

const FORM: &str =
    "content-type: application/x-www-form-urlencoded\r\norigin: http://localhost\r\nsec-fetch-site: same-origin\r\n";

/// The body that a browser sends for the form of a preview, with more fields.
fn form_of(preview: &str, fields: &str) -> String {
    let hidden = preview.split("<input type=\"hidden\" name=\"").skip(1).map(|input| {
        let (name, rest) = input.split_once("\" value=\"").expect("a field has a value");
        let value = rest.split('"').next().unwrap_or_default();
        let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("{name}={value}")
    });
    hidden.chain([fields.to_owned()]).collect::<Vec<_>>().join("&")
}

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
    assert!(preview.contains("Reason, for the audit log"), "{preview}");
    let without_reason = form_of(&preview, "comment=+&grace=0");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &without_reason).await;
    assert_eq!(status, 400, "{text}");
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2");
    let body = form_of(&preview, "comment=stuck+since+noon&grace=0");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
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
    assert!(preview.contains("Reason, for the log of the server"), "its record has no comment: {preview}");
    log_collector::collect();
    let body = form_of(&preview, "comment=maintenance+now");
    let (status, text) = operator.request("POST /ui/actions/handoff", FORM, &body).await;
    assert_eq!(status, 303, "{text}");
    // The holder is asked only once. What is refused has no reason in the log.
    let body = form_of(&preview, "comment=maintenance+again");
    let (status, text) = operator.request("POST /ui/actions/handoff", FORM, &body).await;
    assert_eq!(status, 409, "{text}");
    let [line] = &log_collector::lines_with("maintenance")[..] else { panic!("one handoff was accepted") };
    assert!(line.contains("maintenance now") && line.contains("jobs/report") && line.contains("uid:1"), "{line}");
    let shown = page(&mut operator, "/ui/resource/jobs/report").await;
    assert!(shown.contains("<span class=\"pill warn\">draining</span>"), "{shown}");
    // An overlap needs a waiter; that the lease is still the one of the preview is not in doubt.
    let charter = json!({ "charter": { "handoff": { "mode": "overlap", "drain_ms": 1_000 } }, "comment": "terms" });
    ok(&mut scene.admin, "PUT /v1/charters/jobs/alone", charter).await;
    ok(&mut scene.admin, "POST /v1/leases/jobs/alone:acquire", json!({ "holder": "w", "ttl": "60s" })).await;
    let preview = page(&mut operator, "/ui/actions/handoff?resource=jobs%2Falone").await;
    let (status, text) = operator.request("POST /ui/actions/handoff", FORM, &form_of(&preview, "comment=x")).await;
    assert_eq!(status, 404, "{text}");
    assert!(!text.contains("have changed"), "{text}");
    let preview = page(&mut operator, "/ui/actions/free?resource=jobs%2Freport").await;
    assert!(preview.contains("is not blocked, so nothing changes"), "{preview}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_is_for_the_holder_of_its_preview_and_for_no_one_else() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    let mut forms = Vec::new();
    for action in ["revoke", "handoff"] {
        let preview = page(&mut operator, &format!("/ui/actions/{action}?resource=jobs%2Freport")).await;
        assert!(preview.contains("worker-2"), "{preview}");
        forms.push((action, form_of(&preview, "comment=stuck")));
    }
    // The holder changes between the preview and the action.
    ok(&mut scene.admin, "POST /v1/leases/jobs/report:revoke", json!({ "comment": "first" })).await;
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-3");
    for (action, body) in &forms {
        let (status, text) = operator.request(&format!("POST /ui/actions/{action}"), FORM, body).await;
        assert_eq!(status, 409, "{action}: {text}");
        assert!(text.contains("have changed since the preview, nothing happened"), "{action}: {text}");
    }
    let shown = ok(&mut scene.admin, "GET /v1/leases/jobs/report", Value::Null).await;
    assert_eq!(shown["leases"][0]["holder"], "worker-3");
    assert!(shown["leases"][0]["draining"].is_null(), "{shown}");
    // The resource became free: the next holder was in no preview.
    ok(&mut scene.admin, "POST /v1/leases/jobs/report:revoke", json!({ "comment": "second" })).await;
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &forms[0].1).await;
    assert_eq!(status, 409, "{text}");
    let preview = page(&mut operator, "/ui/actions/revoke?resource=jobs%2Freport").await;
    assert!(preview.contains("nothing to revoke") && !preview.contains("<form method=\"post\""), "{preview}");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, "resource=jobs%2Freport&comment=no").await;
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("leases: not the ids"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_ends_all_leases_of_its_preview_or_none() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    let held = async |admin: &mut HttpConnection| {
        let view = ok(admin, "GET /v1/held-leases?prefix=jobs/shared", Value::Null).await;
        view["leases"].as_array().map_or(0, Vec::len)
    };
    let acquire = async |admin: &mut HttpConnection, holder: String| {
        let body = json!({ "holder": holder, "ttl": "60s", "shared": true });
        ok(admin, "POST /v1/leases/jobs/shared:acquire", body).await;
    };
    for reader in 0..3 {
        acquire(&mut scene.admin, format!("r{reader}")).await;
    }
    let path = "/ui/actions/revoke?resource=jobs%2Fshared";
    let body = form_of(&page(&mut operator, path).await, "comment=all");
    acquire(&mut scene.admin, "late".to_owned()).await;
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
    assert_eq!(status, 409, "{text}");
    assert_eq!(held(&mut scene.admin).await, 4, "nothing happened");
    let body = form_of(&page(&mut operator, path).await, "comment=all");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
    assert_eq!(status, 303, "{text}");
    let (status, _) = scene.admin.request("GET /v1/leases/jobs/shared", "", "").await;
    assert_eq!(status, 404, "no lease is left");
    // More leases than one form acts on: the page names the command.
    for reader in 0..101 {
        acquire(&mut scene.admin, format!("r{reader}")).await;
    }
    let preview = page(&mut operator, path).await;
    assert!(preview.contains("leasehold revoke jobs/shared --comment TEXT"), "{preview}");
    assert!(!preview.contains("<form method=\"post\""), "{preview}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_two_persons_are_required_each_lease_of_a_preview_has_a_proposal() {
    let grants = [(ADMIN, "admin", ""), ("uid:1", "operator", "jobs"), ("uid:2", "approver", "jobs")];
    let file = format!("{}[two_person]\nactions = [\"revoke\"]\n", access_text(&grants));
    let mut server = AccessServer::start_with(&AccessFile::parse(&file).expect("the file is valid")).await;
    let mut admin = server.http_as(ADMIN).await;
    for holder in ["r1", "r2"] {
        let body = json!({ "holder": holder, "ttl": "60s", "shared": true });
        ok(&mut admin, "POST /v1/leases/jobs/shared:acquire", body).await;
    }
    let mut operator = server.http_as("uid:1").await;
    let preview = page(&mut operator, "/ui/actions/revoke?resource=jobs%2Fshared").await;
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &form_of(&preview, "comment=stuck")).await;
    assert_eq!(status, 428, "{text}");
    assert!(text.contains("must approve proposals 1, 2, one for each lease"), "{text}");
    assert_eq!(ok(&mut admin, "GET /v1/leases/jobs/shared", Value::Null).await["held"], 2, "nothing happened yet");
    let mut approver = server.http_as("uid:2").await;
    let proposals = ok(&mut approver, "GET /v1/proposals", Value::Null).await;
    for (proposal, left) in proposals.as_array().expect("a list").iter().zip([1, 0]) {
        let path = format!("POST /v1/proposals/{}:approve", proposal["proposal"]);
        ok(&mut approver, &path, json!({ "digest": proposal["digest"] })).await;
        let held = ok(&mut admin, "GET /v1/held-leases?prefix=jobs/shared", Value::Null).await["leases"].clone();
        assert_eq!(held.as_array().map(Vec::len), Some(left), "{held}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_is_not_encoded_exactly_names_no_resource() {
    let mut scene = Scene::start(&[("uid:1", "operator", "jobs")]).await;
    let mut operator = scene.server.http_as("uid:1").await;
    // The name that a lenient decoder would make of the invalid byte.
    let path = "POST /v1/leases/jobs/r%EF%BF%BD:acquire";
    ok(&mut scene.admin, path, json!({ "holder": "other", "ttl": "60s" })).await;
    let preview = page(&mut operator, "/ui/actions/revoke?resource=jobs%2Fr%EF%BF%BD").await;
    let exact = form_of(&preview, "comment=no");
    let lenient = exact.replace("%EF%BF%BD", "%FF");
    assert_ne!(exact, lenient, "{exact}");
    for (body, field) in [
        (lenient.as_str(), "body"),
        ("resource=jobs%2Freport%2&comment=no", "body"),
        ("resource=jobs/report#x&comment=no", "body"),
        ("resource=jobs/report&resource=jobs/other&comment=no", "resource"),
        ("resource=jobs/report&comment=no&grace=soon", "grace"),
        ("resource=jobs/report&comment=no&reason=x", "reason"),
    ] {
        let (status, text) = operator.request("POST /ui/actions/revoke", FORM, body).await;
        assert_eq!(status, 400, "{body}: {text}");
        assert!(text.contains(&format!("<p>{field}: ")), "{body}: {text}");
    }
    let kind = FORM.replace("urlencoded", "urlencoded2");
    let (status, text) = operator.request("POST /ui/actions/revoke", &kind, &exact).await;
    assert_eq!(status, 400, "{text}");
    assert_eq!(holder_of(&mut scene.admin, "jobs/r%EF%BF%BD").await, "other");
    assert_eq!(holder_of(&mut scene.admin, "jobs/report").await, "worker-2");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &exact).await;
    assert_eq!(status, 303, "{text}");
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
        let body = format!("resource={field}&leases=0.0&comment=no");
        let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
        assert_eq!(status, 400, "{field}: {text}");
        assert!(text.contains("body"), "{field}: {text}");
    }
    assert_eq!(holder_of(&mut scene.admin, "jobs/%EF%BF%BD").await, "worker-9");
    let preview = page(&mut operator, "/ui/actions/revoke?resource=jobs%2F%EF%BF%BD").await;
    let body = form_of(&preview, "comment=yes");
    let (status, text) = operator.request("POST /ui/actions/revoke", FORM, &body).await;
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
