//! The keyboard alone is enough.

use serde_json::json;

use crate::chromium::Chromium;
use crate::page::Page;
use crate::scene::{Scene, VIEWS};
use crate::views::assert_quiet;

pub fn keys_open_views_search_and_select_rows(browser: &Chromium) {
    let scene = Scene::start();
    let page = Page::open(browser);
    page.goto(&scene.url("/"));
    for (key, title) in [
        ("w", "Waits"),
        ("c", "Coverage"),
        ("h", "Handovers"),
        ("s", "Cluster"),
        ("a", "Audit log"),
        ("o", "Overview"),
        ("l", "Leases"),
    ] {
        page.press("g");
        page.press(key);
        page.wait_for(&format!("document.title.startsWith({})", json!(title)));
    }
    page.press("/");
    assert_eq!(
        page.eval("document.activeElement.name"),
        json!("prefix"),
        "the first field of the search has the focus"
    );
    page.type_text("media");
    // Keys are letters while someone types.
    for letter in ["/", "t", "r"] {
        page.press(letter);
    }
    assert_eq!(page.eval("document.activeElement.value"), json!("media/tr"));
    for _ in 0..3 {
        page.eval("document.activeElement.value = document.activeElement.value.slice(0, -1)");
    }
    page.press("Enter");
    page.wait_for("location.search.includes('prefix=media')");
    for key in ["j", "j", "j", "k"] {
        page.press(key);
    }
    let selected = "[...document.querySelectorAll('tr.selected a')].map(one => one.textContent)[0]";
    assert_eq!(page.eval(selected), json!("media/transcode/4712"));
    // The selection survives an update.
    page.wait_for_update();
    assert_eq!(page.eval(selected), json!("media/transcode/4712"));
    page.press("Enter");
    page.wait_for("location.pathname === '/ui/resource/media/transcode/4712'");
    page.press("?");
    page.wait_for("document.querySelector('dialog').open");
    assert!(page.text().contains("next and previous row"), "{}", page.text());
    page.press("Escape");
    page.wait_for("!document.querySelector('dialog').open");
    assert_quiet(&page);
}

/// The focused element: its text, and whether an outline shows it.
const FOCUS: &str = "(() => { const one = document.activeElement; const style = getComputedStyle(one);
    return { tag: one.tagName, text: one.textContent.trim().slice(0, 40), isShown: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
             isInside: Boolean(one.closest('#live')) }; })()";

pub fn the_focus_is_visible_and_survives_updates(browser: &Chromium) {
    let scene = Scene::start();
    let page = Page::open(browser);
    for (path, _) in VIEWS {
        page.goto(&scene.url(path));
        let mut reached = 0;
        for _ in 0..60 {
            page.press("Tab");
            let focus = page.eval(FOCUS);
            if focus["tag"] == "BODY" {
                break;
            }
            assert_eq!(focus["isShown"], json!(true), "{path}: {focus}");
            reached += 1;
        }
        assert!(reached >= 8, "{path}: {reached} elements can be reached");
    }
    page.goto(&scene.url("/ui/leases"));
    while page.eval(FOCUS)["isInside"] != json!(true) {
        page.press("Tab");
    }
    page.press("Tab");
    let before = page.eval(FOCUS);
    for _ in 0..2 {
        page.wait_for_update();
        assert_eq!(page.eval(FOCUS), before, "an update takes no focus away");
    }
    // The first link of a page leads past the navigation.
    page.goto(&scene.url("/ui/waits"));
    page.press("Tab");
    assert_eq!(page.eval(FOCUS)["text"], json!("Skip to content"));
    page.press("Enter");
    page.press("Tab");
    assert_eq!(page.eval(FOCUS)["isInside"], json!(true));
    assert_quiet(&page);
}
