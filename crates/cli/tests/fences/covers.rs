//! The holes in what a lease covers, each with its exit code, and the proof by a stale token.

use leasehold_core::charter::Mode;
use serde_json::json;

use crate::support::{Server, text};
use crate::{Ledger, RESOURCE, cluster, declare, fence, zombie_and_successor};

/// Reports over HTTP, as another language would; the whole answer.
fn report(server: &Server, reports: serde_json::Value) -> String {
    let body = json!({ "cluster": cluster(server).to_string(), "reports": reports }).to_string();
    server.http("POST", "/v1/fences", "", &body)
}

fn entry(target: &str, mode: &str) -> serde_json::Value {
    json!({ "resource": RESOURCE, "target": target, "mode": mode, "checks": 1 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_ends_with_its_own_code_and_names_the_next_step() {
    let server = Server::start();
    let none = server.run(&["fences", RESOURCE]);
    assert_eq!(none.exit, 8, "{none:?}");
    assert!(none.err.contains("declare its targets in a charter"), "{none:?}");
    declare(&server, "ledger", "sqlite:/var/ledger.db", Mode::Forced).await;
    let silent = server.run(&["fences", RESOURCE]);
    assert_eq!(silent.exit, 8);
    assert!(silent.err.contains("ledger: no fence ever reported"), "{silent:?}");
    assert!(report(&server, json!([entry("ledger", "cooperative"), entry("old", "forced")])).contains("200 OK"));
    let weak = server.run(&["fences", RESOURCE]);
    assert_eq!(weak.exit, 8);
    assert!(weak.err.contains("ledger: declared forced") && weak.err.contains("old: no charter"), "{weak:?}");
    server.run(&["fences", RESOURCE, "--forget", "old", "--reason", "it is gone"]).ok();
    assert!(report(&server, json!([entry("ledger", "forced")])).contains("200 OK"));
    let whole = server.run(&["fences", RESOURCE]).ok();
    assert!(whole.out.contains("ledger") && whole.out.contains("forced") && whole.err.is_empty(), "{whole:?}");
    let gone = server.run(&["fences", RESOURCE, "--forget", "old", "--reason", "again"]);
    gone.fails(1, "leasehold: NOT_FOUND");
}

#[test]
fn a_report_that_cannot_be_is_refused_by_the_name_of_its_field() {
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
        (with("colour", json!("red")), "INVALID_ARGUMENT", "colour"),
        (json!(vec![entry("ledger", "forced"); 257]), "RESOURCE_EXHAUSTED", "reports"),
    ];
    for (reports, code, holds) in table {
        let answer = report(&server, reports);
        assert!(answer.contains(code) && answer.contains(holds), "{code} {holds}: {answer}");
    }
    let foreign = json!({ "cluster": "00c0ffee00c0ffee", "reports": [entry("ledger", "forced")] }).to_string();
    assert!(server.http("POST", "/v1/fences", "", &foreign).contains("WRONG_CLUSTER"));
    assert_eq!(server.run(&["fences", RESOURCE, "--json"]).json()["targets"][0]["hole"], "no_target");
}

#[test]
fn a_fence_that_has_seen_a_newer_token_than_the_grantor_proves_a_rollback() {
    let server = Server::start();
    let counter: u64 = text(&server.json(&["status"])["counter"]).parse().expect("a number");
    let mut newer = entry("ledger", "forced");
    // An hour ahead of this grantor's clock: believable, and never given out here.
    newer["highest"] = json!((counter + (3_600_000 << 22)).to_string());
    assert!(report(&server, json!([newer])).contains("200 OK"));
    let refused = server.run(&["acquire", RESOURCE, "--holder", "w1", "--ttl", "10s"]);
    assert!(refused.err.contains("ROLLED_BACK"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_proves_a_fence_and_finds_one_that_was_removed() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    declare(&server, "ledger", &ledger.url, Mode::Cooperative).await;
    let fresh = server.run(&["fences", RESOURCE, "--probe"]);
    assert_eq!(fresh.exit, 8, "nobody claimed it yet: {fresh:?}");
    let (_, successor) = zombie_and_successor(&server);
    let mark = fence(&server).claim(&mut ledger.open(), &successor).expect("the holder claims");
    let before = server.json(&["fence", "marks", &ledger.url]);
    let proven = server.run(&["fences", RESOURCE, "--probe", "--json"]);
    assert_eq!(proven.exit, 0, "{proven:?}");
    let probe = &proven.json()["targets"][0]["probe"];
    assert_eq!((&probe["found"], &probe["mark"]), (&"refused".into(), &mark.to_string().into()));
    assert_eq!(before, server.json(&["fence", "marks", &ledger.url]), "a probe changes nothing");

    // Somebody removes the rules, and the data can be written past any token.
    let db = ledger.open();
    db.execute_batch("DROP VIEW IF EXISTS leasehold_admit; DROP TABLE leasehold_fence").expect("it can be removed");
    let removed = server.run(&["fences", RESOURCE, "--probe"]);
    assert_eq!(removed.exit, 8, "{removed:?}");
    assert!(removed.err.contains("ledger: there is no fence"), "{removed:?}");
    let nowhere = server.run(&["fences", RESOURCE, "--probe", "--target", "ledger=sqlite:/nowhere/at/all.db"]);
    assert_eq!(nowhere.exit, 8, "{nowhere:?}");
    assert!(nowhere.err.contains("could not be probed"), "{nowhere:?}");
}
