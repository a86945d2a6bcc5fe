//! `history`, `trail export` and `trail verify` against a real server: what happened, and the proof of it.

mod support;

use std::fs;

use serde_json::Value;
use support::{NOBODY, Server, keys, leasehold, run, text};

/// What happened, and to whom, entry by entry.
fn told(history: &Value) -> Vec<(String, String)> {
    let entries = history["entries"].as_array().expect("a list");
    entries.iter().map(|entry| (text(&entry["kind"]), text(&entry["holder"]))).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(kind, holder)| (kind.to_owned(), holder.to_owned())).to_vec()
}

/// A server at which something happened.
fn eventful() -> Server {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    server.acquire("other", "w9");
    server.run(&["release", "a", "--token", &token]).ok();
    server.acquire("a", "w2");
    server.run(&["handoff", "a", "--to", "w3", "--gap"]).ok();
    server.run(&["revoke", "a", "--reason", "wrong version"]).ok();
    server
}

#[test]
fn history_tells_every_change_of_a_resource_newest_first() {
    let server = eventful();
    let history = server.json(&["history", "a"]);
    assert_eq!(keys(&history), ["entries", "hash", "last", "position"]);
    let all = [("ended", "w2"), ("handoff", "w2"), ("granted", "w2"), ("ended", "w1"), ("granted", "w1")];
    assert_eq!(told(&history), pairs(all));
    let revoked = &history["entries"][0];
    assert_eq!((&revoked["state"], &revoked["reason"]), (&"revoked".into(), &"operator".into()));
    assert_eq!((&revoked["why"], &revoked["resource"]), (&"wrong version".into(), &"a".into()));
    assert_eq!((&history["entries"][1]["to"], &history["entries"][3]["reason"]), (&"w3".into(), &"released".into()));
    assert!(revoked["token_number"].is_string() && !history.to_string().contains("lh1-"));

    let table = server.run(&["history", "a"]).ok();
    assert_eq!(table.err, "", "all of it is told");
    let first = table.out.lines().nth(1).expect("a row");
    assert!(first.contains("revoked: operator") && first.ends_with("wrong version"), "{first}");

    let mut turned = server.json(&["history", "a", "--from-start"]);
    turned["entries"].as_array_mut().expect("a list").reverse();
    assert_eq!(turned["entries"], history["entries"]);
    assert_eq!(server.json(&["history", "nothing"])["entries"], serde_json::json!([]));
    let everything = server.json(&["history"]);
    assert_eq!(everything["last"].as_u64(), everything["entries"].as_array().map(|all| all.len() as u64));
}

#[test]
fn history_stops_where_it_is_told_to_and_goes_on_from_there() {
    let server = eventful();
    for (order, on) in [(None, "--before"), (Some("--from-start"), "--after")] {
        let mut whole = vec!["history", "a"];
        whole.extend(order);
        let whole = server.json(&whole)["entries"].clone();
        let (mut seen, mut from) = (Vec::new(), None::<String>);
        loop {
            let mut args = vec!["history", "a", "--most", "2", "--json"];
            args.extend(order);
            args.extend(from.iter().flat_map(|from| [on, from]));
            let page = server.run(&args).ok();
            let entries = page.json()["entries"].as_array().expect("a list").clone();
            assert!(entries.len() <= 2);
            seen.extend(entries);
            let last = seen.last().expect("an entry")["entry"].to_string();
            if page.err.is_empty() {
                break;
            }
            assert_eq!(page.err, format!("leasehold: there is more; go on with {on} {last}\n"));
            from = Some(last);
        }
        assert_eq!(Value::from(seen), whole);
    }
    server.run(&["history", "a", "--most", "0"]).fails(2, "error: ");
    server.run(&["history", "a", "--before", "0"]).fails(2, "error: ");
}

#[test]
fn more_than_a_page_of_history_is_told_as_one() {
    let server = Server::start();
    let body = r#"{"holder":"w1","ttl":"60s"}"#;
    for n in 0..300 {
        let answer = server.http("POST", &format!("/v1/leases/many/{n}:acquire"), "", body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let history = server.json(&["history"]);
    let entries = history["entries"].as_array().expect("a list");
    let numbers: Vec<_> = entries.iter().map(|entry| entry["entry"].as_u64().expect("a number")).collect();
    let all: Vec<_> = (1..=history["last"].as_u64().expect("a number")).rev().collect();
    assert!(all.len() > 300);
    assert_eq!(numbers, all);
}

#[test]
fn history_outlives_a_crash() {
    let server = eventful();
    let before = server.json(&["history", "a"]);
    let server = server.again();
    assert_eq!(server.json(&["history", "a"])["entries"], before["entries"]);
}

#[test]
fn an_export_is_whole_under_its_name_and_proves_the_same_as_the_server() {
    let server = eventful();
    let file = server.data.path().join("monday.jsonl");
    let path = file.to_str().expect("a text");
    let exported = server.json(&["trail", "export", path]);
    assert_eq!(keys(&exported), ["entries", "file", "first", "hash", "last"]);
    assert!(!server.data.path().join("monday.jsonl.part").exists());
    let proved = server.json(&["trail", "verify"]);
    assert_eq!(keys(&proved), ["entries", "first", "hash", "last", "whole"]);
    let offline = run(&mut leasehold(&["trail", "verify", path, "--json"])).ok().json();
    assert_eq!(offline, proved, "with a server and without");
    assert_eq!(offline["hash"], exported["hash"]);
    assert!(server.run(&["trail", "verify"]).ok().out.contains(&text(&proved["hash"])));
    assert!(server.run(&["trail", "export", &format!("{path}.2")]).ok().out.contains("last hash"));

    server.run(&["trail", "export", path]).fails(78, "leasehold: CONFIG{file}: ");
    server.run(&["trail", "export", "/nowhere/at/all"]).fails(78, "leasehold: CONFIG{file}: ");
    let lines = fs::read_to_string(&file).expect("it is there");
    let forged = server.data.path().join("forged.jsonl");
    fs::write(&forged, lines.replace("wrong version", "right version")).expect("the directory is there");
    let told = run(&mut leasehold(&["trail", "verify", forged.to_str().expect("a text")]));
    assert!(told.fails(65, "leasehold: CORRUPT").err.contains("line "));
}

#[test]
fn a_trail_that_was_changed_on_the_disk_is_told_with_its_file_and_place() {
    let server = eventful();
    server.run(&["trail", "verify"]).ok();
    let mut parts = Vec::new();
    let mut folders = vec![server.data.path().join("journal")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trail")) {
                parts.push(path);
            }
        }
    }
    let [part] = &parts[..] else { panic!("one part: {parts:?}") };
    let mut bytes = fs::read(part).expect("it is there");
    let at = bytes.windows(5).position(|five| five == b"wrong").expect("the reason is in it");
    bytes[at] = b'W';
    fs::write(part, &bytes).expect("it can be written");
    let told = server.run(&["trail", "verify"]).fails(65, "leasehold: CORRUPT{");
    assert!(told.err.contains("trail") && told.err.contains("at byte "), "{told:?}");
    let problem = server.run(&["trail", "verify", "--json"]).problem();
    assert_eq!(problem["code"], "CORRUPT");
    assert!(problem["offset"].is_u64() && problem["file"].is_string(), "{problem}");
}

#[test]
fn without_a_server_nothing_is_left_behind() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("fresh.jsonl");
    for args in [&["history", "a"][..], &["trail", "verify"], &["trail", "export", file.to_str().expect("a text")]] {
        run(leasehold(args).args(["--addr", NOBODY])).fails(5, "leasehold: UNAVAILABLE: ");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
}
