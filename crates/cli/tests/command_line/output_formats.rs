//! `-o table|wide|json|yaml|name`, `--color`, `-q`, and messages of empty listings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_testkit::process::TestProcess;
use serde_json::{Value, json};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::{Server, leasehold, run, run_with_stdin, spawn_piped, text};

/// The interpreter with PyYAML. `./test` installs it and sets LEASEHOLD_MOTO.
fn python() -> PathBuf {
    let configured = std::env::var_os("LEASEHOLD_MOTO").map(PathBuf::from);
    let environment = configured.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto"));
    environment.join("bin/python")
}

/// Reads YAML documents with the parser that most scripts use.
#[track_caller]
fn parse_yaml(text: &str) -> Vec<Value> {
    let program = "import json, sys, yaml\njson.dump(list(yaml.safe_load_all(sys.stdin.buffer)), sys.stdout)";
    let parsed = run_with_stdin(Command::new(python()).args(["-c", program]), text);
    assert_eq!(parsed.exit, 0, "{parsed:?}\n{text}");
    serde_json::from_str(&parsed.out).expect("python prints JSON")
}

/// Texts that are something else without quotes, or that could control a terminal.
const DIFFICULT: [&str; 14] = [
    "0258755447193600007",
    "true",
    "No",
    "null",
    "~",
    "1:30",
    "2026-01-01",
    "a: b",
    "- a",
    "#",
    "two\nlines\n",
    " x ",
    "quote \" and \\",
    "\u{1b}[31mred\u{202e}\u{7}",
];

#[test]
fn yaml_is_the_same_document_as_json() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let mut accepted = 0;
    for (at, value) in DIFFICULT.iter().enumerate() {
        let file = directory.path().join(format!("{at}.json"));
        let target = json!({ "name": value, "at": value, "mode": "none" });
        let body = json!({ "prefix": format!("team/{at}"), "charter": { "targets": [target] } });
        std::fs::write(&file, body.to_string()).expect("the directory is writable");
        let apply = ["charter", "apply", file.to_str().expect("a UTF-8 path"), "--comment", "for the test"];
        // The server refuses some texts.
        accepted += usize::from(server.run(&apply).exit == 0);
        // The name of a key that does not exist is in the error.
        std::fs::write(&file, json!({ "prefix": "team", "charter": { *value: 1 } }).to_string()).expect("a file");
        let json = server.run(&[&apply[..], &["-o", "json"]].concat()).problem();
        let yaml = server.run(&[&apply[..], &["-o", "yaml"]].concat());
        assert_eq!(parse_yaml(&yaml.err), [json], "{yaml:?}");
    }
    assert!(accepted > 8, "only {accepted} texts were accepted");
    server.acquire("team/a", "w1");
    for args in [
        &["charter", "show"][..],
        &["history"],
        &["usage"],
        &["coverage", "team/a"],
        &["deadlocks"],
        &["held-by", "no one"],
    ] {
        let json = server.run(&[args, &["-o", "json"]].concat());
        let yaml = server.run(&[args, &["-o", "yaml"]].concat());
        assert_eq!((json.exit, &json.err), (yaml.exit, &yaml.err), "{args:?}");
        assert_eq!(parse_yaml(&yaml.out), [json.json()], "{args:?}: {}", yaml.out);
    }
    let token = server.acquire("team/b", "w1");
    let parts = run(&mut leasehold(&["token", &token, "-o", "yaml"])).ok();
    let number = &parse_yaml(&parts.out)[0]["number"];
    assert!(number.is_string(), "a token number is a text, because many parsers round large numbers: {parts:?}");
}

#[test]
fn errors_have_the_format_of_results() {
    let server = Server::start();
    let missing = |format: &str| server.run(&["show", "nothing", "-o", format]);
    for format in ["table", "wide", "name"] {
        missing(format).fails(1, "leasehold: NOT_FOUND{resource}: ");
    }
    assert_eq!(missing("json").problem()["code"], "NOT_FOUND");
    let yaml = missing("yaml");
    assert_eq!((yaml.exit, yaml.out.as_str()), (1, ""));
    assert_eq!(parse_yaml(&yaml.err)[0], missing("json").problem());
    // A command that runs prints a stream of documents.
    let mut elect = server.command(&["elect", "jobs/a", "--pause", "10ms", "-o", "yaml", "--", "false"]);
    let electing = TestProcess::from(spawn_piped(&mut elect));
    let lines: Vec<_> = (0..4).map(|_| electing.stderr().next_line().expect("a message")).collect();
    let messages = parse_yaml(&lines.join("\n"));
    assert_eq!(messages.len(), 2, "{lines:?}");
    assert!(messages[0]["detail"].as_str().is_some_and(|text| text.starts_with("jobs/a: elected leader")), "{lines:?}");
    assert_eq!(messages[1], json!({ "detail": "jobs/a: the command exited with 1; campaigns again" }), "{lines:?}");
    // Wrong usage too, although it is found before the options are read.
    let usage = run(&mut leasehold(&["ls", "--no-such-option", "-o", "yaml"]));
    assert_eq!((usage.exit, parse_yaml(&usage.err)[0]["code"].as_str()), (2, Some("INVALID_ARGUMENT")), "{usage:?}");
}

#[test]
fn contradicting_output_options_are_wrong_usage() {
    let server = Server::start();
    for format in ["table", "wide", "yaml", "name"] {
        let refused = server.run(&["ls", "--json", "-o", format]);
        assert_eq!((refused.exit, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(
            refused.err.contains(&format!("--json means -o json and cannot be used with -o {format}")),
            "{refused:?}"
        );
    }
    server.run(&["ls", "--json", "-o", "json"]).ok();
    server.run(&["-o", "json", "ls"]).ok();
    server.run(&["ls", "--output=yaml"]).ok();
    server.run(&["ls", "-o", "xml"]).fails(2, "error: ");
}

#[test]
fn names_are_printed_one_per_line() {
    let server = Server::start();
    for (resource, holder) in [("jobs/a", "w1"), ("jobs/b", "worker two"), ("other", "w1")] {
        server.acquire(resource, holder);
    }
    let waiter = ["acquire", "jobs/a", "--holder", "w3", "--ttl", "60s", "--wait", "60s"];
    let _waiting = TestProcess::from(spawn_piped(&mut server.command(&waiter)));
    server.wait_for_waiter("jobs/a");
    let names = |args: &[&str]| {
        let result = server.run(&[args, &["-o", "name"]].concat());
        assert!(matches!(result.exit, 0 | 8), "{result:?}");
        result.out
    };
    assert_eq!(names(&["ls"]), "jobs/a\njobs/b\nother\n");
    assert_eq!(names(&["ls", "jobs"]), "jobs/a\njobs/b\n");
    assert_eq!(names(&["ls", "--holder", "worker two"]), "jobs/b\n");
    assert_eq!(names(&["show", "other"]), "other\n");
    assert_eq!(names(&["held-by", "w1"]), "jobs/a\nother\n");
    assert_eq!(names(&["waiters", "jobs/a"]), "w3\n");
    assert_eq!(names(&["cluster", "status"]), format!("{}\n", server.address));
    assert_eq!(
        (names(&["deadlocks"]), names(&["usage"]), names(&["coverage", "other"])),
        (String::new(), String::new(), String::new())
    );
    assert_eq!(names(&["history", "other"]).lines().count(), 1);
    assert!(names(&["history", "other"]).trim().parse::<u64>().is_ok());
}

#[test]
fn a_command_without_names_refuses_them_before_it_does_anything() {
    let server = Server::start();
    let token = server.acquire("held", "w1");
    let commands = [
        &["acquire", "new", "--holder", "w1", "--ttl", "30s"][..],
        &["release", "held", "--token", &token],
        &["revoke", "held", "--comment", "x"],
        &["run", "new", "--", "true"],
        &["status"],
        &["doctor"],
    ];
    for args in commands {
        let refused = server.run(&[&args[..1], &["-o", "name"], &args[1..]].concat());
        assert_eq!(refused.exit, 2, "{refused:?}");
        let message = format!("the result of leasehold {} has no names; use -o table, wide, json or yaml", args[0]);
        assert!(refused.err.contains(&message), "{refused:?}");
    }
    assert_eq!(server.run(&["ls", "-o", "name"]).ok().out, "held\n", "nothing was acquired, released or revoked");
}

#[test]
fn wide_adds_columns_to_those_of_the_table() {
    let server = Server::start();
    server.acquire("a", "w1");
    server.run(&["acquire", "b", "--holder", "w2", "--ttl", "60s", "--units", "1"]);
    let header = |args: &[&str]| {
        let out = server.run(args).out;
        let line = out.lines().find(|line| line.starts_with(char::is_uppercase)).unwrap_or_default();
        line.split("  ").map(|title| title.trim().to_owned()).filter(|title| !title.is_empty()).collect::<Vec<_>>()
    };
    let added: [(&[&str], &[&str]); 7] = [
        (&["ls"], &["LEASE", "SESSION", "TTL", "GRANTED AT", "VALIDITY"]),
        (&["ls", "--sort", "name"], &["LEASE", "SESSION", "TTL", "PRIORITY", "METADATA"]),
        (&["show", "a"], &["ACCESS", "TTL", "GRANTED AT"]),
        (&["held-by", "w1"], &["ACCESS", "TTL", "PROGRESS"]),
        (&["history"], &["LEASE", "SESSION", "VIA", "POSITION"]),
        (&["coverage", "a"], &["AT", "SINCE", "REFUSALS"]),
        (&["cluster", "status"], &[]),
    ];
    for (args, titles) in added {
        let (table, wide) = (header(args), header(&[args, &["-o", "wide"]].concat()));
        assert!(wide.len() >= table.len() + titles.len(), "{args:?}: {table:?} {wide:?}");
        assert!(table.iter().all(|title| wide.contains(title)), "{args:?}: {table:?} {wide:?}");
        for title in titles {
            assert!(wide.iter().any(|one| one == title) && !table.iter().any(|one| one == title), "{args:?}: {title}");
        }
    }
    let row = server.run(&["ls", "-o", "wide"]).ok().out.lines().nth(1).expect("a row").to_owned();
    assert!(row.contains("1m 0s") || row.contains("1m"), "the ttl is shown: {row}");
    let status = server.run(&["status", "-o", "wide"]).ok().out;
    assert!(status.contains("position") && !server.run(&["status"]).ok().out.contains("position"), "{status}");
}

#[test]
fn an_empty_listing_leaves_a_pipe_empty_and_names_the_next_step() {
    let server = Server::start();
    server.acquire("held", "w1");
    let directory = tempfile::tempdir().expect("a directory");
    let keys = directory.path().to_str().expect("a UTF-8 path");
    let sqlite = format!("sqlite:{keys}/empty.db");
    rusqlite::Connection::open(directory.path().join("empty.db"))
        .expect("a database")
        .execute("CREATE TABLE t (a)", ())
        .expect("a table");
    let cases: [(&[&str], &str, Option<Value>); 11] = [
        (&["ls", "team/a"], "no resources under team/a; ", None),
        (&["ls", "--stuck"], "no held lease has these properties; `leasehold ls --sort name`", None),
        (&["ls", "team/a", "--stuck"], "no held lease under team/a has these properties; ", None),
        (&["held-by", "no one"], "no one holds no lease; `leasehold usage 'no one'`", Some(json!([]))),
        (&["waiters", "held"], "no one waits for held; `leasehold show held`", Some(json!([]))),
        (&["deadlocks"], "no deadlock in the memory of the server; ", Some(json!([]))),
        (&["usage"], "no lease has ended; ", Some(json!([]))),
        (&["history", "nothing"], "no audit entry of nothing in this range; ", None),
        (&["proposals"], "no command waits for an approval; ", Some(json!([]))),
        (&["charter", "show"], "no charters; ", Some(json!([]))),
        (&["keys", "list", "--keys", keys], "no keys in ", None),
    ];
    for (args, message, document) in cases {
        for format in ["table", "wide"] {
            let empty = server.run(&[args, &["-o", format]].concat()).ok();
            assert_eq!(empty.out, "", "{args:?}");
            assert!(empty.err.starts_with(&format!("leasehold: {message}")), "{args:?}: {empty:?}");
        }
        let names = server.run(&[args, &["-o", "name"]].concat()).ok();
        assert_eq!((names.out.as_str(), names.err.as_str()), ("", ""), "{args:?}");
        let json = server.run(&[args, &["-o", "json"]].concat()).ok();
        assert_eq!(json.err, "", "{args:?}");
        assert!(document.is_none_or(|document| json.json() == document), "{json:?}");
        let yaml = server.run(&[args, &["-o", "yaml"]].concat()).ok();
        assert_eq!(parse_yaml(&yaml.out).len(), 1, "the empty document is printed: {yaml:?}");
    }
    let none = server.run(&["fence", "marks", &sqlite]);
    assert!(none.exit != 0 || none.out.is_empty() && none.err.contains("has no marks; "), "{none:?}");
}

#[test]
fn quiet_commands_answer_with_their_exit_code() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let check = server.run(&["check", "a", "--token", &token, "-q"]).ok();
    assert_eq!((check.out.as_str(), check.err.as_str()), ("", ""));
    server.run(&["release", "a", "--token", &token]).ok();
    server.run(&["check", "a", "--token", &token, "--quiet"]).fails(3, "leasehold: LEASE_LOST");
    assert_eq!(server.run(&["health", "-q"]).ok().out, "");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("leasehold.toml");
    std::fs::write(&file, "max_ttl = \"5m\"\n").expect("the directory is writable");
    let file = file.to_str().expect("a UTF-8 path");
    assert_eq!(run(&mut leasehold(&["config", "check", file, "-q"])).ok().out, "");
    let charter = directory.path().join("c.toml");
    std::fs::write(&charter, "prefix = \"a\"\n[charter]\n").expect("the directory is writable");
    let open = run(&mut leasehold(&["charter", "check", charter.to_str().expect("a UTF-8 path"), "-q"]));
    assert_eq!((open.exit, open.out.as_str()), (8, ""), "{open:?}");
    assert!(open.err.contains("unanswered"), "{open:?}");
    server.run(&["acquire", "b", "--holder", "w", "--ttl", "9s", "-q", "-o", "table"]).fails(2, "error: ");
}

#[test]
fn colors_are_for_terminals_only() {
    let server = Server::start();
    server.acquire("a", "w1");
    let on_pipe = |args: &[&str]| server.run(args).ok().out;
    let bold = "\u{1b}[1mRESOURCE\u{1b}[0m";
    assert!(!on_pipe(&["ls"]).contains('\u{1b}'));
    assert!(on_pipe(&["ls", "--color", "always"]).starts_with(bold));
    assert!(!on_pipe(&["ls", "--color", "always", "-o", "json"]).contains('\u{1b}'), "a document has no colors");
    assert!(!on_pipe(&["ls", "--color", "always", "-o", "name"]).contains('\u{1b}'));
    let in_terminal = |args: &[&str], name: &str, value: &str| {
        let mut command = server.command(args);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env(name, value);
        let mut terminal = PseudoTerminal::start(&command, 120, 30);
        assert_eq!(terminal.wait_for_exit(), Some(0));
        terminal.wait_for_text(0, "w1");
        terminal.output()
    };
    assert!(in_terminal(&["ls"], "OTHER", "").starts_with(bold));
    assert!(in_terminal(&["ls"], "NO_COLOR", "").starts_with(bold), "an empty variable is not set");
    assert!(!in_terminal(&["ls"], "NO_COLOR", "1").contains('\u{1b}'));
    assert!(!in_terminal(&["ls"], "TERM", "dumb").contains('\u{1b}'));
    assert!(!in_terminal(&["ls", "--color", "never"], "OTHER", "").contains('\u{1b}'));
    assert!(in_terminal(&["ls", "--color", "always"], "NO_COLOR", "1").starts_with(bold), "an option overrides it");
}

#[test]
fn a_color_never_says_more_than_the_words() {
    let server = Server::start();
    server.acquire("a", "w1");
    for args in [&["ls"][..], &["coverage", "a"], &["cluster", "status"], &["status"]] {
        let plain = server.run(args).out;
        let colored = server.run(&[args, &["--color", "always"]].concat()).out;
        let mut text = colored;
        for style in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m"] {
            text = text.replace(style, "");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let shape = |text: &str| text.lines().map(|line| line.split_whitespace().count()).collect::<Vec<_>>();
        assert_eq!(shape(&text), shape(&plain), "{args:?}");
    }
    let hole = server.run(&["coverage", "a", "--color", "always"]);
    assert!(hole.out.contains("\u{1b}[1;31mno_target\u{1b}[0m"), "{hole:?}");
}

#[test]
fn watched_events_have_every_format() {
    let server = Server::start();
    let watch = |format: &str| {
        let mut command = server.command(&["watch", "-o", format]);
        let watching = TestProcess::from(spawn_piped(command.stdin(Stdio::null())));
        watching.stderr().wait_for("watching");
        watching
    };
    let (yaml, name) = (watch("yaml"), watch("name"));
    server.acquire("jobs/a", "w1");
    assert_eq!(name.stdout().next_line().as_deref(), Some("jobs/a"));
    assert_eq!(yaml.stdout().next_line().as_deref(), Some("---"));
    yaml.stdout().wait_for("event: granted");
    let token_line = yaml.stdout().wait_for("token_number: ");
    assert!(token_line.contains('"'), "a token number is a text: {token_line}");
    let shown = server.json(&["show", "jobs/a"]);
    assert!(token_line.contains(&text(&shown["leases"][0]["token_number"])));
}
