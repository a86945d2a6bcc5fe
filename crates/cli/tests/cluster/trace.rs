//! Timelines and the screen of a cluster: both continue over a change of leader.

use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::terminal::TestTerminal;

use crate::Cluster;
use crate::support::{leasehold, run, text};

#[test]
fn a_trace_and_its_proof_continue_over_a_change_of_leader() {
    let cluster = Cluster::of(EtcdCluster::single(), 2);
    let first = cluster.json(&["acquire", "jobs/a", "--holder", "w1", "--ttl", "10m"]);
    let env = [("LEASEHOLD_ADDR", cluster.addresses())];
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut screen =
        TestTerminal::start(env!("CARGO_BIN_EXE_leasehold"), &["top", "--interval", "200ms"], &env, 120, 24)
            .expect("a pseudo-terminal");
    screen.wait_for("jobs/a");
    let before = cluster.servers[0].address.clone();
    screen.wait_for(&format!("leader {before}"));

    let leader = text(&cluster.json(&["step-down"])["leader"]);
    assert_ne!(leader, before);
    screen.wait_for(&format!("leader {leader}"));
    screen.press(":cluster\r");
    screen.wait_for("standby");
    cluster.json(&["release", "jobs/a", "--token", &text(&first["token"])]);
    cluster.json(&["acquire", "jobs/a", "--holder", "w2", "--ttl", "10m"]);

    let call = |args: &[&str]| run(leasehold(args).env("LEASEHOLD_ADDR", cluster.addresses())).ok();
    let traced = call(&["trace", "jobs/a"]).out;
    let line = |part: &str| traced.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{traced}"));
    assert!(line("granted  w1") < line("granted  w2"), "{traced}");
    assert!(traced.lines().any(|line| line.contains("w2") && line.contains("gap ")), "{traced}");
    let file = cluster.etcd.dir().join("page.html");
    let file = file.to_str().expect("a UTF-8 path");
    call(&["trace", "jobs/a", "--html", "--out", file]);
    let proof = run(&mut leasehold(&["audit", "verify", file])).ok();
    assert!(proof.out.contains("shows all 3 entries of jobs/a"), "{proof:?}");
    screen.press("q");
    assert_eq!(screen.wait().code(), Some(0));
}
