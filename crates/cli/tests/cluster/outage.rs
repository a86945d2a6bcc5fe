//! etcd outages, slow disks and rollbacks: no grants without a quorum, no early expiry, and renewed leases survive.

use std::io::Read;
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};

use crate::deposed_leader::{hold_lease, run_on, send_raw_request, until_held};
use crate::faults::depth;
use crate::harness::{TEST_TIMEOUT, ThreeServers};
use crate::history::History;
use crate::number;
use crate::support::{leasehold, run, text};

#[test]
fn without_a_quorum_nothing_is_granted_and_renewed_leases_survive_the_outage() {
    let mut cluster = ThreeServers::on(EtcdCluster::three());
    let (_runtime, guard) = hold_lease(&cluster, "kept", Duration::from_secs(3));
    let (token, history) = (guard.token(), History::default());
    let requested = Instant::now();
    let silent = run_on(&cluster, &["acquire", "silent", "--holder", "h", "--ttl", "3s"]).ok().json();
    history.valid_for(number(&silent), requested, Duration::from_secs(3));
    let leader = cluster.server(cluster.leader()).address.clone();
    let first = run_on(&cluster, &["acquire", "held", "--holder", "h", "--ttl", "10m"]).ok().json();
    let mut second =
        send_raw_request(&leader, "/v1/leases/held:acquire", "", r#"{"holder":"next","ttl":"10m","wait":"120s"}"#);
    cluster.server(cluster.leader()).wait_for_waiter("held");
    cluster.etcd.kill(0);
    cluster.etcd.kill(1);
    // For a waiting call the server opens a session whose ttl is shorter than this wait.
    let mut patient =
        send_raw_request(&leader, "/v1/leases/later:acquire", "", r#"{"holder":"h","ttl":"10m","wait":"60s"}"#);
    let mut waiting = send_raw_request(&leader, "/v1/leases/free:acquire", "", r#"{"holder":"h","ttl":"10m"}"#);
    std::thread::sleep(Duration::from_secs(depth(12, 30) as u64));
    waiting.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let read = waiting.read(&mut [0; 1]);
    assert!(read.is_err(), "a server without etcd does not reply: {read:?}");
    cluster.etcd.restart_member(0);
    cluster.etcd.restart_member(1);
    until_held(&guard);
    assert_eq!(guard.token(), token, "the guard was suspended, but its lease did not end");
    let next =
        run_on(&cluster, &["acquire", "silent", "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
    history.expired(number(&silent), Instant::now());
    assert!(number(&next) > number(&silent));
    run_on(&cluster, &["release", "held", "--token", &text(&first["token"])]).ok();
    let mut answer = String::new();
    let _ = second.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "an earlier waiter kept its queue position: {answer}");
    // Requests during the outage were applied once or not at all; each gets a reply.
    waiting.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    for (stream, name) in [(&mut waiting, "free"), (&mut patient, "later")] {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let shown = run_on(&cluster, &["show", name]);
        assert_eq!(answer.starts_with("HTTP/1.1 200"), shown.exit == 0, "{answer} and {shown:?}");
        assert!(!answer.contains("LEASE_LOST"), "a waiter has no lease to lose: {answer}");
    }
}

#[test]
fn renewed_leases_survive_a_slow_disk_of_etcd() {
    let under = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"];
    // With a longer delay etcd itself elects no leader: its own timeout is one second.
    let wrapper = under.into_iter().chain(["inject=fdatasync:delay_enter=250000"]).map(str::to_owned).collect();
    let cluster = ThreeServers::on(EtcdCluster::start(EtcdOptions { wrapper, ..EtcdOptions::default() }));
    let (_runtime, guard) = hold_lease(&cluster, "kept", Duration::from_secs(5));
    let (token, history) = (guard.token(), History::default());
    for round in 0..depth(2, 20) {
        let name = format!("silent/{round}");
        let requested = Instant::now();
        let silent = run_on(&cluster, &["acquire", &name, "--holder", "h", "--ttl", "2s"]).ok().json();
        history.valid_for(number(&silent), requested, Duration::from_secs(2));
        let next =
            run_on(&cluster, &["acquire", &name, "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
        history.expired(number(&silent), Instant::now());
        assert!(number(&next) > number(&silent));
    }
    until_held(&guard);
    assert_eq!(guard.token(), token);
}

/// Three servers, and a snapshot of their etcd that lacks the last grant.
fn cluster_with_lost_grant() -> (ThreeServers, String) {
    let cluster = ThreeServers::on(EtcdCluster::single());
    let snapshot = cluster.etcd.dir().join("snapshot.db").to_str().expect("a UTF-8 path").to_owned();
    run_on(&cluster, &["acquire", "a", "--holder", "h", "--ttl", "60s"]).ok();
    cluster.etcd.ctl_ok(&["snapshot", "save", &snapshot]);
    run_on(&cluster, &["acquire", "b", "--holder", "h", "--ttl", "60s"]).ok();
    cluster.wait_for_followers();
    (cluster, snapshot)
}

#[test]
fn a_standby_that_finds_a_restored_etcd_leaves_a_marker_that_stops_the_others() {
    let (mut cluster, snapshot) = cluster_with_lost_grant();
    let leader = cluster.leader();
    let standbys: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    // Stopped while the leader dies and etcd is restored, so that neither of them leads in between.
    standbys.iter().for_each(|at| cluster.server(*at).signal("STOP"));
    cluster.kill(leader);
    cluster.etcd.restore_snapshot(&snapshot);
    for at in standbys {
        let mut server = cluster.take(at);
        server.signal("CONT");
        assert_ne!(server.wait(), Some(0));
        let log = server.all_log_lines().join("\n");
        assert!(log.contains("ROLLED_BACK"), "{log}");
    }
    let marker = cluster.etcd.ctl_ok(&["get", "/cluster/rolled_back"]);
    assert!(marker.contains("rolled_back"), "{marker}");
    // A server that has seen nothing.
    std::fs::remove_dir_all(cluster.etcd.dir().join(format!("server-{leader}"))).expect("it has a data directory");
    let mut command = leasehold(&["serve"]);
    let reply = run(command.args(cluster.flags(leader)));
    assert!(reply.exit != 0 && reply.err.contains("ROLLED_BACK"), "{reply:?}");
}

#[test]
fn a_restored_etcd_is_refused_until_it_is_accepted() {
    let mut cluster = ThreeServers::on(EtcdCluster::single());
    let snapshot = cluster.etcd.dir().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("a UTF-8 path").to_owned();
    let before = run_on(&cluster, &["acquire", "a", "--holder", "h", "--ttl", "60s"]).ok().json();
    cluster.etcd.ctl_ok(&["snapshot", "save", &snapshot]);
    let lost = run_on(&cluster, &["acquire", "b", "--holder", "h", "--ttl", "60s"]).ok().json();
    cluster.wait_for_followers();
    for at in 0..3 {
        let witness = cluster.etcd.dir().join(format!("server-{at}/witness"));
        assert!(
            witness.exists(),
            "every server stores a high-water mark of the journal, also a standby from before its creation"
        );
    }
    cluster.etcd.restore_snapshot(&snapshot);
    // The running servers have seen more than etcd contains now.
    for at in 0..3 {
        let mut server = cluster.take(at);
        assert_ne!(server.wait(), Some(0));
        let log = server.all_log_lines().join("\n");
        assert!(log.contains("ROLLED_BACK") && !log.contains("STORAGE_FAILED"), "{log}");
        assert!(!log.contains("leadership resigned"), "no other server may lead: {log}");
    }
    let marker = cluster.etcd.ctl_ok(&["get", "/cluster/rolled_back"]);
    assert!(marker.contains("rolled_back"), "a marker stops servers that have seen nothing: {marker}");
    // So has a restarted server, which names the next step.
    let flags = cluster.flags(0);
    let serve = |more: &[&str]| {
        let mut command = leasehold(&["serve"]);
        run(command.args(&flags).args(more))
    };
    let reply = serve(&[]);
    assert!(reply.err.contains("ROLLED_BACK") && reply.err.contains("--accept-restored"), "{reply:?}");
    assert_ne!(reply.exit, 0);
    cluster.accept_restored();
    (0..3).for_each(|at| cluster.start(at));
    cluster.leader();
    let reply = run_on(&cluster, &["acquire", "c", "--holder", "h", "--ttl", "60s"]);
    assert!(reply.err.contains("QUARANTINED"), "no grants for one ttl: {reply:?}");
    for grant in [&before, &lost] {
        let name = if grant == &before { "a" } else { "b" };
        let reply = run_on(&cluster, &["renew", name, "--token", &text(&grant["token"])]);
        assert_eq!(reply.exit, 3, "no lease from before the restore is renewed: {reply:?}");
    }
}

#[test]
fn a_restored_etcd_is_refused_although_an_unaware_server_has_led_since() {
    let (mut cluster, snapshot) = cluster_with_lost_grant();
    (0..3).for_each(|at| cluster.kill(at));
    // One server has seen nothing of the journal, as if it were new.
    std::fs::remove_dir_all(cluster.etcd.dir().join("server-2")).expect("its data directory");
    cluster.etcd.restore_snapshot(&snapshot);
    cluster.start(2);
    assert_eq!(cluster.leader(), 2);
    // More than was lost, so that neither revision nor position is lower than before.
    for round in 0..20 {
        run_on(&cluster, &["acquire", &format!("c/{round}"), "--holder", "h", "--ttl", "60s"]).ok();
    }
    let flags = cluster.flags(0);
    let serve = || {
        let mut command = leasehold(&["serve"]);
        run(command.args(&flags))
    };
    let reply = serve();
    assert!(reply.err.contains("ROLLED_BACK") && reply.err.contains("--accept-restored"), "{reply:?}");
    // The unaware leader stops too: it would grant what another still holds.
    let mut leader = cluster.take(2);
    assert_eq!(leader.wait(), Some(5));
    let log = leader.all_log_lines().join("\n");
    assert!(log.contains("ROLLED_BACK") && !log.contains("leadership resigned"), "{log}");
    assert!(serve().err.contains("ROLLED_BACK"), "what was found is not forgotten");
    cluster.accept_restored();
    cluster.start(0);
    assert_eq!(cluster.leader(), 0);
    let reply = run_on(&cluster, &["acquire", "b", "--holder", "other", "--ttl", "60s"]);
    assert!(reply.err.contains("QUARANTINED"), "no grants for one ttl: {reply:?}");
    // The others need no flag: a new incarnation has begun.
    cluster.refuse_restored();
    for at in [1, 2] {
        cluster.start(at);
        cluster.wait_for_standby(at);
    }
}
