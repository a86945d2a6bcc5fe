//! A web page in a real browser cannot command a server, read it or watch it.

mod page_server;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, Stdio};

use leasehold_testkit::process::TestProcess;
use page_server::PageServer;
use support::Server;

/// Starts a browser without a window. Its profile is empty, and it resolves `evil.test` to this machine.
fn browse(url: &str, profile: &std::path::Path) -> TestProcess {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--host-resolver-rules=MAP evil.test 127.0.0.1"]);
    command.arg(format!("--user-data-dir={}", profile.display())).arg(url);
    let process = TestProcess::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    process.expect("chromium is installed, see ./test")
}

/// The counter of requests that were refused for this header.
fn denied(server: &Server, field: &str) -> u64 {
    let metrics = server.http("GET", "/metrics", "", "");
    let line = format!("leasehold_invalid_requests_total{{code=\"PERMISSION_DENIED\",field=\"{field}\"}} ");
    metrics.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().expect("a number"))
}

/// Everyone on this machine may do everything, as without access rules, and the pages of the dashboard act: only the check of the request's
/// origin stops a page of another site.
const ACCESS: &str = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"admin\"\nprefix = \"\"\n";

/// Ways of the page to reach a server.
const WAYS: usize = 22;

#[test]
fn no_web_page_can_change_read_or_watch_a_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    std::fs::write(path("access.toml"), ACCESS).expect("the file is writable");
    let (data, access) = (path("data"), path("access.toml"));
    let server = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", &data, "--access", &access]);
    let token = server.acquire("held", "worker");
    let before = server.json(&["ls"]);
    let pages = PageServer::start(&server.address);
    let profile = tempfile::tempdir().expect("a directory");
    let mut browser = browse(&format!("http://evil.test:{}/", pages.port), profile.path());
    // The first one also reaches the server under its own name.
    for (host, ways) in [("evil.test", 3 * WAYS), ("localhost", 2 * WAYS), ("127.0.0.1", 2 * WAYS)] {
        let report = pages.next_report(&mut browser);
        let (page, attempts) = report.split_once('\n').expect("a report has lines");
        assert_eq!((page, attempts.lines().count()), (host, ways), "every way was tried: {report}");
        for attempt in attempts.lines() {
            let (name, outcome) = attempt.split_once(" => ").expect("an attempt has an outcome");
            // A form, a beacon and a frame report no outcome to their page.
            let is_silent =
                ["form", "form as text", "beacon", "frame"].iter().any(|way| name.ends_with(&format!(" {way}")));
            let refused = ["failed: ", "error", "opaque 0", "basic 403"];
            assert!(is_silent || refused.iter().any(|start| outcome.starts_with(start)), "{attempt}\n{report}");
        }
    }
    browser.kill();
    let after = server.json(&["ls"]);
    assert_eq!(after["resources"].as_array().map(Vec::len), before["resources"].as_array().map(Vec::len), "{after}");
    assert!(!after.to_string().contains("evil"), "{after}");
    // The same form acts when it comes from the server's own page.
    let form = "content-type: application/x-www-form-urlencoded\r\nsec-fetch-site: same-origin\r\n";
    let preview = server.http("GET", "/ui/actions/revoke?resource=held", form, "");
    assert!(preview.starts_with("HTTP/1.1 200") && preview.contains("loses token"), "{preview}");
    server.run(&["check", "held", "--token", &token]).ok();
    assert_eq!(server.json(&["status"])["sessions"], 0);
    for field in ["origin", "sec-fetch-site", "host"] {
        assert!(denied(&server, field) > 0, "no request of the browser was refused for {field}");
    }
}
