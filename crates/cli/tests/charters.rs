//! `charter apply`, `show`, `check` and `remove`, with files as people write them.

mod support;

use std::path::PathBuf;

use support::{Server, Told, leasehold, run};
use tempfile::TempDir;

const COMPLETE: &str = r#"prefix = "jobs/settle"

[charter]
payload = "shard"
rung = "quorum"
observer = "The grantor, on its own clock; a paused holder may still believe."
price_of_failure = "A payment is settled twice: a day of refunds."
authority = ["rows of the ledger for this shard", "the shard's checkpoint"]
ttl_min_ms = 1000
ttl_max_ms = 15000
max_hold_ms = 3600000
uncommitted = "replayed"
after_revocation = "hold_for_operator"
renewal = { proves = "progress", window_ms = 30000 }
handoff = { style = "gap", drain_ms = 5000 }
starts_from = { at = "newest" }

[[charter.targets]]
name = "ledger"
at = "the ledger's database"
mode = "forced"

[[charter.targets]]
name = "checkpoint"
at = "the grantor"
mode = "grantor"
"#;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).expect("the directory is there");
        path.to_str().expect("a text").to_owned()
    }
}

fn check(file: &str, how: &[&str]) -> Told {
    run(&mut leasehold(&[&["charter", "check", file], how].concat()))
}

#[test]
fn a_complete_charter_answers_every_question_offline() {
    let files = Files::new();
    let file = files.write("settle.toml", COMPLETE);
    let told = check(&file, &[]).ok();
    assert!(told.out.starts_with("the charter of jobs/settle\nok    rung: "), "{told:?}");
    assert!(!told.out.contains("OPEN") && told.err.is_empty(), "{told:?}");
    let body = check(&file, &["--json"]).ok().json();
    assert_eq!((&body[0]["prefix"], &body[0]["complete"]), (&"jobs/settle".into(), &true.into()));
    assert_eq!(body[0]["findings"].as_array().map(Vec::len), Some(16));
}

#[test]
fn an_open_question_fails_with_what_to_write_where() {
    let files = Files::new();
    let file = files.write("settle.toml", &COMPLETE.replace("rung = \"quorum\"\n", ""));
    let told = check(&file, &[]);
    assert_eq!((told.exit, told.err.as_str()), (8, "leasehold: 1 question is left open; answer it in the file\n"));
    assert!(told.out.contains("OPEN  rung: ") && told.out.contains("set `rung` to session"), "{told:?}");
    let body = check(&file, &["--json"]);
    assert_eq!(body.exit, 8);
    let finding = &body.json()[0]["findings"][0];
    assert_eq!((&finding["answered"], &finding["answer"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn a_charter_is_applied_shown_as_a_file_and_removed() {
    let (server, files) = (Server::start(), Files::new());
    let complete = COMPLETE.replace("rung = \"quorum\"", "rung = \"session\"");
    let file = files.write("settle.toml", &complete);
    let applied = server.json(&["charter", "apply", &file, "--reason", "agreed"]);
    assert_eq!(applied, serde_json::json!({ "done": true, "prefixes": ["jobs/settle"] }));
    server
        .run(&["acquire", "jobs/settle/7", "--holder", "w", "--ttl", "20s"])
        .fails(2, "leasehold: INVALID_ARGUMENT{ttl");

    let shown = server.run(&["charter", "show"]).ok().out;
    let again = files.write("again.toml", &shown);
    server.run(&["charter", "apply", &again, "--reason", "the same"]).ok();
    assert_eq!(server.run(&["charter", "show"]).ok().out, shown);
    let listed = server.json(&["charter", "show"]);
    assert_eq!((&listed[0]["prefix"], &listed[0]["charter"]["payload"]), (&"jobs/settle".into(), &"shard".into()));
    let in_json = files.write("again.json", &listed.to_string());
    server.run(&["charter", "apply", &in_json, "--reason", "the same"]).ok();
    let count = |prefix: &str| server.json(&["charter", "show", prefix]).as_array().map(Vec::len);
    assert_eq!(
        (count("jobs"), count("jobs/settle/7"), count("jobs/set"), count("other")),
        (Some(1), Some(1), Some(0), Some(0))
    );

    server.run(&["charter", "remove", "jobs/settle", "--reason", "over"]).ok();
    assert_eq!(server.json(&["charter", "show"]), serde_json::json!([]));
    server.run(&["charter", "remove", "jobs/settle", "--reason", "over"]).fails(1, "leasehold: NOT_FOUND{");
    server.run(&["charter", "show", "a//b"]).fails(2, "leasehold: INVALID_ARGUMENT{prefix}: ");
    assert_eq!(server.run(&["charter", "apply", &file]).exit, 2, "a reason goes on record");
}

#[test]
fn a_wrong_file_changes_nothing_and_is_refused_with_its_place() {
    let (server, files) = (Server::start(), Files::new());
    let two = |second: &str| {
        format!(
            "[[charters]]\nprefix = \"a\"\n[charters.charter]\n[[charters]]\nprefix = \"b\"\n[charters.charter]\n{second}\n"
        )
    };
    let table = [
        ("unknown.toml", "prefix = \"a\"\n[charter]\nttl_mx_ms = 1\n".to_owned(), ", 3, ttl_mx_ms}: "),
        ("twice.toml", "prefix = \"a\"\nprefix = \"b\"\n[charter]\n".to_owned(), ", 2, prefix}: "),
        ("kind.toml", "prefix = \"a\"\n[charter]\nttl_max_ms = \"10s\"\n".to_owned(), ", 3, ttl_max_ms}: "),
        ("negative.toml", "prefix = \"a\"\n[charter]\ncapacity = -1\n".to_owned(), ", 3, capacity}: "),
        (
            "order.toml",
            "prefix = \"a\"\n[charter]\nttl_min_ms = 9000\nttl_max_ms = 1000\n".to_owned(),
            ", ttl_min_ms}: ",
        ),
        ("word.toml", "prefix = \"a\"\n[charter]\nrung = \"luck\"\n".to_owned(), "session, quorum or issuer"),
        ("nothing.toml", String::new(), "either prefix and charter, or charters"),
        ("second.toml", two("capacity = 0"), "the charter of b: capacity"),
        ("garbled.toml", "prefix = [\n".to_owned(), "garbled.toml, "),
        ("twice.json", r#"{"prefix":"a","prefix":"b","charter":{}}"#.to_owned(), ", 1, prefix}: "),
        ("deep.json", "[".repeat(10_000), "deep.json, 1}: "),
        ("settle.yaml", "prefix: a".to_owned(), "neither .toml nor .json"),
        ("mark.toml", "\u{feff}prefix = \"a\"".to_owned(), "byte-order mark"),
        ("large.toml", "#".repeat((1 << 20) + 1), "more than 1048576 bytes"),
    ];
    for (name, text, says) in table {
        let file = files.write(name, &text);
        for told in [check(&file, &[]), server.run(&["charter", "apply", &file, "--reason", "x"])] {
            let told = told.fails(78, "leasehold: CONFIG{");
            assert!(told.err.contains(says) && told.err.lines().count() == 1, "{name}: {told:?}");
        }
    }
    assert_eq!(server.json(&["charter", "show"]), serde_json::json!([]), "nothing was set");
    check(files.0.path().to_str().expect("a text"), &[]).fails(78, "leasehold: CONFIG{");
    check("/nowhere/at/all.toml", &[]).fails(78, "leasehold: CONFIG{/nowhere/at/all.toml}: ");
}
