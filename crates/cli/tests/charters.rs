//! `leasehold charter apply`, `show`, `check` and `remove` with charter files.

mod support;

use std::path::PathBuf;

use support::{CommandRun, Server, leasehold, run};
use tempfile::TempDir;

const COMPLETE: &str = r#"prefix = "jobs/settle"

[charter]
payload = "shard"
validity = "quorum"
observer = "The grantor, on its own clock; a paused holder may still believe."
price_of_failure = "A payment is settled twice: a day of refunds."
authority = ["rows of the ledger for this shard", "the shard's checkpoint"]
ttl_min_ms = 1000
ttl_max_ms = 15000
max_hold_ms = 3600000
uncommitted = "replayed"
after_revocation = "hold_for_operator"
renewal = { proves = "progress", window_ms = 30000 }
handoff = { mode = "gap", drain_ms = 5000 }
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
        std::fs::write(&path, text).expect("the directory exists");
        path.to_str().expect("a UTF-8 path").to_owned()
    }
}

fn check(file: &str, options: &[&str]) -> CommandRun {
    run(&mut leasehold(&[&["charter", "check", file], options].concat()))
}

#[test]
fn a_complete_charter_answers_every_question_offline() {
    let files = Files::new();
    let file = files.write("settle.toml", COMPLETE);
    let result = check(&file, &[]).ok();
    assert!(result.out.starts_with("charter of jobs/settle\nok    validity: "), "{result:?}");
    assert!(!result.out.contains("OPEN") && result.err.is_empty(), "{result:?}");
    let body = check(&file, &["--json"]).ok().json();
    assert_eq!((&body[0]["prefix"], &body[0]["complete"]), (&"jobs/settle".into(), &true.into()));
    assert_eq!(body[0]["findings"].as_array().map(Vec::len), Some(16));
}

#[test]
fn an_unanswered_question_fails_the_check_and_names_the_field() {
    let files = Files::new();
    let file = files.write("settle.toml", &COMPLETE.replace("validity = \"quorum\"\n", ""));
    let result = check(&file, &[]);
    assert_eq!((result.exit, result.err.as_str()), (8, "leasehold: 1 question is unanswered; answer it in the file\n"));
    assert!(
        result.out.contains("OPEN  validity: ") && result.out.contains("set `validity` to \"session\""),
        "{result:?}"
    );
    let body = check(&file, &["--json"]);
    assert_eq!(body.exit, 8);
    let finding = &body.json()[0]["findings"][0];
    assert_eq!((&finding["answered"], &finding["answer"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn a_charter_is_applied_shown_as_a_charter_file_and_removed() {
    let (server, files) = (Server::start(), Files::new());
    let complete = COMPLETE.replace("validity = \"quorum\"", "validity = \"session\"");
    let file = files.write("settle.toml", &complete);
    let applied = server.json(&["charter", "apply", &file, "--comment", "agreed"]);
    assert_eq!(applied, serde_json::json!({ "done": true, "prefixes": ["jobs/settle"], "unanswered": 0 }));
    server
        .run(&["acquire", "jobs/settle/7", "--holder", "w", "--ttl", "20s"])
        .fails(2, "leasehold: INVALID_ARGUMENT{ttl");

    let shown = server.run(&["charter", "show"]).ok().out;
    let again = files.write("again.toml", &shown);
    server.run(&["charter", "apply", &again, "--comment", "the same"]).ok();
    assert_eq!(server.run(&["charter", "show"]).ok().out, shown);
    let listed = server.json(&["charter", "show"]);
    assert_eq!((&listed[0]["prefix"], &listed[0]["charter"]["payload"]), (&"jobs/settle".into(), &"shard".into()));
    let in_json = files.write("again.json", &listed.to_string());
    server.run(&["charter", "apply", &in_json, "--comment", "the same"]).ok();
    let count = |prefix: &str| server.json(&["charter", "show", prefix]).as_array().map(Vec::len);
    assert_eq!(
        (count("jobs"), count("jobs/settle/7"), count("jobs/set"), count("other")),
        (Some(1), Some(1), Some(0), Some(0))
    );

    server.run(&["charter", "remove", "jobs/settle", "--comment", "over"]).ok();
    assert_eq!(server.json(&["charter", "show"]), serde_json::json!([]));
    server.run(&["charter", "remove", "jobs/settle", "--comment", "over"]).fails(1, "leasehold: NOT_FOUND{");
    server.run(&["charter", "show", "a//b"]).fails(2, "leasehold: INVALID_ARGUMENT{prefix}: ");
    assert_eq!(server.run(&["charter", "apply", &file]).exit, 2, "a comment is required");
}

#[test]
fn an_invalid_file_is_rejected_with_its_position_and_changes_nothing() {
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
        ("word.toml", "prefix = \"a\"\n[charter]\nvalidity = \"luck\"\n".to_owned(), "session, quorum or issuer"),
        ("nothing.toml", String::new(), "either prefix and charter, or charters"),
        ("second.toml", two("capacity = 0"), "the charter of b: capacity"),
        ("garbled.toml", "prefix = [\n".to_owned(), "garbled.toml, "),
        ("twice.json", r#"{"prefix":"a","prefix":"b","charter":{}}"#.to_owned(), ", 1, prefix}: "),
        ("deep.json", "[".repeat(10_000), "deep.json, 1}: "),
        ("settle.yaml", "prefix: a".to_owned(), "neither .toml nor .json"),
        ("mark.toml", "\u{feff}prefix = \"a\"".to_owned(), "byte-order mark"),
        ("large.toml", "#".repeat((1 << 20) + 1), "larger than 1048576 bytes"),
    ];
    for (name, text, message) in table {
        let file = files.write(name, &text);
        for result in [check(&file, &[]), server.run(&["charter", "apply", &file, "--comment", "x"])] {
            let result = result.fails(78, "leasehold: CONFIG{");
            assert!(result.err.contains(message) && result.err.lines().count() == 1, "{name}: {result:?}");
        }
    }
    assert_eq!(server.json(&["charter", "show"]), serde_json::json!([]), "no charter was applied");
    check(files.0.path().to_str().expect("a UTF-8 path"), &[]).fails(78, "leasehold: CONFIG{");
    check("/nowhere/at/all.toml", &[]).fails(78, "leasehold: CONFIG{/nowhere/at/all.toml}: ");
}

#[test]
fn applying_a_charter_warns_of_what_the_check_reports() {
    let (server, files) = (Server::start(), Files::new());
    let file = files.write("open.toml", "prefix = \"jobs\"\n[charter]\nttl_max_ms = 60000\n");
    let applied = server.run(&["charter", "apply", &file, "--comment", "a start"]).ok();
    assert_eq!(applied.out, "applied the charter of jobs\n");
    assert!(applied.err.starts_with("leasehold: warning: 12 questions are unanswered; run leasehold charter check "));
    assert_eq!(check(&file, &[]).exit, 8);
}

#[test]
fn the_advice_of_the_check_is_accepted_by_the_parser() {
    let files = Files::new();
    let open = files.write("open.toml", "prefix = \"jobs\"\n[charter]\n");
    let advice = check(&open, &[]).out;
    assert!(advice.contains("set `renewal` = { proves = \"pulse\" }"), "{advice}");
    let followed = files.write("followed.toml", "prefix = \"jobs\"\n[charter]\nrenewal = { proves = \"pulse\" }\n");
    assert_eq!(check(&followed, &[]).exit, 8, "other questions are open");
    let tables = [
        ("renewal = \"pulse\"", "{ proves = \"pulse\" }"),
        ("handoff = \"gap\"", "{ mode = \"gap\", drain_ms = 30000 }"),
        ("starts_from = \"newest\"", "{ at = \"newest\" }"),
        ("at_expiry = \"free\"", "{ then = \"free\" }"),
        ("preemption = \"never\"", "{ rule = \"never\" }"),
        ("targets = [\"ledger\"]", "{ name = \"ledger\", "),
        ("ttl_max_ms = \"10s\"", "a whole number"),
    ];
    for (line, expected) in tables {
        let file = files.write("wrong.toml", &format!("prefix = \"jobs\"\n[charter]\n{line}\n"));
        let refused = check(&file, &[]).fails(78, "leasehold: CONFIG{");
        assert!(refused.err.contains(expected), "{line}: {refused:?}");
        assert!(!refused.err.contains("struct") && !refused.err.contains("Body"), "{line}: {refused:?}");
    }
}
