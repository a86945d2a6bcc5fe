//! The audit log of a real server says who acted, with which credential and from where (A13).

use std::path::Path;
use std::process::Command;

use leasehold_testkit::certificates::TestCertificate;
use serde_json::Value;

use crate::harness::{ADMIN, TlsServer, WORKER, write_access};
use crate::support::{CommandRun, Server, TEST_TIMEOUT, leasehold, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// The first 16 digits of the certificate's SHA-256, as openssl computes it.
fn fingerprint(certificate: &TestCertificate) -> String {
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(&certificate.cert)
        .output();
    let output = String::from_utf8(output.expect("openssl starts").stdout).expect("UTF-8");
    let (_, digits) = output.trim().split_once('=').expect("a fingerprint");
    digits.replace(':', "").to_lowercase()[..16].to_owned()
}

/// The acts of an operator and of a holder, each over the same connection method.
fn act(call: &dyn Fn(&[&str]) -> CommandRun, prefix: &str, folder: &Path) {
    let name = |last: &str| format!("{prefix}/{last}");
    let secret = folder.join(format!("{prefix}.secret"));
    let acquire = |resource: &str| {
        let acquired =
            call(&["acquire", resource, "--holder", "w1", "--ttl", "60s", "--secret-file", text(&secret), "--json"]);
        acquired.ok().json()["token"].as_str().expect("a token").to_owned()
    };
    let token = acquire(&name("released"));
    call(&["release", &name("released"), "--token", &token, "--secret-file", text(&secret)]).ok();
    acquire(&name("revoked"));
    call(&["revoke", &name("revoked"), "--comment", "wrong version"]).ok();
    acquire(&name("later"));
    call(&["revoke", &name("later"), "--comment", "soon", "--grace", "60s"]).ok();
    acquire(&name("handed"));
    call(&["handoff", &name("handed"), "--to", "w2", "--gap"]).ok();
    call(&["run", &name("ran"), "--", "true"]).ok();
    let charter = folder.join(format!("{prefix}.toml"));
    std::fs::write(
        &charter,
        format!("prefix = \"{prefix}/charter\"\n[charter]\nafter_revocation = \"hold_for_operator\"\n"),
    )
    .expect("written");
    call(&["charter", "apply", text(&charter), "--comment", "agreed"]).ok();
    call(&["charter", "remove", &name("charter"), "--comment", "over"]).ok();
}

/// Kinds of entries that the acts above leave.
const KINDS: [&str; 8] =
    ["granted", "ended", "revoked", "handoff", "session_opened", "session_ended", "charter_set", "charter_removed"];

fn entries(history: &Value) -> Vec<&Value> {
    history["entries"].as_array().expect("entries").iter().collect()
}

/// Checks the entries of the acts: who, how, with what and from where.
fn check(history: &Value, prefix: &str, by: &str, via: &str, credential: Option<&str>, has_address: bool) {
    let entries = entries(history);
    let mut kinds = Vec::new();
    for entry in &entries {
        let resource = entry["resource"].as_str().unwrap_or_default();
        if !resource.starts_with(prefix) && entry["by"] != by {
            continue;
        }
        assert_eq!(entry["by"].as_str(), Some(by), "{entry}");
        assert_eq!(entry["via"].as_str(), Some(via), "{entry}");
        assert_eq!(entry["credential"].as_str(), credential, "{entry}");
        let from = entry["from"].as_str();
        assert_eq!(from.is_some_and(|from| from.starts_with("127.0.0.1:")), has_address, "{entry}");
        kinds.push(entry["kind"].as_str().unwrap_or_default());
    }
    for kind in KINDS {
        assert!(kinds.contains(&kind), "{prefix}: no {kind} in {kinds:?}");
    }
}

#[test]
fn every_act_over_a_certificate_a_unix_socket_and_a_plain_connection_names_its_caller() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let tls = TlsServer::with_flags(&["--socket", text(&socket)]);
    let uid = rustix::process::geteuid().as_raw();
    write_access(&tls.access, &[WORKER, ADMIN, &format!("uid:{uid}")]);
    tls.server.signal("HUP");
    let (worker, admin) = (tls.client("worker", WORKER), tls.client("admin", ADMIN));
    let on_socket = |args: &[&str]| run(leasehold(args).env("LEASEHOLD_ADDR", format!("unix:{}", text(&socket))));
    act(&|args| tls.run(&worker, args), "cert", directory.path());
    act(&|args| tls.run(&admin, args), "other", directory.path());
    act(&on_socket, "uid", directory.path());
    let history = tls.run(&admin, &["history", "--json"]).ok().json();
    check(&history, "cert", WORKER, "mtls", Some(&fingerprint(&worker)), true);
    check(&history, "other", ADMIN, "mtls", Some(&fingerprint(&admin)), true);
    check(&history, "uid", &format!("uid:{uid}"), "uid", None, false);
    for entry in entries(&history) {
        let kind = entry["kind"].as_str().unwrap_or_default();
        assert!(entry["by"].is_string() || ["created", "opened"].contains(&kind), "{entry}");
    }
    // The log line of an operator's act has the same fields.
    let line = tls.server.wait_for_log("act=\"revoke\"");
    assert!(line.contains(WORKER) && line.contains(&fingerprint(&worker)) && line.contains("via=\"mtls\""), "{line}");
    let table = tls.run(&admin, &["history", "cert/revoked"]).ok().out;
    assert!(table.contains("BY") && table.contains(WORKER), "{table}");

    // A server without access rules: plain callers are `local`, which costs nothing in the journal.
    let plain = Server::start();
    act(&|args| plain.run(args), "plain", directory.path());
    let history = plain.json(&["history"]);
    check(&history, "plain", "local", "local", None, false);
}

#[test]
fn copies_of_the_state_are_logged_with_their_caller_and_a_restore_is_on_record() {
    let tls = TlsServer::start();
    let worker = tls.client("worker", WORKER);
    tls.run(&worker, &["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let (backup, export) = (tls.directory.path().join("backup"), tls.directory.path().join("export"));
    let data = tls.directory.path().join("restored");
    tls.run(&worker, &["backup", text(&backup)]).ok();
    tls.run(&worker, &["audit", "export", text(&export)]).ok();
    for act in ["act=\"backup\"", "act=\"export_audit\""] {
        let line = tls.server.wait_for_log(act);
        assert!(line.contains(WORKER) && line.contains(&fingerprint(&worker)) && line.contains("127.0.0.1"), "{line}");
    }
    run(&mut leasehold(&["restore", text(&backup), "--data", text(&data)])).ok();
    let server = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", text(&data)]);
    server.run(&["quarantine", "waive", "--comment", "all targets checked"]).ok();
    let history = server.json(&["history"]);
    let of =
        |kind: &str| entries(&history).into_iter().find(|entry| entry["kind"] == kind).cloned().unwrap_or_default();
    let restored = of("restored");
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    assert_eq!((restored["by"].as_str(), restored["via"].as_str()), (Some(uid.as_str()), Some("uid")), "{history}");
    assert_eq!(of("quarantine_waived")["by"], "local", "{history}");
}

#[test]
fn who_acted_survives_a_crash_before_the_log_is_written_and_an_expiry_names_no_one() {
    let tls = TlsServer::start();
    let worker = tls.client("worker", WORKER);
    tls.run(&worker, &["acquire", "jobs/short", "--holder", "w", "--ttl", "200ms"]).ok();
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    while tls.run(&worker, &["show", "jobs/short", "--json"]).out.contains("\"held\":1") {
        assert!(std::time::Instant::now() < deadline, "the lease does not expire");
    }
    tls.run(&worker, &["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let tls = tls.crash_and_restart();
    let history = tls.run(&worker, &["history", "--json"]).ok().json();
    let all = entries(&history);
    let named = |kind: &str, resource: &str| {
        let found = all.iter().find(|entry| entry["kind"] == kind && entry["resource"] == resource);
        found.unwrap_or_else(|| panic!("no {kind} of {resource} in {history}")).to_owned().clone()
    };
    assert_eq!(named("granted", "jobs/a")["by"], WORKER);
    assert_eq!(named("granted", "jobs/short")["by"], WORKER);
    assert_eq!(named("ended", "jobs/short")["by"], Value::Null, "time ended it");
}

#[test]
fn denials_are_listed_for_administrators_with_who_and_from_where() {
    let tls = TlsServer::start();
    let admin = tls.client("admin", ADMIN);
    let stranger = tls.client("stranger", "spiffe://example.com/stranger");
    for _ in 0..3 {
        tls.run(&stranger, &["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"])
            .fails(6, "leasehold: PERMISSION_DENIED");
    }
    tls.run(&stranger, &["audit", "denials"]).fails(6, "leasehold: PERMISSION_DENIED");
    let listed = tls.run(&admin, &["audit", "denials", "--json"]).ok().json();
    assert_eq!(listed["total"], 4, "{listed}");
    let denials = listed["denials"].as_array().expect("denials");
    assert_eq!((&denials[0]["action"], &denials[1]["action"]), (&"export_audit".into(), &"acquire".into()), "{listed}");
    for denial in denials {
        assert_eq!(denial["principal"], "spiffe://example.com/stranger");
        assert_eq!((&denial["via"], &denial["credential"]), (&"mtls".into(), &fingerprint(&stranger).into()));
        assert!(denial["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{denial}");
    }
    assert_eq!(tls.metric_sum(&admin, "leasehold_denied_total"), 4.0);
    let table = tls.run(&admin, &["audit", "denials"]).ok().out;
    assert!(table.contains("stranger") && table.contains("acquire"), "{table}");
    let history = tls.run(&admin, &["history", "--json"]).ok().json();
    assert!(!history.to_string().contains("stranger"), "denials are not journaled: {history}");
}
