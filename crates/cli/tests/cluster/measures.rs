//! `leasehold bench` over an etcd of its own: every figure is there, nothing is lost on the way, and nothing is left behind.

use std::path::Path;

use serde_json::Value;

use crate::support::{leasehold, run};

fn measured(args: &[&str]) -> Value {
    let beside = tempfile::tempdir().expect("a directory");
    let mut bench = leasehold(&["bench", "--json", "--servers", "2", "--beside"]);
    let told = run(bench.arg(beside.path()).args(args)).ok();
    nothing_is_left(beside.path());
    told.json()
}

fn nothing_is_left(beside: &Path) {
    let left: Vec<_> = std::fs::read_dir(beside).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[track_caller]
fn figure(body: &Value, begins: &str, name: &str) -> f64 {
    let rows = body["rows"].as_array().expect("a list of rows");
    let row = rows.iter().find(|row| row["what"].as_str().is_some_and(|what| what.starts_with(begins)));
    row.and_then(|row| row[name].as_f64()).unwrap_or_else(|| panic!("{name} of {begins} in {body}"))
}

#[test]
fn servers_over_etcd_are_measured_beside_what_etcd_does_itself() {
    let args =
        ["acquire", "peer", "renew", "held", "--cluster", "--leases", "2000", "--seconds", "1", "--in-flight", "64"];
    let body = measured(&args);
    let ours = figure(&body, "acquire, 64 in flight", "per_second");
    let theirs = figure(&body, "etcd's own lease and lock, 64 in flight", "per_second");
    let times = figure(&body, "etcd's own lease and lock, 64 in flight", "ours is_times");
    assert!(ours > 0.0 && theirs > 0.0 && (times - ours / theirs).abs() < 0.01, "{body}");
    assert!(figure(&body, "renew in batches of 1000", "per_second") > 0.0);
    assert!(figure(&body, "leader steps down, 2000 leases taken over", "after_s") > 0.0);
    assert!(figure(&body, "leader killed, 2000 leases taken over", "after_s") > 0.0);
}

#[test]
fn leaders_go_one_after_the_other_and_nothing_is_lost() {
    let body = measured(&["failover", "--crashes", "2"]);
    assert!(figure(&body, "leader killed", "p50_ms") <= figure(&body, "leader killed", "max_ms"), "{body}");
    let body = measured(&["failover", "--planned", "--crashes", "3"]);
    assert!(figure(&body, "leader steps down", "p50_ms") > 0.0, "{body}");
}

#[test]
fn a_failover_is_not_measured_on_servers_of_others() {
    let told = run(&mut leasehold(&["bench", "failover", "--addr", "127.0.0.1:1"]));
    assert!(told.exit != 0 && told.err.contains("leave --addr out"), "{told:?}");
}
