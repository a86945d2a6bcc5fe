//! The dashboard in a real browser, against real servers: every view, what happens to a paused holder while it happens, deadlocks, actions,
//! keys, small screens, foreign pages, and many leases.
//!
//! Child processes are this program itself, started with a role. With `LEASEHOLD_BLESS=1` the tests also write the images of
//! `docs/images/`. `measure` prints how long pages take and what they cost, see `docs/how-to/use-the-dashboard.md`.

mod actions;
mod chromium;
mod crowded_server;
mod deadlocks;
mod foreign_pages;
mod images;
mod keys;
mod many_leases;
mod measure;
mod page;
mod paused_holder;
mod scene;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/postgres/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;
mod updates;
mod views;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use chromium::Chromium;

/// A test gets the browser, in which it opens tabs of its own.
type BrowserTest = fn(&Chromium);

const ALL: [(&str, BrowserTest); 15] = [
    (
        "views::every_view_is_complete_without_an_error_or_an_external_request",
        views::every_view_is_complete_without_an_error_or_an_external_request,
    ),
    (
        "views::every_view_can_be_read_in_light_and_dark_and_on_a_phone",
        views::every_view_can_be_read_in_light_and_dark_and_on_a_phone,
    ),
    ("views::every_view_works_without_scripts", views::every_view_works_without_scripts),
    (
        "views::a_timeline_is_zoomed_with_the_mouse_and_has_a_link_to_a_moment",
        views::a_timeline_is_zoomed_with_the_mouse_and_has_a_link_to_a_moment,
    ),
    ("keys::keys_open_views_search_and_select_rows", keys::keys_open_views_search_and_select_rows),
    ("keys::the_focus_is_visible_and_survives_updates", keys::the_focus_is_visible_and_survives_updates),
    (
        "updates::a_page_follows_changes_and_a_paused_one_does_not",
        updates::a_page_follows_changes_and_a_paused_one_does_not,
    ),
    (
        "updates::many_tabs_share_a_server_because_a_hidden_one_has_no_stream",
        updates::many_tabs_share_a_server_because_a_hidden_one_has_no_stream,
    ),
    (
        "paused_holder::a_paused_holder_its_successor_and_the_refused_write_appear_while_they_happen",
        paused_holder::a_paused_holder_its_successor_and_the_refused_write_appear_while_they_happen,
    ),
    (
        "deadlocks::a_deadlock_is_drawn_with_its_victim_and_replayed",
        deadlocks::a_deadlock_is_drawn_with_its_victim_and_replayed,
    ),
    (
        "deadlocks::a_deadlock_that_is_only_reported_is_drawn_until_an_operator_resolves_it",
        deadlocks::a_deadlock_that_is_only_reported_is_drawn_until_an_operator_resolves_it,
    ),
    (
        "actions::an_operator_revokes_through_a_proxy_after_the_preview",
        actions::an_operator_revokes_through_a_proxy_after_the_preview,
    ),
    (
        "foreign_pages::a_link_opens_a_page_and_nothing_else_does",
        foreign_pages::a_link_opens_a_page_and_nothing_else_does,
    ),
    ("foreign_pages::a_page_under_another_name_shows_nothing", foreign_pages::a_page_under_another_name_shows_nothing),
    (
        "many_leases::pages_stay_small_with_a_hundred_thousand_leases_and_ten_thousand_waiters",
        many_leases::pages_stay_small_with_a_hundred_thousand_leases_and_ten_thousand_waiters,
    ),
];

/// Runs a role, or the tests with the output format of the standard test runner.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some(worker::ROLE) => return worker::run(&args[1..]),
        Some(measure::ROLE) => return measure::run(&args[1..]),
        Some("--list") => return ALL.iter().for_each(|(name, _)| println!("{name}: test")),
        _ => {}
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let selected: Vec<_> =
        ALL.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(text.as_str()))).collect();
    println!("\nrunning {} tests", selected.len());
    let browser = Chromium::start();
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in &selected {
        let began = Instant::now();
        let ok = catch_unwind(AssertUnwindSafe(|| test(&browser))).is_ok();
        println!("test {name} ... {} <{:.3}s>", if ok { "ok" } else { "FAILED" }, began.elapsed().as_secs_f64());
        if ok { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let others = ALL.len() - selected.len();
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {others} filtered out\n"
    );
    if failed > 0 {
        std::process::exit(101);
    }
}
