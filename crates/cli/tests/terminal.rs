//! Texts from servers and files never control the terminal that they are printed on.

mod support;

use std::net::SocketAddr;

use leasehold_wire::{Code, problem_to_status, v1};
use support::{CommandRun, leasehold, run};

/// Clears the screen, rings the bell, sets a title, the same in C1 form, reverses the writing direction, starts a line.
const HOSTILE: &str = "x\u{1b}[2J\u{7}\u{1b}]0;t\u{7}\u{9b}31m\u{202e}\u{2066}\nleasehold: granted";

/// A server that answers every call with this problem.
fn refusing_server(problem: v1::Problem) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the listener is bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            listener.set_nonblocking(true).expect("a socket");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let handler = move || {
                let problem = problem.clone();
                async move { problem_to_status(problem).into_http::<axum::body::Body>() }
            };
            axum::serve(listener, axum::Router::new().fallback(handler)).await.expect("it serves");
        });
    });
    address
}

#[track_caller]
fn assert_harmless(run: &CommandRun) {
    for text in [&run.out, &run.err] {
        let found = text
            .chars()
            .find(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
        assert_eq!(found, None, "{run:?}");
    }
}

#[test]
fn a_hostile_server_cannot_control_the_terminal() {
    let problem = v1::Problem {
        next_step: HOSTILE.into(),
        reason: HOSTILE.into(),
        subject: HOSTILE.into(),
        ..v1::Problem::of(Code::NotFound, HOSTILE)
    };
    let address = refusing_server(problem).to_string();
    for command in [&["show", "a"][..], &["ls"], &["status"], &["free", "a", "--comment", "c"], &["watch"]] {
        let text = run(&mut leasehold(&[command, &["--addr", &address]].concat()));
        assert_harmless(&text);
        assert_eq!((text.exit, text.err.trim_end().lines().count()), (1, 1), "a server cannot add a line: {text:?}");
        let json = run(&mut leasehold(&[command, &["--addr", &address, "--json"]].concat()));
        assert_harmless(&json);
        assert_eq!(json.problem()["detail"], HOSTILE, "the value is unchanged: {json:?}");
    }
}

#[test]
fn a_hostile_file_cannot_control_the_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hostile.json");
    let body = serde_json::json!({ "prefix": "a", "charter": { "owner": "o", HOSTILE: 1 } });
    std::fs::write(&file, body.to_string()).expect("the directory is writable");
    let refused = run(&mut leasehold(&["charter", "check", file.to_str().expect("a UTF-8 path")]));
    assert_harmless(&refused);
    assert_eq!((refused.exit, refused.err.trim_end().lines().count()), (78, 1), "{refused:?}");
}
