//! `leasehold history`, `audit export` and `audit verify` against a real server.

mod support;

use std::fs;
use std::path::Path;

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

/// A server with a seal key, whose directories outlive it.
struct SealedServer {
    folder: tempfile::TempDir,
    server: Server,
}

impl SealedServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let keys = folder.path().join("keys");
        run(&mut leasehold(&["keys", "create", "--keys", keys.to_str().expect("a UTF-8 path")])).ok();
        let server = Self::serve(folder.path());
        Self { folder, server }
    }

    fn serve(folder: &Path) -> Server {
        let text = |name: &str| folder.join(name).to_str().expect("a UTF-8 path").to_owned();
        Server::with_flags(&["--listen", "127.0.0.1:0", "--data", &text("data"), "--keys", &text("keys")])
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn act(&self, names: std::ops::Range<u32>) {
        for name in names {
            let token = self.server.acquire(&format!("jobs/{name}"), "w1");
            self.server.run(&["release", &format!("jobs/{name}"), "--token", &token]).ok();
        }
    }

    /// Writes the heads and the public keys of the server to files.
    fn store_heads(&self) -> (String, String) {
        let (heads, keys) = (self.path("heads.jsonl"), self.path("keys.json"));
        assert!(self.server.json(&["audit", "heads", &heads])["heads"].as_u64() >= Some(1));
        fs::write(&keys, self.server.run(&["keys", "export"]).ok().out).expect("the directory exists");
        (heads, keys)
    }

    /// The newest file of the audit log.
    fn trail(&self) -> std::path::PathBuf {
        let files = fs::read_dir(self.path("data")).expect("the directory exists");
        let names = files.map(|entry| entry.expect("a readable entry").path());
        let is_trail = |path: &std::path::PathBuf| path.to_string_lossy().contains("trail-");
        names.filter(is_trail).max().expect("a file of the audit log")
    }

    fn stop_and_restart(mut self, change: impl FnOnce(&Self)) -> Self {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(), Some(0));
        change(&self);
        let server = Self::serve(self.folder.path());
        Self { server, ..self }
    }

    fn lost_entries(&self) -> f64 {
        let metrics = self.server.http("GET", "/metrics", "", "");
        let name = "leasehold_audit_lost_entries_total ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no metric: {metrics}")).parse().expect("a number")
    }
}

#[test]
fn signed_heads_reveal_a_log_that_was_cut_or_rewritten_and_forged_heads_are_refused() {
    let setup = SealedServer::start();
    setup.act(0..5);
    let line = setup.server.wait_for_log("audit head signed");
    for field in ["entry=", "hash=", "position=", "wall_ms=", "kid=", "signature="] {
        assert!(line.contains(field), "{line}");
    }
    let setup = setup.stop_and_restart(|_| {});
    setup.act(5..10);
    let (heads, keys) = setup.store_heads();
    let export = setup.path("export.jsonl");
    let last = setup.server.json(&["audit", "export", &export])["last"].as_u64().expect("a number");
    let with = |heads: &str, keys: &str| ["--heads", heads, "--keys", keys].map(str::to_owned);
    let verify = |file: &str, options: &[String]| {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        run(&mut leasehold(&[&["audit", "verify", file][..], &options].concat()))
    };
    let checked = verify(&export, &with(&heads, &keys)).ok();
    assert!(checked.out.contains("signed heads agree"), "{checked:?}");
    let online = setup.server.run(&["audit", "verify", "--heads", &heads, "--keys", &keys, "--json"]).ok().json();
    assert!(online["heads"].as_u64() >= Some(2), "{online}");
    assert!(setup.server.json(&["audit", "verify"])["heads"].as_u64() >= Some(2), "the server compares its own");

    // Anyone who can write the file can cut it and close it again.
    let text = fs::read_to_string(&export).expect("the file exists");
    let lines: Vec<&str> = text.lines().collect();
    let entry: Value = serde_json::from_str(lines[lines.len() - 4]).expect("an entry");
    let end = format!("{{\"end\":{},\"hash\":{}}}", entry["entry"], entry["hash"]);
    let cut = setup.path("cut.jsonl");
    fs::write(&cut, format!("{}\n{end}\n", lines[..lines.len() - 3].join("\n"))).expect("the directory exists");
    verify(&cut, &[]).ok();
    let result = verify(&cut, &with(&heads, &keys)).fails(65, "leasehold: CORRUPT");
    assert!(result.err.contains(&format!("entries {} to ", last - 1)) && result.err.contains("were cut"), "{result:?}");

    // A head of another key, and one whose field was changed.
    let other = setup.path("other");
    run(&mut leasehold(&["keys", "create", "--keys", &other])).ok();
    let exported = run(&mut leasehold(&["keys", "export", "--keys", &other])).ok().out;
    let foreign = setup.path("foreign.json");
    fs::write(&foreign, exported).expect("the directory exists");
    let result = verify(&export, &with(&heads, &foreign)).fails(65, "leasehold: CORRUPT");
    assert!(result.err.contains("is signed by the unknown key "), "{result:?}");
    let stored = fs::read_to_string(&heads).expect("the file exists");
    let forged = setup.path("forged.jsonl");
    let number = format!("\"entry\":{last}");
    assert!(stored.contains(&number), "{stored}");
    fs::write(&forged, stored.replace(&number, &format!("\"entry\":{}", last + 1))).expect("the directory exists");
    let result = verify(&export, &with(&forged, &keys)).fails(65, "leasehold: CORRUPT");
    assert!(result.err.contains("a field was changed"), "{result:?}");
    fs::write(&forged, "not a head\n").expect("the directory exists");
    verify(&export, &with(&forged, &keys)).fails(65, "leasehold: CORRUPT{");
    fs::write(&forged, "").expect("the directory exists");
    verify(&export, &with(&forged, &keys)).fails(78, "leasehold: CONFIG{");
    assert_eq!(verify(&export, &["--heads".to_owned(), heads]).exit, 2, "heads need keys");
}

#[test]
fn a_shortened_trail_is_reported_at_the_start_and_by_verify() {
    let setup = SealedServer::start();
    setup.act(0..3);
    setup.server.run(&["audit", "verify"]).ok();
    let (name, short) = (setup.trail(), fs::read(setup.trail()).expect("the file exists"));
    let setup = setup.stop_and_restart(|_| {});
    assert_eq!(setup.lost_entries(), 0.0);
    setup.act(3..6);
    let (heads, keys) = setup.store_heads();
    let last = setup.server.json(&["audit", "verify"])["last"].as_u64().expect("a number");

    // Someone with access to the disk replaces the log by an earlier copy. The journal still has everything.
    let setup = setup.stop_and_restart(|_| fs::write(&name, &short).expect("the file is writable"));
    let line = setup.server.find_log("the audit log ends at entry ");
    assert!(line.contains(&format!("but a signed head names entry {last}")), "{line}");
    let lost = setup.lost_entries();
    assert!(lost > 0.0);
    let options = ["audit", "verify", "--heads", &heads, "--keys", &keys, "--json"];
    assert_eq!(setup.server.run(&options).ok().json()["gaps"], Value::Null, "the entries are derived again");

    // After a backup the journal is trimmed: what is lost now is recorded as a gap.
    setup.act(6..9);
    setup.server.run(&["backup", &setup.path("backup")]).ok();
    let setup = setup.stop_and_restart(|_| fs::write(&name, &short).expect("the file is writable"));
    setup.server.find_log("the audit log ends at entry ");
    assert!(setup.lost_entries() > lost);
    let history = setup.server.json(&["history"]);
    let gap = history["entries"].as_array().expect("entries").iter().find(|entry| entry["kind"] == "gap");
    let gap = gap.unwrap_or_else(|| panic!("no gap: {history}"));
    assert!(gap["comment"].as_str().is_some_and(|comment| comment.contains("lost entries")), "{gap}");
    setup.server.run(&["audit", "verify"]).fails(65, "leasehold: CORRUPT{");
    setup.server.run(&options[..6]).fails(65, "leasehold: CORRUPT");
}
