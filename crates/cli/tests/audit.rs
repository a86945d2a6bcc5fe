//! `leasehold history`, `audit export` and `audit verify` against a real server.

mod support;

use std::fs;

use serde_json::Value;
use support::{Server, UNUSED_ADDRESS, keys, leasehold, run, text};

/// Kind and holder of each entry.
fn kinds_and_holders(history: &Value) -> Vec<(String, String)> {
    let entries = history["entries"].as_array().expect("an array");
    entries.iter().map(|entry| (text(&entry["kind"]), text(&entry["holder"]))).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(kind, holder)| (kind.to_owned(), holder.to_owned())).to_vec()
}

/// A server with grants, a release, a handoff and a revocation in its audit trail.
fn server_with_history() -> Server {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    server.acquire("other", "w9");
    server.run(&["release", "a", "--token", &token]).ok();
    server.acquire("a", "w2");
    server.run(&["handoff", "a", "--to", "w3", "--gap"]).ok();
    server.run(&["revoke", "a", "--comment", "wrong version"]).ok();
    server
}

#[test]
fn history_lists_every_change_of_a_resource_newest_first() {
    let server = server_with_history();
    let history = server.json(&["history", "a"]);
    assert_eq!(keys(&history), ["entries", "hash", "last", "position"]);
    let all = [("ended", "w2"), ("handoff", "w2"), ("granted", "w2"), ("ended", "w1"), ("granted", "w1")];
    assert_eq!(kinds_and_holders(&history), pairs(all));
    let revoked = &history["entries"][0];
    assert_eq!((&revoked["state"], &revoked["reason"]), (&"revoked".into(), &"operator".into()));
    assert_eq!((&revoked["comment"], &revoked["resource"]), (&"wrong version".into(), &"a".into()));
    assert_eq!((&history["entries"][1]["to"], &history["entries"][3]["reason"]), (&"w3".into(), &"released".into()));
    assert!(revoked["token_number"].is_string() && !history.to_string().contains("lh1-"));

    let table = server.run(&["history", "a"]).ok();
    assert_eq!(table.err, "", "the listing is complete");
    let first = table.out.lines().nth(1).expect("a row");
    assert!(first.contains("revoked: operator") && first.ends_with("wrong version"), "{first}");

    let mut turned = server.json(&["history", "a", "--oldest-first"]);
    turned["entries"].as_array_mut().expect("an array").reverse();
    assert_eq!(turned["entries"], history["entries"]);
    assert_eq!(server.json(&["history", "nothing"])["entries"], serde_json::json!([]));
    let everything = server.json(&["history"]);
    assert_eq!(everything["last"].as_u64(), everything["entries"].as_array().map(|all| all.len() as u64));
}

#[test]
fn history_stops_at_its_limit_and_continues_from_there() {
    let server = server_with_history();
    for (order, option) in [(None, "--before"), (Some("--oldest-first"), "--after")] {
        let mut whole = vec!["history", "a"];
        whole.extend(order);
        let whole = server.json(&whole)["entries"].clone();
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut args = vec!["history", "a", "--limit", "2", "--json"];
            args.extend(order);
            args.extend(cursor.iter().flat_map(|entry| [option, entry]));
            let page = server.run(&args).ok();
            let entries = page.json()["entries"].as_array().expect("an array").clone();
            assert!(entries.len() <= 2);
            all.extend(entries);
            let last = all.last().expect("an entry")["entry"].to_string();
            if page.err.is_empty() {
                break;
            }
            assert_eq!(page.err, format!("leasehold: more entries follow; continue with {option} {last}\n"));
            cursor = Some(last);
        }
        assert_eq!(Value::from(all), whole);
    }
    server.run(&["history", "a", "--limit", "0"]).fails(2, "error: ");
    server.run(&["history", "a", "--before", "0"]).fails(2, "error: ");
}

#[test]
fn history_longer_than_one_page_is_listed_completely() {
    let server = Server::start();
    let body = r#"{"holder":"w1","ttl":"60s"}"#;
    for n in 0..300 {
        let answer = server.http("POST", &format!("/v1/leases/many/{n}:acquire"), "", body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let history = server.json(&["history"]);
    let entries = history["entries"].as_array().expect("an array");
    let numbers: Vec<_> = entries.iter().map(|entry| entry["entry"].as_u64().expect("a number")).collect();
    let all: Vec<_> = (1..=history["last"].as_u64().expect("a number")).rev().collect();
    assert!(all.len() > 300);
    assert_eq!(numbers, all);
}

#[test]
fn history_survives_a_crash() {
    let server = server_with_history();
    let before = server.json(&["history", "a"]);
    let server = server.crash_and_restart();
    assert_eq!(server.json(&["history", "a"])["entries"], before["entries"]);
}

#[test]
fn an_export_appears_complete_and_verifies_like_the_server() {
    let server = server_with_history();
    let file = server.data.path().join("monday.jsonl");
    let path = file.to_str().expect("a UTF-8 path");
    let exported = server.json(&["audit", "export", path]);
    assert_eq!(keys(&exported), ["entries", "file", "first", "hash", "last"]);
    assert!(!server.data.path().join("monday.jsonl.part").exists());
    let proof = server.json(&["audit", "verify"]);
    assert_eq!(keys(&proof), ["entries", "first", "hash", "intact", "last"]);
    let offline = run(&mut leasehold(&["audit", "verify", path, "--json"])).ok().json();
    assert_eq!(offline, proof, "offline and online verification agree");
    assert_eq!(offline["hash"], exported["hash"]);
    assert!(server.run(&["audit", "verify"]).ok().out.contains(&text(&proof["hash"])));
    assert!(server.run(&["audit", "export", &format!("{path}.2")]).ok().out.contains("last hash"));

    server.run(&["audit", "export", path]).fails(78, "leasehold: CONFIG{file}: ");
    server.run(&["audit", "export", "/nowhere/at/all"]).fails(78, "leasehold: CONFIG{file}: ");
    let lines = fs::read_to_string(&file).expect("the file exists");
    let forged = server.data.path().join("forged.jsonl");
    fs::write(&forged, lines.replace("wrong version", "right version")).expect("the directory exists");
    let result = run(&mut leasehold(&["audit", "verify", forged.to_str().expect("a UTF-8 path")]));
    assert!(result.fails(65, "leasehold: CORRUPT").err.contains("line "));
}

#[test]
fn an_expected_entry_reveals_a_log_that_was_cut_or_rewritten() {
    let server = server_with_history();
    let file = server.data.path().join("monday.jsonl");
    let path = file.to_str().expect("a UTF-8 path");
    let exported = server.json(&["audit", "export", path]);
    let (last, hash) = (exported["last"].as_u64().expect("a number"), text(&exported["hash"]));
    let offline = |file: &str, expected: &str| run(&mut leasehold(&["audit", "verify", file, "--expect", expected]));
    let noted = format!("{last}:{hash}");
    offline(path, &noted).ok();
    server.run(&["audit", "verify", "--expect", &noted]).ok();

    // Anyone who can write the file can cut it and close it again; the chain has no key.
    let lines = fs::read_to_string(&file).expect("the file exists");
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.truncate(lines.len() - 2);
    let entry: Value = serde_json::from_str(lines[lines.len() - 1]).expect("an entry");
    let end = format!("{{\"end\":{},\"hash\":{}}}", entry["entry"], entry["hash"]);
    let cut = server.data.path().join("cut.jsonl");
    fs::write(&cut, format!("{}\n{end}\n", lines.join("\n"))).expect("the directory exists");
    let cut = cut.to_str().expect("a UTF-8 path");
    run(&mut leasehold(&["audit", "verify", cut])).ok();
    let result = offline(cut, &noted).fails(65, "leasehold: CORRUPT");
    assert!(result.err.contains(&format!("entry {last} is expected")), "{result:?}");

    for (expected, part) in
        [(format!("{}:{hash}", last + 1), "is expected"), (format!("{}:{hash}", last - 1), "was rewritten")]
    {
        for result in [offline(path, &expected), server.run(&["audit", "verify", "--expect", &expected])] {
            assert!(result.fails(65, "leasehold: CORRUPT").err.contains(part), "{expected}");
        }
    }
    offline(path, "17").fails(2, "error: invalid value '17' for '--expect <ENTRY:HASH>': must be ENTRY:HASH");
}

#[test]
fn an_audit_trail_changed_on_disk_is_reported_with_file_and_offset() {
    let server = server_with_history();
    server.run(&["audit", "verify"]).ok();
    let mut segments = Vec::new();
    let mut folders = vec![server.data.path().join("journal")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the directory exists") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trail")) {
                segments.push(path);
            }
        }
    }
    let [segment] = &segments[..] else { panic!("expected one segment: {segments:?}") };
    let mut bytes = fs::read(segment).expect("the file exists");
    let at = bytes.windows(5).position(|five| five == b"wrong").expect("the comment is stored in it");
    bytes[at] = b'W';
    fs::write(segment, &bytes).expect("the file is writable");
    let result = server.run(&["audit", "verify"]).fails(65, "leasehold: CORRUPT{");
    assert!(result.err.contains("trail") && result.err.contains("at byte "), "{result:?}");
    let problem = server.run(&["audit", "verify", "--json"]).problem();
    assert_eq!(problem["code"], "CORRUPT");
    assert!(problem["offset"].is_u64() && problem["file"].is_string(), "{problem}");
}

#[test]
fn without_a_server_no_file_is_left_behind() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("fresh.jsonl");
    for args in
        [&["history", "a"][..], &["audit", "verify"], &["audit", "export", file.to_str().expect("a UTF-8 path")]]
    {
        run(leasehold(args).args(["--addr", UNUSED_ADDRESS])).fails(5, "leasehold: UNAVAILABLE: ");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("the directory exists").count(), 0);
}
