//! An operator acts in the browser, through the proxy of the how-to that adds a bearer token.

use std::net::TcpStream;

use leasehold_testkit::third_party_server::ThirdPartyServer;
use serde_json::json;
use tempfile::TempDir;

use crate::chromium::Chromium;
use crate::images;
use crate::page::{DESKTOP, Page, Screen};
use crate::scene::{api, start_waiting};
use crate::support::{Server, leasehold, run, text};
use crate::views::assert_quiet;

/// Everyone on this machine may hold and report; only the token of the proxy is an operator.
const ACCESS: &str = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"admin\"\nprefix = \"\"\n";

const RESOURCE: &str = "billing/settle";

/// The configuration of nginx in the how-to.
fn documented_server() -> String {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/use-the-dashboard.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let block = page.split("```nginx\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("the page has a block of nginx").to_owned()
}

/// Starts nginx as the how-to says, on a free port.
fn start_proxy(server: &Server, token: &str) -> (ThirdPartyServer, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let block = documented_server();
    for part in ["127.0.0.1:8421", "127.0.0.1:7421", "TOKEN"] {
        assert_eq!(block.matches(part).count(), 1, "{part} in {block}");
    }
    let block = block.replace("127.0.0.1:8421", &free.to_string()).replace("127.0.0.1:7421", &server.address);
    let block = block.replace("TOKEN", token);
    let folders = "client_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n";
    let config = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{block}}}\n"
    );
    let daemon = ThirdPartyServer::start("nginx", move |dir| {
        std::fs::write(dir.join("nginx.conf"), &config).expect("written");
        let dir = dir.display();
        vec!["-p".to_owned(), format!("{dir}/"), "-c".to_owned(), format!("{dir}/nginx.conf")]
    });
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    runtime.block_on(daemon.retry(|| async { TcpStream::connect(free).map(drop) }));
    (daemon, format!("http://{free}"))
}

fn restricted_server(directory: &TempDir) -> (Server, String) {
    let path = |name: &str| directory.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    std::fs::write(path("access.toml"), ACCESS).expect("the file is writable");
    let created =
        ["bearer", "create", "ops", "--role", "operator", "--prefix", "billing", "--out", &path("ops.token"), "--dir"];
    run(leasehold(&created).arg(directory.path())).ok();
    let token = std::fs::read_to_string(path("ops.token")).expect("a token").trim().to_owned();
    let (access, bearers, data) = (path("access.toml"), path("bearers.toml"), path("data"));
    let flags = ["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--bearers", &bearers];
    (Server::with_flags(&flags), token)
}

pub fn an_operator_revokes_through_a_proxy_after_the_preview(browser: &Chromium) {
    let directory = tempfile::tempdir().expect("a directory");
    let (server, token) = restricted_server(&directory);
    let targets = json!([
        { "name": "ledger", "at": "postgres://db/billing", "mode": "forced" },
        { "name": "invoices", "at": "s3://invoices", "mode": "cooperative" },
    ]);
    api(&server, "PUT", "/v1/charters/billing", &json!({ "charter": { "targets": targets }, "comment": "agreed" }));
    let granted = api(
        &server,
        "POST",
        &format!("/v1/leases/{RESOURCE}:acquire"),
        &json!({ "holder": "settle-1", "ttl": "600s" }),
    );
    let _waiting = start_waiting(&server, RESOURCE, "settle-2");
    let number = text(&granted["token_number"]);
    let report = json!({ "resource": RESOURCE, "target": "ledger", "mode": "forced", "checks": 41, "refusals": 0, "checked_ago": "0ms", "highest": number });
    let cluster = text(&server.json(&["status"])["cluster"]);
    api(&server, "POST", "/v1/coverage", &json!({ "cluster": cluster, "reports": [report] }));

    let (_proxy, url) = start_proxy(&server, &token);
    let page = Page::open(browser);
    page.goto(&format!("{url}/ui/resource/{RESOURCE}"));
    assert!(page.text().contains("bearer:ops") && !page.text().contains("read-only"), "{}", page.text());
    // The stream of updates passes the proxy without delay.
    page.wait_for_update();
    page.click("a.button", "Revoke");
    page.wait_for("location.pathname === '/ui/actions/revoke'");
    let preview = page.text();
    for part in [
        "settle-1",
        &format!("loses token {number}"),
        "Next in line is settle-2",
        "not fenced everywhere",
        "invoices",
        "ledger: refuses a stale token",
    ] {
        assert!(preview.contains(part), "no {part:?} in {preview}");
    }
    let holder = || text(&server.json(&["show", RESOURCE])["leases"][0]["holder"]);
    assert_eq!(holder(), "settle-1", "a preview changes nothing");
    let unnamed = page.unnamed_controls();
    assert!(unnamed.is_empty(), "{unnamed:#?}");
    let found = page.eval(&format!("{}(false)", include_str!("checks.js")));
    assert_eq!(found, json!([]));
    // The browser asks for the reason before it sends anything.
    page.click("button.danger", "Revoke");
    assert_eq!(page.eval("document.querySelector('input[name=comment]').validity.valueMissing"), json!(true));
    assert_eq!(page.eval("document.activeElement.name"), json!("comment"));
    page.type_text("stuck since noon, incident 1042");
    images::keep(&page, "revoke", Screen { height: 640, ..DESKTOP });
    assert_eq!(holder(), "settle-1");
    page.click("button.danger", "Revoke");
    page.wait_for(&format!("location.pathname === '/ui/resource/{RESOURCE}'"));
    page.wait_for_text("Held by settle-2");
    page.wait_for_text("stuck since noon, incident 1042");
    page.wait_for_text("bearer:ops");
    assert_eq!(holder(), "settle-2");
    assert_quiet(&page);

    // The rights end at the prefix, and the page says which role is missing.
    api(&server, "POST", "/v1/leases/search/reindex:acquire", &json!({ "holder": "indexer-1", "ttl": "600s" }));
    page.goto(&format!("{url}/ui/actions/revoke?resource=search/reindex"));
    assert!(page.text().contains("permission denied"), "{}", page.text());
}
