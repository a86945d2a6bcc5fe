//! Names and comments of callers are text on every page, never markup.

use crate::access_server::ADMIN;
use crate::http_client::raw;
use crate::scene::{Scene, VIEWS, page};

const HOLDER: &str = "<script>alert(1)</script>";
const TARGET: &str = "\"><img src=x onerror=alert(2)>";
const COMMENT: &str = "'</q><svg/onload=alert(3)>&lt;";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_callers_are_text_on_every_page() {
    let mut scene = Scene::with_names(&[], HOLDER, TARGET, COMMENT).await;
    let paths = VIEWS.into_iter().chain([
        "/ui/leases?holder=%3Cscript%3Ealert(1)%3C/script%3E",
        "/ui/leases?prefix=%22%3E%3Cscript%3E",
        "/ui/audit?resource=%22%3E%3Cscript%3E",
        "/ui/resource/%22%3E%3Cscript%3E",
        "/ui/actions/revoke?resource=jobs/report",
        "/ui/actions/%3Cscript%3E",
    ]);
    let address = scene.server.listen_as(ADMIN).await;
    let mut seen = String::new();
    for path in paths {
        let (_, _, body) = raw(address, "GET", path, "").await;
        let body = String::from_utf8(body).expect("pages are UTF-8");
        for markup in ["<script>", "<img src=x", "<svg/", "</q><", "alert(1)</script"] {
            assert!(!body.contains(markup), "{markup} in {path}: {body}");
        }
        seen.push_str(&body);
    }
    for shown in [
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&quot;&gt;&lt;img src=x onerror=alert(2)&gt;",
        "&lt;svg/onload=alert(3)&gt;&amp;lt;",
    ] {
        assert!(seen.contains(shown), "{shown} is shown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_lead_to_resources_with_any_name() {
    let mut scene = Scene::start(&[]).await;
    let name = "a b/c d=e&f#g%/\u{e4}'";
    let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let body = serde_json::json!({ "holder": "w", "ttl": "60s" }).to_string();
    let (status, text) = scene.admin.request(&format!("POST /v1/leases/{path}:acquire"), "", &body).await;
    assert_eq!(status, 200, "{text}");
    let leases = page(&mut scene.admin, "/ui/leases?prefix=a%20b").await;
    let link = leases
        .split("href=\"")
        .filter_map(|part| part.split('"').next())
        .find(|link| link.starts_with("/ui/resource/a"));
    let resource = page(&mut scene.admin, link.expect("the page links to the resource")).await;
    assert!(resource.contains("<h1><bdi class=\"name\">a b/c d=e&amp;f#g%/\u{e4}'</bdi></h1>"), "{resource}");
    assert!(resource.contains("Held by w for"), "{resource}");
}
