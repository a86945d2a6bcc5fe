//! Open pages follow what happens.

use serde_json::json;

use crate::chromium::Chromium;
use crate::page::Page;
use crate::scene::{Scene, api};
use crate::views::assert_quiet;

pub fn a_page_follows_changes_and_a_paused_one_does_not(browser: &Chromium) {
    let scene = Scene::start();
    let page = Page::open(browser);
    page.goto(&scene.url("/ui/leases"));
    page.eval("window.isFirst = true");
    let hold = |name: &str| {
        api(
            &scene.server,
            "POST",
            &format!("/v1/leases/{name}:acquire"),
            &json!({ "holder": "late-1", "ttl": "600s" }),
        );
    };
    hold("aaa/first");
    page.wait_for_text("aaa/first");
    page.press("p");
    page.wait_for("document.body.classList.contains('paused')");
    hold("aaa/second");
    // The server reports the change; the page asks for nothing.
    let streamed = "performance.getEntriesByType('resource').filter(one => one.name.includes('/ui/leases')).length";
    let before = page.eval(streamed);
    page.eval("new Promise(done => { const look = new EventSource('/ui/changes'); look.addEventListener('refresh', () => { look.close(); done(); }); })");
    assert_eq!(page.eval(streamed), before);
    assert!(!page.text().contains("aaa/second"), "{}", page.text());
    page.press("p");
    page.wait_for_text("aaa/second");
    assert_eq!(page.eval("window.isFirst"), json!(true), "the page was not loaded again");
    assert_quiet(&page);
}

/// A browser opens at most six connections to a server, for all tabs together.
const TABS: usize = 9;

pub fn many_tabs_share_a_server_because_a_hidden_one_has_no_stream(browser: &Chromium) {
    let scene = Scene::start();
    let first = Page::open(browser);
    first.goto(&scene.url("/ui/leases"));
    let others: Vec<Page<'_>> = (0..TABS)
        .map(|_| {
            let tab = first.sibling();
            tab.bring_to_front();
            tab.goto(&scene.url("/ui/leases"));
            tab.wait_for_text("media/transcode/4711");
            tab
        })
        .collect();
    first.wait_for("document.hidden");
    let hold = json!({ "holder": "late-1", "ttl": "600s" });
    api(&scene.server, "POST", "/v1/leases/aaa/new:acquire", &hold);
    let last = others.last().expect("there are some");
    last.wait_for_text("aaa/new");
    assert!(!first.text().contains("aaa/new"), "a hidden page is not updated");
    first.bring_to_front();
    first.wait_for_text("aaa/new");
    for tab in &others {
        assert_quiet(tab);
    }
}
