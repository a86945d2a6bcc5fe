//! `leasehold coverage`: holes, reports over HTTP, and probes.

use leasehold_core::charter::TargetMode;
use serde_json::json;

use crate::support::{Server, text};
use crate::{Ledger, RESOURCE, cluster, declare, fence, zombie_and_successor};

/// Sends reports over HTTP. Returns the whole response.
fn report(server: &Server, reports: serde_json::Value) -> String {
    let body = json!({ "cluster": cluster(server).to_string(), "reports": reports }).to_string();
    server.http("POST", "/v1/coverage", "", &body)
}

fn entry(target: &str, mode: &str) -> serde_json::Value {
    json!({ "resource": RESOURCE, "target": target, "mode": mode, "checks": 1 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_has_its_own_exit_code_and_names_the_next_step() {
    let server = Server::start();
    let none = server.run(&["coverage", RESOURCE]);
    assert_eq!(none.exit, 8, "{none:?}");
    assert!(none.err.contains("declare its targets in a charter"), "{none:?}");
    declare(&server, "ledger", "sqlite:/var/ledger.db", TargetMode::Forced).await;
    let silent = server.run(&["coverage", RESOURCE]);
    assert_eq!(silent.exit, 8);
    assert!(silent.err.contains("ledger: no fence ever reported"), "{silent:?}");
    assert!(report(&server, json!([entry("ledger", "cooperative"), entry("old", "forced")])).contains("200 OK"));
    let weak = server.run(&["coverage", RESOURCE]);
    assert_eq!(weak.exit, 8);
    assert!(weak.err.contains("ledger: declared as forced") && weak.err.contains("old: no charter"), "{weak:?}");
    server.run(&["coverage", RESOURCE, "--forget", "old", "--comment", "it is gone"]).ok();
    assert!(report(&server, json!([entry("ledger", "forced")])).contains("200 OK"));
    let whole = server.run(&["coverage", RESOURCE]).ok();
    assert!(whole.out.contains("ledger") && whole.out.contains("forced") && whole.err.is_empty(), "{whole:?}");
    let gone = server.run(&["coverage", RESOURCE, "--forget", "old", "--comment", "again"]);
    gone.fails(1, "leasehold: NOT_FOUND");
}

#[test]
fn an_invalid_report_is_rejected_with_the_name_of_its_field() {
    let server = Server::start();
    let with = |field: &str, value: serde_json::Value| {
        let mut entry = entry("ledger", "forced");
        entry[field] = value;
        json!([entry])
    };
    let table = [
        (with("mode", json!("firm")), "INVALID_ARGUMENT", "mode"),
        (with("target", json!("")), "INVALID_ARGUMENT", "target"),
        (with("resource", json!("//")), "INVALID_ARGUMENT", "resource"),
        (with("refusals", json!(2)), "INVALID_ARGUMENT", "refusals"),
        (with("zombie", json!({ "presented": "9", "mark": "9" })), "INVALID_ARGUMENT", "presented"),
        (with("zombie", json!({ "presented": "8", "mark": "9", "times": 0 })), "INVALID_ARGUMENT", "times"),
        (with("highest", json!("9223372036854775807")), "TOKEN_IMPLAUSIBLE", "presented"),
        (with("highest", json!("0")), "TOKEN_INVALID", "zero"),
        (with("color", json!("red")), "INVALID_ARGUMENT", "color"),
        (json!(vec![entry("ledger", "forced"); 257]), "RESOURCE_EXHAUSTED", "reports"),
    ];
    for (reports, code, field) in table {
        let response = report(&server, reports);
        assert!(response.contains(code) && response.contains(field), "{code} {field}: {response}");
    }
    let foreign = json!({ "cluster": "00c0ffee00c0ffee", "reports": [entry("ledger", "forced")] }).to_string();
    assert!(server.http("POST", "/v1/coverage", "", &foreign).contains("WRONG_CLUSTER"));
    assert_eq!(server.run(&["coverage", RESOURCE, "--json"]).json()["targets"][0]["hole"], "no_target");
}

#[test]
fn a_fence_that_has_seen_a_newer_token_than_the_grantor_proves_a_rollback() {
    let server = Server::start();
    let counter: u64 = text(&server.json(&["status"])["counter"]).parse().expect("a number");
    let mut newer = entry("ledger", "forced");
    // One hour ahead of this grantor's clock: plausible, but not issued by this grantor.
    newer["highest"] = json!((counter + (3_600_000 << 22)).to_string());
    assert!(report(&server, json!([newer])).contains("200 OK"));
    let refused = server.run(&["acquire", RESOURCE, "--holder", "w1", "--ttl", "10s"]);
    assert!(refused.err.contains("ROLLED_BACK"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_confirms_a_fence_and_detects_its_removal() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    declare(&server, "ledger", &ledger.url, TargetMode::Cooperative).await;
    let target = format!("ledger={}", ledger.url);
    let fresh = server.run(&["coverage", RESOURCE, "--probe", "--target", &target]);
    assert_eq!(fresh.exit, 8, "no token was claimed yet: {fresh:?}");
    let (_, successor) = zombie_and_successor(&server);
    let mark = fence(&server).claim(&mut ledger.open(), &successor).expect("the holder claims");
    let before = server.json(&["fence", "marks", &ledger.url]);
    let proven = server.run(&["coverage", RESOURCE, "--probe", "--target", &target, "--json"]);
    assert_eq!(proven.exit, 0, "{proven:?}");
    let probe = &proven.json()["targets"][0]["probe"];
    assert_eq!((&probe["result"], &probe["mark"]), (&"refused".into(), &mark.to_string().into()));
    assert_eq!(before, server.json(&["fence", "marks", &ledger.url]), "a probe changes nothing");

    // The fence is removed, and any write succeeds.
    let db = ledger.open();
    db.execute_batch("DROP VIEW IF EXISTS leasehold_admit; DROP TABLE leasehold_fence").expect("it can be removed");
    let removed = server.run(&["coverage", RESOURCE, "--probe", "--target", &target]);
    assert_eq!(removed.exit, 8, "{removed:?}");
    assert!(removed.err.contains("ledger: has no fence"), "{removed:?}");
    let nowhere = server.run(&["coverage", RESOURCE, "--probe", "--target", "ledger=sqlite:/nowhere/at/all.db"]);
    assert_eq!(nowhere.exit, 8, "{nowhere:?}");
    assert!(nowhere.err.contains("probe failed"), "{nowhere:?}");
}
