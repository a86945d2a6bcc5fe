//! Content of each dashboard view, the size of pages, and the headers that keep a page to its origin.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::access_server::{ADMIN, AccessServer};
use crate::http_client::raw;
use crate::scene::{Scene, VIEWS, ok, page};
use crate::transport_clients::HttpConnection;

/// Asserts that a page has each part, in any order.
#[track_caller]
fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_overview_counts_and_names_what_needs_attention() {
    let mut scene = Scene::start(&[]).await;
    let overview = page(&mut scene.admin, "/").await;
    assert_has(&overview, &["leases held</div><div class=\"value\">2<", "waiters</div><div class=\"value\">1<"]);
    assert_has(&overview, &["zombie", "refused 3 writes", "/ui/resource/jobs/report", "monthly close"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_view_says_why_each_resource_is_held() {
    let mut scene = Scene::start(&[]).await;
    let leases = page(&mut scene.admin, "/ui/leases").await;
    assert_has(&leases, &["/ui/resource/jobs/report", "/ui/resource/disks/d1", "Held by worker-2 for", "; 1 waits."]);
    assert_has(&leases, &["<animate attributeName=\"width\"", "2 resources on this page, 2 leases held in all"]);
    let jobs = page(&mut scene.admin, "/ui/leases?prefix=jobs").await;
    assert!(jobs.contains("/ui/resource/jobs/report") && !jobs.contains("/ui/resource/disks/d1"), "{jobs}");
    let nothing = page(&mut scene.admin, "/ui/leases?prefix=job").await;
    assert_has(&nothing, &["A prefix consists of whole segments"]);
    let held = page(&mut scene.admin, "/ui/leases?holder=worker-1").await;
    assert!(held.contains("/ui/resource/disks/d1") && !held.contains("/ui/resource/jobs/report"), "{held}");
    assert!(!held.contains("does not update itself"), "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_listed_in_an_order_and_stuck_ones_are_found() {
    let mut scene = Scene::start(&[]).await;
    let names = |page: &str| {
        let rows = page.split("<tr data-row").skip(1).filter_map(|row| row.split("/ui/resource/").nth(1));
        rows.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    for (sort, expected) in [
        ("name", ["disks/d1", "jobs/report"]),
        ("age", ["jobs/report", "disks/d1"]),
        ("waiters", ["jobs/report", "disks/d1"]),
    ] {
        let listed = page(&mut scene.admin, &format!("/ui/leases?sort={sort}")).await;
        assert_eq!(names(&listed), expected, "{sort}: {listed}");
        assert_has(&listed, &["A sorted page does not update itself", "not required"]);
        assert!(!listed.contains("hx-get"), "a sorted listing is collected once: {listed}");
    }
    let jobs = page(&mut scene.admin, "/ui/leases?sort=name&prefix=jobs").await;
    assert_eq!(names(&jobs), ["jobs/report"]);
    // A lease is stuck in the second half of the time in which it has to make progress; then it ends, and another one follows.
    let stuck = loop {
        let progressing = json!({ "holder": "worker-9", "ttl": "60s", "progress": "6s" }).to_string();
        scene.admin.request("POST /v1/leases/jobs/stuck:acquire", "", &progressing).await;
        let mut is_held = true;
        let listed = loop {
            let listed = page(&mut scene.admin, "/ui/leases?stuck=true").await;
            if !names(&listed).is_empty() || !is_held {
                break listed;
            }
            let (_, shown) = scene.admin.request("GET /v1/leases/jobs/stuck", "", "").await;
            is_held = shown.contains("worker-9");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        if is_held {
            break listed;
        }
    };
    assert_eq!(names(&stuck), ["jobs/stuck"], "{stuck}");
    assert_has(&stuck, &["<span class=\"pill warn\">stuck</span>", "worker-9"]);
    for query in ["sort=size", "stuck=maybe", "cursor=x", "sort=age&cursor=x"] {
        let (status, text) = scene.admin.request(&format!("GET /ui/leases?{query}"), "", "").await;
        assert_eq!(status, 400, "{query}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resource_view_draws_holders_refused_writes_and_waiters() {
    let mut scene = Scene::start(&[]).await;
    let resource = page(&mut scene.admin, "/ui/resource/jobs/report").await;
    let shown = ok(&mut scene.admin, "GET /v1/leases/jobs/report", Value::Null).await;
    let token = shown["leases"][0]["token_number"].as_str().expect("a text").to_owned();
    assert_has(
        &resource,
        &["<svg class=\"timeline\"", "worker-1, token", "worker-2, token", "class=\"tl-refused\"", " gap<"],
    );
    assert_has(&resource, &["ledger refused 3 writes of worker-1", "\u{d7}3", &token, "worker-3"]);
    assert_has(
        &resource,
        &["revoked operator", "monthly close", "<span class=\"pill good\">forced</span>", "audit entry"],
    );
    // A moment is marked and its row is highlighted; a range leaves the rest out.
    let history = ok(&mut scene.admin, "GET /v1/history/jobs/report?oldest_first=true", Value::Null).await;
    let first = history["entries"][0]["wall_ms"].as_u64().expect("a time");
    let moment = page(&mut scene.admin, &format!("/ui/resource/jobs/report?at={first}")).await;
    assert_has(&moment, &["class=\"tl-moment\"", "class=\"moment\""]);
    let before =
        page(&mut scene.admin, &format!("/ui/resource/jobs/report?from={}&until={}", first - 2_000, first - 1_000))
            .await;
    assert!(!before.contains("class=\"tl-refused\"") && before.contains("Zoom out"), "{before}");
    for range in [
        "from=18446744073709551615",
        "until=18446744073709551615",
        "from=5&until=2",
        "from=0&until=0&at=18446744073709551615",
    ] {
        page(&mut scene.admin, &format!("/ui/resource/jobs/report?{range}")).await;
    }
    let unknown = page(&mut scene.admin, "/ui/resource/never/used").await;
    assert_has(&unknown, &["No one holds it and no one waits", "Nothing has happened to this resource"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_coverage_handovers_cluster_and_audit_show_the_scene() {
    let mut scene = Scene::start(&[]).await;
    let waits = page(&mut scene.admin, "/ui/waits").await;
    assert_has(
        &waits,
        &["worker-2", "for which 1 waiter waits", "worker-3", "gives up in", "No deadlock is in memory"],
    );
    assert!(!waits.contains("disks/d1"), "no one waits for it: {waits}");
    let coverage = page(&mut scene.admin, "/ui/coverage").await;
    assert_has(&coverage, &["forced", "5 checks", "3 zombie writes", "no target", "leasehold charter apply", "1 hole"]);
    let handovers = page(&mut scene.admin, "/ui/handovers").await;
    assert_has(&handovers, &["worker-1", "worker-2", " gap", "operator", "1 change of holder"]);
    let cluster = page(&mut scene.admin, "/ui/cluster").await;
    assert_has(&cluster, &["standalone", &scene.server.handle.address.to_string(), "Stored by this server"]);
    let audit = page(&mut scene.admin, "/ui/audit").await;
    assert_has(&audit, &["charter set", "granted", "zombie", "/ui/audit/verify"]);
    let filtered = page(&mut scene.admin, "/ui/audit?resource=disks/d1").await;
    assert!(filtered.contains("/ui/resource/disks/d1") && !filtered.contains("/ui/resource/jobs/report"), "{filtered}");
    let verified = page(&mut scene.admin, "/ui/audit/verify").await;
    assert_has(&verified, &["<span class=\"pill good\">intact</span>"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_soon_was_not_necessarily_renewed_long_ago() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.http_as(ADMIN).await;
    // The longest hold leaves 90 s of a ttl of 300 s.
    let acquire = json!({ "holder": "w", "ttl": "300s", "max_hold": "90s" });
    ok(&mut admin, "POST /v1/leases/a:acquire", acquire).await;
    for path in ["/ui/leases", "/ui/leases?holder=w", "/ui/resource/a"] {
        let text = page(&mut admin, path).await;
        assert!(text.contains("class=\"countdown\""), "{path}: {text}");
        assert!(!text.contains("class=\"tl-hatch\"") && !text.contains("renewed 3 min"), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_resource_with_waiters_is_on_one_page_of_the_waits() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.http_as(ADMIN).await;
    let resources: Vec<_> = (0..100).map(|at| json!({ "resource": format!("all/{at}") })).collect();
    let all = json!({ "resources": resources, "holder": "owner", "ttl": "600s" });
    ok(&mut admin, "POST /v1/leases:acquire_all", all).await;
    // One wait for every second resource.
    let wanted: Vec<_> = (0..50).map(|at| json!({ "resource": format!("all/{}", 2 * at) })).collect();
    let mut waiter = server.http_as(ADMIN).await;
    let waiting = tokio::spawn(async move {
        let wait = json!({ "resources": wanted, "holder": "waiter", "ttl": "60s", "wait": "600s" }).to_string();
        waiter.request("POST /v1/leases:acquire_all", "", &wait).await;
    });
    while ok(&mut admin, "GET /v1/leases/all/98", Value::Null).await["waiters"] == json!(0) {
        tokio::task::yield_now().await;
    }
    let answered = async |admin: &mut HttpConnection, operation: &str| -> u64 {
        let metrics = page(admin, "/metrics").await;
        let line = format!("leasehold_request_seconds_count{{operation=\"{operation}\",code=\"OK\"}} ");
        metrics.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().expect("a number"))
    };
    let before = (answered(&mut admin, "waiters").await, answered(&mut admin, "list").await);
    let (mut next, mut pages, mut found) = (Some("/ui/waits".to_owned()), 0, BTreeSet::new());
    while let Some(path) = next {
        let text = page(&mut admin, &path).await;
        pages += 1;
        let links = text.split("href=\"/ui/resource/").skip(1).map(|part| part.split('"').next().unwrap_or_default());
        for link in links {
            assert!(found.insert(link.to_owned()), "{link} is on one page");
        }
        let link = text.split("href=\"").find(|part| part.starts_with("/ui/waits?cursor="));
        next = link.map(|part| part.split('"').next().unwrap_or_default().to_owned());
    }
    let expected: BTreeSet<String> = (0..50).map(|at| format!("all/{}", 2 * at)).collect();
    assert_eq!((pages, found), (2, expected));
    let after = (answered(&mut admin, "waiters").await, answered(&mut admin, "list").await);
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 0), "one query for each page");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_small_whatever_is_held() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.http_as(ADMIN).await;
    let name = "n".repeat(100);
    for batch in 0..40 {
        let resources: Vec<_> = (0..50).map(|at| json!({ "resource": format!("{name}/{batch}/{at}") })).collect();
        let body = json!({ "resources": resources, "holder": format!("holder-{name}"), "ttl": "600s" });
        ok(&mut admin, "POST /v1/leases:acquire_all", body).await;
    }
    let mut next = Some("/ui/leases".to_owned());
    let (mut pages, mut found) = (0, 0);
    while let Some(path) = next {
        let text = page(&mut admin, &path).await;
        assert!(text.len() < 150_000, "{} bytes at {path}", text.len());
        pages += 1;
        found += text.matches("data-row").count();
        let link = text.split("href=\"").find(|part| part.contains("Next page"));
        next = link.map(|part| part.split('"').next().unwrap_or_default().replace("&amp;", "&"));
    }
    assert_eq!((pages, found), (40, 2_000), "every resource is on one page");
    for path in VIEWS {
        let text = page(&mut admin, path).await;
        assert!(text.len() < 300_000, "{} bytes at {path}", text.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_files_have_the_headers_that_keep_them_to_their_origin() {
    let mut server = AccessServer::start(&[]).await;
    let address = server.listen_as(ADMIN).await;
    let problems = ["/ui/resource/%00", "/ui/leases?unknown=1", "/ui/actions/explode"];
    for path in VIEWS.iter().chain(&problems) {
        let (status, head, body) = raw(address, "GET", path, "").await;
        let body = String::from_utf8(body).expect("pages are UTF-8");
        for header in [
            "content-type: text/html; charset=utf-8",
            "content-security-policy: default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
        ] {
            let is_expected = header != "content-type: text/html; charset=utf-8" || !body.starts_with('{');
            assert!(head.contains(header) || !is_expected, "no {header:?} in {head} of {path}");
        }
        assert_eq!(status == 200, VIEWS.contains(path), "{path}: {head}");
        // What the policy would refuse, or what would leave the server.
        for part in [" style=", " onclick", " onload", "javascript:", "http://", "https://", "<script>", "<style"] {
            assert!(!body.replace("http://www.w3.org/2000/svg", "").contains(part), "{part:?} in {path}: {body}");
        }
        for file in body.split(['"', '\'']).filter(|part| part.starts_with("/ui/assets/")) {
            let (status, head, content) = raw(address, "GET", file, "").await;
            assert_eq!(status, 200, "{file}");
            assert!(head.contains("x-content-type-options: nosniff") && head.contains("immutable"), "{head}");
            assert!(!content.is_empty());
        }
    }
    let (status, head, _) = raw(address, "GET", "/ui/assets/../../../etc/passwd", "").await;
    assert_eq!(status, 404, "{head}");
}
