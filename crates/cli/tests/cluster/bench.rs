//! `leasehold bench` with its own etcd: all measurements are reported, and nothing is left behind.

use std::path::Path;

use serde_json::Value;

use crate::support::{leasehold, run};

fn run_bench(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = leasehold(&["bench", "--json", "--servers", "2", "--dir"]);
    let reply = run(bench.arg(dir.path()).args(args)).ok();
    assert_empty(dir.path());
    reply.json()
}

fn assert_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[track_caller]
fn metric(body: &Value, prefix: &str, name: &str) -> f64 {
    let rows = body["rows"].as_array().expect("a list of rows");
    let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
    row.and_then(|row| row[name].as_f64()).unwrap_or_else(|| panic!("{name} of {prefix} in {body}"))
}

#[test]
fn a_cluster_is_measured_next_to_the_leases_of_etcd() {
    let args =
        ["acquire", "etcd", "renew", "held", "--cluster", "--leases", "2000", "--seconds", "1", "--in-flight", "64"];
    let body = run_bench(&args);
    let ours = metric(&body, "acquire, 64 in flight", "per_second");
    let theirs = metric(&body, "etcd's own lease and lock, 64 in flight", "per_second");
    let times = metric(&body, "etcd's own lease and lock, 64 in flight", "leasehold_is_times");
    assert!(ours > 0.0 && theirs > 0.0 && (times - ours / theirs).abs() < 0.01, "{body}");
    assert!(metric(&body, "renew in batches of 1000", "per_second") > 0.0);
    assert!(metric(&body, "leader steps down, 2000 leases taken over", "after_s") > 0.0);
    assert!(metric(&body, "leader killed, 2000 leases taken over", "after_s") > 0.0);
}

#[test]
fn repeated_failovers_are_measured_and_lose_nothing() {
    let body = run_bench(&["failover", "--crashes", "2"]);
    assert!(metric(&body, "leader killed", "p50_ms") <= metric(&body, "leader killed", "max_ms"), "{body}");
    let body = run_bench(&["failover", "--planned", "--crashes", "3"]);
    assert!(metric(&body, "leader steps down", "p50_ms") > 0.0, "{body}");
}

#[test]
fn failover_refuses_to_run_on_foreign_servers() {
    let reply = run(&mut leasehold(&["bench", "failover", "--addr", "127.0.0.1:1"]));
    assert!(reply.exit != 0 && reply.err.contains("omit --addr"), "{reply:?}");
}
