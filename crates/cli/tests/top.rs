//! `leasehold top` on a pseudo-terminal, against a real server with holders, waiters, a deadlock and a revocation through the keys.

mod support;

use std::time::Duration;

use leasehold::{Client, Code};
use leasehold_testkit::process::TestProcess;
use leasehold_testkit::tcp_proxy::TcpProxy;
use leasehold_testkit::terminal::TestTerminal;
use rustix::process::Signal;
use support::{Server, TEST_TIMEOUT, leasehold, run, spawn_piped};

const ENTER: &str = "\r";
const ESC: &str = "\u{1b}";
const CTRL_C: &str = "\u{3}";
const PAGE_DOWN: &str = "\u{1b}[6~";

fn top(address: &str, args: &[&str], size: (u16, u16)) -> TestTerminal {
    let args = [&["top"][..], args].concat();
    let started =
        TestTerminal::start(env!("CARGO_BIN_EXE_leasehold"), &args, &[("LEASEHOLD_ADDR", address)], size.0, size.1);
    started.expect("a pseudo-terminal")
}

/// Ends the program with `q`, and checks that the terminal is as it was.
fn quit(mut terminal: TestTerminal) -> TestTerminal {
    terminal.press("q");
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.screen().text());
    terminal.wait_until("the main screen", |screen| !screen.is_alternate() && screen.is_cursor_visible());
    assert!(terminal.is_restored());
    terminal
}

/// Waits for a lease in the background.
fn wait_for_lease(server: &Server, name: &str, holder: &str) -> TestProcess {
    let args = ["acquire", name, "--holder", holder, "--ttl", "60s", "--wait", "600s"];
    TestProcess::from(spawn_piped(&mut server.command(&args)))
}

#[test]
fn leases_are_shown_described_and_revoked_after_a_preview() {
    let server = Server::start();
    server.acquire("jobs/report", "worker-1");
    server.acquire("other/x", "bystander");
    let waiting = wait_for_lease(&server, "jobs/report", "worker-2");
    server.wait_for_waiter("jobs/report");
    let mut terminal = top(&server.address, &["--interval", "200ms"], (120, 30));
    terminal.wait_for("leases 2   waiters 1");
    terminal.wait_for("live");
    assert!(terminal.screen().is_alternate() && !terminal.screen().is_cursor_visible());
    let row = |name: &str| {
        let text = terminal.screen().text();
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}:\n{text}")).to_owned()
    };
    assert!(row("jobs/report").contains("worker-1") && row("jobs/report").contains("█"), "{}", row("jobs/report"));
    assert!(row("jobs/report").contains("active"), "{}", row("jobs/report"));

    // The server filters.
    terminal.press("/jobs");
    terminal.wait_for("/ PREFIX, @HOLDER or PREFIX @HOLDER: jobs");
    terminal.press(ENTER);
    terminal.wait_until_gone("bystander");
    terminal.wait_for("filter jobs");

    terminal.press(ENTER);
    terminal.wait_for("Held by worker-1 for ");
    for part in ["1. worker-2", "WAITERS, IN ORDER", "TARGETS", "HISTORY, NEWEST FIRST", "granted"] {
        terminal.wait_for(part);
    }

    // Nothing is done without a preview and a reason.
    terminal.press("r");
    terminal.wait_for("worker-1 loses token");
    terminal.wait_for("Next in line is worker-2.");
    terminal.wait_for("The old holder can still write where there is a hole:");
    terminal.press(ENTER);
    terminal.wait_for("a reason is required");
    assert_eq!(server.json(&["show", "jobs/report"])["leases"][0]["holder"], "worker-1");
    terminal.press("incident 1042: q is stuck");
    terminal.wait_for("Reason: incident 1042: q is stuck");
    terminal.press(ENTER);
    terminal.wait_for("Held by worker-2 for ");
    let ended = &server.json(&["history", "jobs/report"])["entries"];
    let ended = ended.as_array().expect("a list").iter().find(|entry| entry["kind"] == "ended").expect("an end");
    assert_eq!((&ended["reason"], &ended["comment"]), (&"operator".into(), &"incident 1042: q is stuck".into()));
    drop(waiting);
    // The record of what was done is printed.
    quit(terminal).wait_for("revoke jobs/report: incident 1042: q is stuck");
}

#[test]
fn an_action_is_for_the_holder_of_its_preview_and_not_for_the_next_one() {
    let server = Server::start();
    let token = server.acquire("jobs/report", "worker-1");
    let mut terminal = top(&server.address, &["--interval", "200ms"], (120, 30));
    terminal.wait_for("worker-1");
    terminal.press("r");
    terminal.wait_for("worker-1 loses token");
    terminal.press("it is stuck");
    terminal.wait_for("Reason: it is stuck");
    server.run(&["release", "jobs/report", "--token", &token]).ok();
    server.acquire("jobs/report", "worker-2");
    terminal.press(ENTER);
    terminal.wait_for("other leases than in the preview");
    assert_eq!(server.json(&["show", "jobs/report"])["leases"][0]["holder"], "worker-2");
    terminal.press(ESC);
    terminal.wait_until_gone("Reason: it is stuck");
    quit(terminal);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_deadlocks_audit_and_the_other_views_are_reached_by_their_words() {
    let server = Server::start();
    let client = || Client::new(&server.address).expect("an address");
    let (one, other) = (client(), client());
    let _a = one.lock("a").holder("t1").acquire().await.expect("free");
    let _b = other.lock("b").holder("t2").acquire().await.expect("free");
    let lock = one.lock("b").holder("t1").wait(Duration::from_secs(600));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    server.wait_for_waiter("b");
    let mut terminal = top(&server.address, &["--interval", "200ms"], (120, 30));
    terminal.wait_for("leases 2   waiters 1");
    terminal.press(&format!(":waits{ENTER}"));
    terminal.wait_for("└─ holds b, 1 waits");
    terminal.wait_until("the waiter below its holder", |screen| {
        let text = screen.text();
        let place = |part: &str| text.lines().position(|line| line.trim_end().starts_with(part));
        place("t2").is_some_and(|holder| place("   └─ t1").is_some_and(|waiter| waiter > holder))
    });
    let refused = other.lock("a").holder("t2").wait(TEST_TIMEOUT).acquire().await;
    let refused = refused.expect_err("it would complete a cycle").into_error();
    assert_eq!(refused.code(), Some(Code::Deadlock), "{refused}");
    terminal.press(&format!(":dead{ENTER}"));
    terminal.wait_for("waits for");
    terminal.wait_for("deadlocks 1");
    for (word, part) in [
        ("coverage", "no target"),
        ("handovers", "No change of holder"),
        ("cluster", "standalone"),
        ("audit", "granted"),
        ("leases", "ENDS IN"),
    ] {
        terminal.press(&format!(":{word}{ENTER}"));
        terminal.wait_for(part);
    }
    terminal.press(":pods\r");
    terminal.wait_for("no view `pods`; use leases, waits, deadlocks");
    terminal.press("?");
    terminal.wait_for("hand off, after a preview");
    terminal.press(ESC);
    terminal.wait_until_gone("hand off, after a preview");
    terminal.press("p");
    terminal.wait_for("paused");
    terminal.press("p");
    terminal.wait_for("live");
    waiting.abort();
    quit(terminal);
}

#[test]
fn a_handoff_through_the_keys_asks_the_holder_to_stop() {
    let server = Server::start();
    server.acquire("jobs/a", "worker-1");
    let mut terminal = top(&server.address, &["--interval", "200ms"], (100, 30));
    terminal.wait_for("jobs/a");
    terminal.press("h");
    terminal.wait_for("worker-1 is asked to stop within");
    terminal.press(&format!("rolling update{ENTER}"));
    terminal.wait_for("draining");
    quit(terminal).wait_for("hand off jobs/a: rolling update");
}

#[test]
fn what_the_caller_may_not_do_is_refused_by_the_server_and_said() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let grant = |role: &str| format!("[[grant]]\nprincipal = \"anonymous\"\nrole = {role:?}\nprefix = \"\"\n");
    std::fs::write(path("access.toml"), grant("observer")).expect("the file is writable");
    let (data, access, socket) = (path("data"), path("access.toml"), path("socket"));
    let flags = ["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--socket", &socket];
    let server = Server::with_flags(&flags);
    let mut all = grant("observer");
    all.push_str(&grant("holder"));
    std::fs::write(&access, all).expect("the file is writable");
    server.signal("HUP");
    let acquired = || server.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).exit == 0;
    while !acquired() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut terminal = top(&server.address, &[], (100, 30));
    terminal.wait_for("jobs/a");
    terminal.press("r");
    terminal.wait_for("w loses token");
    terminal.press(&format!("because{ENTER}"));
    terminal.wait_for("PERMISSION_DENIED");
    assert_eq!(server.json(&["show", "jobs/a"])["held"], 1);
    terminal.press(ESC);
    // Escape and a letter that follow each other at once are one key, with Alt.
    terminal.wait_until_gone("Reason:");
    quit(terminal);
}

#[test]
fn a_restarted_server_is_reported_and_the_screen_continues() {
    let server = Server::start();
    server.acquire("jobs/a", "w");
    let proxy = TcpProxy::start(&server.address);
    let mut terminal = top(&proxy.address().to_string(), &["--interval", "200ms"], (100, 24));
    terminal.wait_for("jobs/a");
    // The proxy leads nowhere while the server is down.
    proxy.set_upstream(support::UNUSED_ADDRESS);
    let server = server.crash_and_restart();
    terminal.wait_for("no answer for");
    terminal.wait_for("UNAVAILABLE");
    assert!(terminal.screen().text().contains("jobs/a"), "the last answer stays:\n{}", terminal.screen().text());
    proxy.set_upstream(&server.address);
    terminal.wait_for("the server answers again");
    server.acquire("jobs/b", "w");
    terminal.wait_for("jobs/b");
    terminal.press("j");
    quit(terminal);
}

#[test]
fn many_leases_are_paged_filtered_and_sorted_by_the_server() {
    let server = Server::start();
    for number in 0..60 {
        server.http("POST", &format!("/v1/leases/many/{number:03}:acquire"), "", r#"{"holder":"w","ttl":"600s"}"#);
    }
    server.acquire("one", "other-holder");
    let mut terminal = top(&server.address, &["--interval", "200ms"], (100, 20));
    terminal.wait_for("leases 61");
    terminal.wait_for("] next page");
    let rows =
        |terminal: &TestTerminal| terminal.screen().text().lines().filter(|line| line.starts_with("many/")).count();
    assert!(rows(&terminal) <= 14, "one page:\n{}", terminal.screen().text());
    terminal.press("s");
    terminal.wait_for("sorted by name, smallest first");
    terminal.wait_until_gone("loading");
    terminal.wait_for("many/000");
    terminal.press(PAGE_DOWN);
    terminal.wait_for("page 2");
    terminal.wait_until("the second page", |screen| {
        screen.text().contains("many/013") && !screen.text().contains("many/000")
    });
    terminal.press("S");
    terminal.wait_for("largest first");
    terminal.wait_for("other-holder");
    terminal.press(&format!("/@other-holder{ENTER}"));
    terminal.wait_until("only its lease", |screen| {
        let text = screen.text();
        text.contains("other-holder") && !text.contains("many/")
    });
    quit(terminal);
}

#[test]
fn small_terminals_and_another_size_are_drawn() {
    let server = Server::start();
    server.acquire("jobs/a", "worker-1");
    let mut terminal = top(&server.address, &[], (80, 24));
    terminal.wait_for("jobs/a");
    terminal.wait_for("? help");
    for (columns, rows) in [(20, 5), (4, 2), (1, 1), (60, 9)] {
        terminal.resize(columns, rows);
        terminal.press("?");
        terminal.press("?");
    }
    terminal.resize(100, 30);
    terminal.wait_for("jobs/a");
    terminal.wait_for("leases 1");
    quit(terminal);
}

#[test]
fn names_that_control_terminals_are_escaped() {
    let server = Server::start();
    // A server refuses all other control characters; the tests of the drawing have them.
    server.acquire("jobs/a", "w");
    server.run(&["revoke", "jobs/a", "--comment", "harmless\nleasehold: granted"]).ok();
    let mut terminal = top(&server.address, &[], (220, 30));
    terminal.wait_for("live");
    terminal.press(&format!(":audit{ENTER}"));
    terminal.wait_for("harmless\\nleasehold: granted");
    quit(terminal);
}

#[test]
fn a_signal_and_ctrl_c_restore_the_terminal() {
    let server = Server::start();
    server.acquire("jobs/a", "w");
    for signal in [Some(Signal::TERM), Some(Signal::HUP), None] {
        let mut terminal = top(&server.address, &[], (80, 24));
        terminal.wait_for("jobs/a");
        assert!(!terminal.is_restored(), "the screen reads single keys");
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.press(CTRL_C),
        }
        assert_eq!(terminal.wait().code(), Some(0), "{signal:?}");
        terminal.wait_until("the main screen", |screen| !screen.is_alternate() && screen.is_cursor_visible());
        assert!(terminal.is_restored(), "{signal:?}");
    }
}

#[test]
fn anything_but_a_terminal_is_refused_with_the_command_for_programs() {
    let part = "run `leasehold ls --watch`";
    for args in [&["top"][..], &["top", "--json"]] {
        let refused = run(&mut leasehold(args));
        assert_eq!((refused.exit, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(refused.err.contains("INVALID_ARGUMENT") && refused.err.contains(part), "{refused:?}");
    }
    let refused = run(&mut leasehold(&["top", "--interval", "10ms"]));
    assert!(refused.exit == 2 && refused.err.contains("from 200ms to 1h"), "{refused:?}");
}
