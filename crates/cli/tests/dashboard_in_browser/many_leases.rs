//! Pages do not grow with the number of leases and waiters.

use serde_json::json;

use crate::chromium::Chromium;
use crate::crowded_server::{FullServer, name};
use crate::page::Page;
use crate::support::Server;
use crate::views::assert_quiet;

/// Largest page, in bytes.
const MAX_PAGE: usize = 300_000;
const LEASES: usize = 100_000;
const WAITERS: usize = 10_000;

/// The addresses of all views, also with filters that find much.
pub fn paths() -> Vec<String> {
    let first = name(0);
    [
        "/",
        "/ui/leases",
        "/ui/leases?prefix=orders/shard-042",
        "/ui/leases?holder=worker-0042",
        "/ui/leases?sort=age",
        "/ui/leases?stuck=true",
        &format!("/ui/resource/{first}"),
        &format!("/ui/resource/{}", name(77_777)),
        "/ui/waits",
        "/ui/coverage",
        "/ui/handovers",
        "/ui/cluster",
        "/ui/audit",
        &format!("/ui/audit?resource={first}"),
    ]
    .map(str::to_owned)
    .into()
}

pub fn pages_stay_small_with_a_hundred_thousand_leases_and_ten_thousand_waiters(browser: &Chromium) {
    let full = FullServer::start(Server::with_flags(&["--ephemeral", "--listen", "127.0.0.1:0"]), LEASES, WAITERS);
    let page = Page::open(browser);
    for path in paths() {
        let response = full.server.http("GET", &path, "", "");
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
        assert!(response.len() <= MAX_PAGE, "{path} has {} bytes", response.len());
        page.goto(&format!("http://{}{path}", full.server.address));
        // With its files, as the browser received them.
        let loaded = page.eval("performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource')).reduce((sum, one) => sum + one.encodedBodySize, 0)");
        assert!(
            loaded.as_u64().is_some_and(|loaded| (5_000..=MAX_PAGE as u64).contains(&loaded)),
            "{path}: {loaded} bytes"
        );
    }
    page.goto(&format!("http://{}/ui/leases?prefix=orders", full.server.address));
    assert!(page.text().contains("Next page"), "{}", page.text());
    page.goto(&format!("http://{}/ui/resource/{}", full.server.address, name(0)));
    let waiters = page.eval("[...document.querySelectorAll('h2')].find(one => one.textContent.startsWith('Waiters')).parentElement.querySelectorAll('tbody tr').length");
    assert_eq!(waiters, json!(20), "the first waiters are shown");
    assert!(page.text().contains("more wait."), "{}", page.text());
    assert_quiet(&page);
}
