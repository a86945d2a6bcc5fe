//! `--watch`: what is printed on a pipe and drawn on a terminal, and how it ends.

use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testkit::process::TestProcess;
use leasehold_testkit::tcp_proxy::TcpProxy;
use rustix::process::Signal;
use serde_json::Value;

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::{Server, TEST_TIMEOUT, spawn_piped};

const FAST: [&str; 3] = ["--watch", "--interval", "100ms"];

fn start(command: &mut Command) -> TestProcess {
    TestProcess::from(spawn_piped(command))
}

fn watch(server: &Server, args: &[&str]) -> TestProcess {
    start(&mut server.command(&[args, &FAST].concat()))
}

fn next_json(watching: &TestProcess) -> Value {
    let line = watching.stdout().next_line().expect("a result");
    serde_json::from_str(&line).expect("one JSON document on each line")
}

/// Waits until the server has answered this many further listings.
#[track_caller]
fn wait_for_listings(server: &Server, count: u64) {
    let listings = || {
        let page = server.http("GET", "/metrics", "", "");
        let lines = page.lines().filter(|line| line.starts_with("leasehold_request_seconds_count{operation=\"list\""));
        lines.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok()).sum::<u64>()
    };
    let (start, deadline) = (listings(), Instant::now() + TEST_TIMEOUT);
    while listings() < start + count {
        assert!(Instant::now() < deadline, "the watch does not query the server");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a watch as Ctrl-C does, and checks that it ended cleanly.
#[track_caller]
fn interrupt(mut watching: TestProcess, signal: Signal) -> Vec<String> {
    watching.signal(signal).expect("it runs");
    assert_eq!(watching.wait().code(), Some(0), "{:?}", watching.stderr().so_far());
    watching.stdout().read_to_end()
}

#[test]
fn each_changed_result_is_printed_once() {
    let server = Server::start();
    let token = server.acquire("jobs/a", "w1");
    let watching = watch(&server, &["ls", "jobs", "-o", "json"]);
    let names = |document: &Value| {
        document["resources"]
            .as_array()
            .expect("an array")
            .iter()
            .map(|one| one["resource"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&next_json(&watching)), ["jobs/a"]);
    // Neither a renewal nor a change elsewhere is a change of this result.
    server.run(&["renew", "jobs/a", "--token", &token]).ok();
    server.acquire("other", "w1");
    wait_for_listings(&server, 3);
    server.acquire("jobs/b", "w2");
    assert_eq!(names(&next_json(&watching)), ["jobs/a", "jobs/b"]);
    server.run(&["release", "jobs/a", "--token", &token]).ok();
    assert_eq!(names(&next_json(&watching)), ["jobs/b"]);
    wait_for_listings(&server, 3);
    assert_eq!(interrupt(watching, Signal::INT), [""; 0], "nothing was printed twice");
}

#[test]
fn the_results_of_a_stream_have_separators() {
    let server = Server::start();
    server.acquire("a", "w1");
    let yaml = watch(&server, &["show", "a", "-o", "yaml"]);
    assert_eq!(yaml.stdout().next_line().as_deref(), Some("---"));
    yaml.stdout().wait_for("resource: a");
    let table = watch(&server, &["ls"]);
    assert!(table.stdout().next_line().is_some_and(|line| line.starts_with("RESOURCE")));
    table.stdout().wait_for("w1");
    let names = watch(&server, &["ls", "-o", "name"]);
    assert_eq!(names.stdout().next_line().as_deref(), Some("a"));
    server.run(&["revoke", "a", "--comment", "x"]).ok();
    server.acquire("b", "w2");
    table.stdout().wait_for("w2");
    assert!(table.stdout().so_far().contains(&String::new()), "an empty line is between two results");
    names.stdout().wait_for("b");
    for watching in [yaml, table, names] {
        interrupt(watching, Signal::TERM);
    }
}

#[test]
fn every_listing_can_be_watched_until_interrupted() {
    let server = Server::start();
    server.acquire("a", "w1");
    let listings = [
        &["ls"][..],
        &["ls", "--sort", "age"],
        &["show", "a"],
        &["waiters", "a"],
        &["held-by", "w1"],
        &["deadlocks"],
        &["status"],
        &["coverage", "a"],
    ];
    for args in listings {
        let watching = watch(&server, &[args, &["-o", "json"]].concat());
        next_json(&watching);
        interrupt(watching, Signal::TERM);
    }
    server.run(&["ls", "--watch", "--interval", "99ms"]).fails(2, "error: ");
    server.run(&["ls", "--interval", "1s"]).fails(2, "error: ");
    server.run(&["coverage", "a", "--watch", "--probe"]).fails(2, "error: ");
}

#[test]
fn an_empty_result_is_a_message_and_no_line() {
    let server = Server::start();
    let watching = watch(&server, &["ls", "jobs"]);
    watching.stderr().wait_for("no resources under jobs; ");
    server.acquire("jobs/a", "w1");
    watching.stdout().wait_for("jobs/a");
    interrupt(watching, Signal::INT);
}

#[test]
fn a_watch_survives_a_restart_of_the_server_with_one_message() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    server.acquire("jobs/a", "w1");
    let mut command = server.command(&[&["ls", "-o", "name"][..], &FAST].concat());
    let watching = start(command.env("LEASEHOLD_ADDR", proxy.address().to_string()));
    assert_eq!(watching.stdout().next_line().as_deref(), Some("jobs/a"));
    let server = server.crash_and_restart();
    watching.stderr().wait_for("leasehold: UNAVAILABLE");
    watching.stderr().wait_for("leasehold: retrying every 100ms");
    proxy.set_upstream(&server.address);
    assert_eq!(watching.stderr().next_line().as_deref(), Some("leasehold: reconnected"), "one outage is one message");
    server.acquire("jobs/b", "w2");
    watching.stdout().wait_for("jobs/b");
    interrupt(watching, Signal::INT);
}

#[test]
fn the_first_query_fails_at_once_and_a_later_absence_is_temporary() {
    let server = Server::start();
    server.run(&["show", "a", "--watch"]).fails(1, "leasehold: NOT_FOUND");
    let token = server.acquire("a", "w1");
    let watching = watch(&server, &["show", "a", "-o", "name"]);
    assert_eq!(watching.stdout().next_line().as_deref(), Some("a"));
    server.run(&["release", "a", "--token", &token]).ok();
    watching.stderr().wait_for("leasehold: NOT_FOUND");
    server.acquire("a", "w2");
    watching.stderr().wait_for("reconnected");
    interrupt(watching, Signal::INT);
}

#[test]
fn a_closed_reader_ends_a_watch_even_if_nothing_changes() {
    let server = Server::start();
    // Longer than the test waits: the end of the lease would be a change.
    server.run(&["acquire", "a", "--holder", "w1", "--ttl", "10m"]).ok();
    let mut watching = spawn_piped(&mut server.command(&[&["ls", "-o", "json"][..], &FAST].concat()));
    let mut reader = std::io::BufReader::new(watching.stdout.take().expect("the stream is piped"));
    std::io::BufRead::read_line(&mut reader, &mut String::new()).expect("a line");
    drop(reader);
    let mut watching = TestProcess::from(watching);
    assert_eq!(watching.wait().code(), Some(0));
    assert_eq!(watching.stderr().read_to_end(), [""; 0], "nothing is printed on standard error");
}

fn in_terminal(server: &Server, args: &[&str], columns: u16, rows: u16) -> PseudoTerminal {
    let mut command = server.command(&[args, &FAST].concat());
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    PseudoTerminal::start(&command, columns, rows)
}

/// The lines of the last whole frame, without styles.
fn last_frame(output: &str) -> Vec<String> {
    let frames: Vec<_> = output.split("\u{1b}[H").collect();
    let whole = frames.iter().rev().find(|frame| frame.contains("\u{1b}[J")).expect("a frame");
    let text = whole.split("\u{1b}[J").next().unwrap_or_default();
    let mut plain = String::new();
    let mut in_sequence = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => in_sequence = true,
            _ if in_sequence => in_sequence = !c.is_ascii_alphabetic(),
            c => plain.push(c),
        }
    }
    plain.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn a_terminal_is_redrawn_in_place_and_left_as_it_was() {
    let server = Server::start();
    server.acquire("a", "w1");
    let mut terminal = in_terminal(&server, &["ls"], 100, 20);
    let seen = terminal.wait_for_text(0, "w1");
    assert!(terminal.output().starts_with("\u{1b}[?1049h"), "{:?}", terminal.output());
    assert!(terminal.output().contains("every 100ms; Ctrl-C ends"));
    server.acquire("b", "w2");
    terminal.wait_for(seen, "second holder in a frame", |output| output.contains("w2"));
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit(), Some(0));
    terminal.wait_for_text(0, "\u{1b}[?1049l");
    let output = terminal.output();
    let (_, after) = output.rsplit_once("\u{1b}[?1049l").expect("the first screen is shown again");
    assert!(after.contains("w1") && after.contains("w2"), "the last result stays: {after:?}");
    assert!(output.contains("\u{1b}[?25h"), "the cursor is shown again");
}

#[test]
fn a_frame_fits_the_terminal_and_follows_its_size() {
    let server = Server::start();
    for n in 0..30 {
        server.acquire(&format!("a-resource-with-a-long-name/{n:02}"), "a-holder-with-a-long-name");
    }
    let mut terminal = in_terminal(&server, &["ls"], 60, 10);
    let seen = terminal.wait_for_text(0, "more lines");
    let frame = last_frame(&terminal.output());
    assert_eq!(frame.len(), 10, "{frame:?}");
    assert!(frame.iter().all(|line| line.chars().count() <= 60), "{frame:?}");
    assert!(frame[9].starts_with("… 23 more lines"), "1 status line, 8 of 31 lines, and this one: {frame:?}");
    terminal.resize(50, 40);
    terminal.wait_for(seen, "frame of the new size", |output| {
        output.contains("name/29")
            || output.contains("\u{1b}[J") && !last_frame(output).iter().any(|line| line.contains("more lines"))
    });
    let frame = last_frame(&terminal.output());
    assert!(frame.len() == 32 && frame.iter().all(|line| line.chars().count() <= 50), "{frame:?}");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn a_terminal_shows_an_outage_and_keeps_the_last_result() {
    let server = Server::start();
    server.acquire("a", "w1");
    let proxy = TcpProxy::start(&server.address);
    let mut command = server.command(&[&["ls"][..], &FAST].concat());
    command.env("TERM", "xterm").env("LEASEHOLD_ADDR", proxy.address().to_string());
    let mut terminal = PseudoTerminal::start(&command, 200, 20);
    terminal.wait_for_text(0, "w1");
    drop(server);
    let seen = terminal.wait_for_text(0, "retrying, and the result above is old: ");
    terminal.wait_for(seen, "another frame", |output| output.contains("\u{1b}[J"));
    let frame = last_frame(&terminal.output());
    assert!(
        frame.iter().any(|line| line.contains("w1")) && frame.iter().any(|line| line.contains("UNAVAILABLE")),
        "{frame:?}"
    );
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn a_dumb_terminal_gets_no_control_sequences() {
    let server = Server::start();
    server.acquire("a", "w1");
    let mut command = server.command(&[&["ls"][..], &FAST].concat());
    let mut terminal = PseudoTerminal::start(command.env("TERM", "dumb"), 100, 20);
    terminal.wait_for_text(0, "w1");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit(), Some(0));
    assert!(!terminal.output().contains('\u{1b}'), "{:?}", terminal.output());
}
