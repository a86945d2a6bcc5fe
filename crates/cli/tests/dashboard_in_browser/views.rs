//! Each view in a browser: complete, quiet, readable in light and dark and on a phone, and without scripts.

use serde_json::json;

use crate::chromium::Chromium;
use crate::images;
use crate::page::{DESKTOP, PHONE, Page, Screen};
use crate::scene::{RESOURCE, Scene, VIEWS};

/// What a view shows, besides its title.
const CONTENT: [(&str, &[&str]); 8] = [
    (
        "/",
        &["leases held", "waiters", "Ends by reason", "Renewals per second", "zombie writes refused", "Last changes"],
    ),
    ("/ui/leases", &["media/transcode/4711", "Held by settle-2 for", "Ends unless renewed", "resources on this page"]),
    (
        "/ui/resource/billing/settle",
        &["Timeline", "settle-1", "settle-3", "Waiters, in order", "ledger", "History", "incident 1042"],
    ),
    ("/ui/waits", &["reports-2", "warehouse/publish", "etl-7", "dashboards-1", "No deadlock"]),
    ("/ui/coverage", &["forced", "invoices", "never reported", "leasehold coverage"]),
    ("/ui/handovers", &["settle-1", "settle-2", "operator", "gap"]),
    ("/ui/cluster", &["standalone", "Stored by this server", "Grantor time"]),
    ("/ui/audit", &["granted", "charter set", "Verify the chain", "Export"]),
];

/// Everything that a page requests is from its server.
#[track_caller]
pub fn assert_requests_stay(page: &Page<'_>, scene: &Scene) {
    let own = scene.url("/");
    let requests = page.requests();
    assert!(requests.len() > 3, "{requests:?}");
    let foreign: Vec<_> = requests.iter().filter(|url| !url.starts_with(&own) && *url != "about:blank").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// No error of a script, no violation of the policy, and no request that failed.
#[track_caller]
pub fn assert_quiet(page: &Page<'_>) {
    let problems = page.problems();
    assert!(problems.is_empty(), "{problems:#?}");
}

pub fn every_view_is_complete_without_an_error_or_an_external_request(browser: &Chromium) {
    let scene = Scene::start();
    scene.wait_for_charts();
    let page = Page::open(browser);
    for ((path, title), (same, content)) in VIEWS.into_iter().zip(CONTENT) {
        assert_eq!(path, same);
        page.goto(&scene.url(path));
        assert_eq!(page.eval("document.title"), json!(format!("{title} \u{b7} Leasehold")));
        for part in content {
            assert!(page.text().contains(part), "{path} shows no {part:?}: {}", page.text());
        }
        // The scripts run: htmx reads the part that changes again.
        if page.eval("document.querySelector('#live').hasAttribute('hx-get')") == json!(true) {
            page.wait_for_update();
            for part in content {
                assert!(page.text().contains(part), "{path} shows no {part:?} after an update: {}", page.text());
            }
        }
        let unnamed = page.unnamed_controls();
        assert!(unnamed.is_empty(), "{path}: {unnamed:#?}");
    }
    page.goto(&scene.url("/ui/audit"));
    page.click("a.button", "Verify the chain");
    page.wait_for_text("Every entry follows from the one before it.");
    // A page that does not exist is a page too.
    page.goto(&scene.url("/ui/resource/never/used"));
    page.wait_for_text("Nothing has happened to this resource");
    assert_requests_stay(&page, &scene);
    assert_quiet(&page);
    if images::is_blessed() {
        images::work(&scene);
    }
    page.set_colors("dark");
    page.goto(&scene.url("/"));
    images::keep(&page, "overview-dark", Screen { height: 760, ..DESKTOP });
}

pub fn every_view_can_be_read_in_light_and_dark_and_on_a_phone(browser: &Chromium) {
    let scene = Scene::start();
    scene.wait_for_charts();
    let page = Page::open(browser);
    let mut found = Vec::new();
    for (screen, scheme) in [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")] {
        page.set_screen(screen);
        page.set_colors(scheme);
        for (path, _) in VIEWS {
            page.goto(&scene.url(path));
            let background =
                page.eval("getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/)[0] < 128");
            assert_eq!(background, json!(scheme == "dark"), "{path} in {scheme}");
            let problems = page.eval(&format!("{}({})", include_str!("checks.js"), screen.is_touched));
            let problems = problems.as_array().expect("a list").iter();
            found.extend(problems.map(|problem| format!("{path}, {scheme}, {} wide: {problem}", screen.width)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert_quiet(&page);
    page.set_screen(PHONE);
    page.set_colors("light");
    page.goto(&scene.url("/ui/leases"));
    images::keep(&page, "phone", Screen { scale: 1.5, ..PHONE });
}

pub fn every_view_works_without_scripts(browser: &Chromium) {
    let scene = Scene::start();
    let page = Page::open(browser);
    page.disable_scripts();
    page.goto(&scene.url("/"));
    for (title, part) in [
        ("Leases", "media/transcode/4711"),
        ("Waits", "reports-2"),
        ("Coverage", "never reported"),
        ("Handovers", "settle-2"),
        ("Cluster", "standalone"),
        ("Audit", "charter set"),
        ("Overview", "leases held"),
        ("Leases", "media/transcode/4711"),
    ] {
        page.click("nav a", title);
        page.wait_for(&format!("document.querySelector('nav [aria-current]')?.textContent === {}", json!(title)));
        page.wait_for_text(part);
    }
    assert_eq!(page.eval("typeof htmx"), json!("undefined"), "no script of the page ran");
    page.click("input[name=prefix]", "");
    page.type_text("shards");
    page.press("Enter");
    page.wait_for("location.search.includes('prefix=shards')");
    page.wait_for_text("3 resources on this page");
    assert!(!page.text().contains("media/transcode"), "{}", page.text());
    page.eval("document.querySelector('select[name=sort]').value = 'waiters', document.querySelector('input[name=prefix]').value = '', true");
    page.click("form.filter button", "Show");
    page.wait_for("location.search.includes('sort=waiters')");
    page.wait_for_text("A sorted page does not update itself");
    let first = page.eval("document.querySelector('tbody tr td').innerText");
    assert!(
        ["billing/settle", "leader/scheduler", "warehouse/load"].iter().any(|most| first == *most),
        "two wait there: {first}"
    );
    page.goto(&scene.url(&format!("/ui/resource/{RESOURCE}")));
    page.click(".timeline-tools a", "Zoom in");
    page.wait_for("location.search.includes('from=')");
    page.click(".timeline-tools a", "All");
    page.wait_for("!location.search.includes('from=')");
    assert_requests_stay(&page, &scene);
}

pub fn a_timeline_is_zoomed_with_the_mouse_and_has_a_link_to_a_moment(browser: &Chromium) {
    let scene = Scene::start();
    let page = Page::open(browser);
    let url = scene.url(&format!("/ui/resource/{RESOURCE}"));
    page.goto(&url);
    let whole = page.eval("Number(document.querySelector('svg.timeline').dataset.until)").as_u64();
    page.drag("svg.timeline", 0.45, 0.75);
    page.wait_for("location.search.includes('from=')");
    let range = page
        .eval("(({ from, until }) => [Number(from), Number(until)])(document.querySelector('svg.timeline').dataset)");
    assert!(
        range[0].as_u64() < range[1].as_u64() && range[1].as_u64() <= whole.map(|whole| whole + 600_000),
        "{range}"
    );
    page.click(".timeline-tools a", "All");
    page.wait_for("!location.search.includes('from=')");
    // Below the bars is nothing that has a link of its own.
    page.click("svg.timeline .tl-grid", "");
    page.wait_for("location.search.includes('at=') && document.querySelector('.tl-moment') !== null");
    page.wait_for("document.querySelectorAll('tr.moment').length === 1");
    let link = page.eval("location.href");
    let other = Page::open(browser);
    other.goto(link.as_str().expect("an address"));
    assert_eq!((other.count("line.tl-moment"), other.count("tr.moment")), (1, 1), "the link leads to the moment");
    assert_quiet(&page);
}
