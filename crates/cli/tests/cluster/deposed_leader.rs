//! Deposed leaders: the old leader decides nothing, no lease ends early, and no lease of a silent holder lasts forever.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::{Client, Guard, GuardState};
use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::tcp_proxy::Flow;
use serde_json::Value;

use crate::faults::depth;
use crate::harness::{TEST_TIMEOUT, ThreeServers};
use crate::history::History;
use crate::support::{CommandRun, leasehold, run, spawn_piped, text, wait_for_output};
use crate::{number, wait_until_redirects};

/// Exit code if another holder has the lease.
const BUSY: i32 = 4;

/// A guard that is renewed across leader changes, and its runtime.
pub fn hold_lease(cluster: &ThreeServers, name: &str, ttl: Duration) -> (tokio::runtime::Runtime, Guard) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = Client::builder(&cluster.addresses()).expect("addresses").holder("guard").build();
    let guard = runtime.block_on(async { client.lock(name).ttl(ttl).acquire().await }).expect("the resource is free");
    (runtime, guard)
}

/// Waits until a guard holds its lease, possibly after a suspension.
pub fn until_held(guard: &Guard) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while guard.state() != GuardState::Held {
        assert!(Instant::now() < deadline, "{:?}", guard.state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command against all servers.
pub fn run_on(cluster: &ThreeServers, args: &[&str]) -> CommandRun {
    run(leasehold(args).arg("--json").env("LEASEHOLD_ADDR", cluster.addresses()))
}

/// Sends a request that a stopped server reads only when it continues.
pub fn send_raw_request(address: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the kernel accepts it");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}");
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    write!(stream, "{head}{kind}content-length: {}\r\n\r\n{body}", body.len()).expect("the kernel accepts it");
    stream
}

#[test]
fn a_stopped_leader_that_continues_grants_renews_expires_and_shows_nothing() {
    let cluster = ThreeServers::on(EtcdCluster::single());
    let old = cluster.leader();
    let (_runtime, guard) = hold_lease(&cluster, "kept", Duration::from_secs(5));
    let token = guard.token();
    let before = cluster.server(old).json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let held = text(&before["token"]);
    cluster.server(old).signal("STOP");
    let stopped = Instant::now();
    let address = &cluster.server(old).address;
    let shown = format!("lease-token: {held}\r\n");
    let streams = [
        send_raw_request(address, "/v1/leases/a:renew", &shown, ""),
        send_raw_request(address, "/v1/leases/a:release", &shown, ""),
        send_raw_request(address, "/v1/leases/free:acquire", "", r#"{"holder":"h","ttl":"10m"}"#),
    ];
    let new = cluster.wait_for_other_leader(old);
    cluster.server(new).run(&["release", "a", "--token", &held]).ok();
    let after = cluster.server(new).json(&["acquire", "a", "--holder", "other", "--ttl", "10m"]);
    let free = cluster.server(new).json(&["acquire", "free", "--holder", "other", "--ttl", "10m"]);
    // By the clock of the stopped leader the lease has expired by then; its holder has renewed with the new leader.
    std::thread::sleep(Duration::from_secs(7).saturating_sub(stopped.elapsed()));
    until_held(&guard);
    cluster.server(old).signal("CONT");
    for mut stream in streams {
        let mut answer = String::new();
        // A broken connection is not a reply.
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.starts_with("HTTP/1.1 2"), "the deposed leader decided: {answer}");
    }
    cluster.wait_for_standby(old);
    wait_until_redirects(cluster.server(old));
    until_held(&guard);
    assert_eq!(guard.token(), token, "its lease did not end");
    for (name, grant) in [("a", &after), ("free", &free)] {
        let shown = cluster.server(new).json(&["show", name]);
        assert!(shown.to_string().contains(&text(&grant["token_number"])), "{name}: {shown}");
    }
    let both = format!("{},{}", cluster.server(old).address, cluster.server(new).address);
    let renewed = cluster.server(old).run(&["renew", "a", "--token", &held, "--addr", &both]);
    assert_eq!(renewed.exit, 3, "on every server");
}

/// Fields of the cluster view of one server.
fn cluster_view(address: &str) -> Option<(String, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).ok()?;
    stream.write_all(b"GET /v1/cluster HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let view: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
    Some((text(&view["role"]), view["leader"].clone()))
}

#[test]
fn a_deposed_server_claims_nothing_and_refuses_reads_as_not_the_leader() {
    let cluster = ThreeServers::on(EtcdCluster::single());
    let old = cluster.leader();
    let address = cluster.server(old).address.clone();
    assert_eq!(cluster_view(&address), Some(("leader".to_owned(), address.as_str().into())));
    // It is cut off, so that it does not learn that another server leads.
    cluster.set_etcd_links(old, Flow::Hold, Flow::Hold);
    let new = cluster.wait_for_other_leader(old);
    let view = cluster_view(&address).expect("every server reports its role");
    assert!(view.0 == "standby" && view.1 != address.as_str(), "it claims to lead: {view:?}");
    let reads: Vec<_> = ["status", "ls"]
        .map(|command| spawn_piped(leasehold(&[command, "--json"]).env("LEASEHOLD_ADDR", &address)))
        .into();
    cluster.set_etcd_links(old, Flow::Pass, Flow::Pass);
    for read in reads {
        let reply = wait_for_output(read);
        // Either it is a standby by now and refers to the leader, or the read ends without an answer; it is never unknown.
        assert!(reply.exit == 0 || !reply.err.contains("INDETERMINATE"), "{reply:?}");
    }
    cluster.wait_for_standby(old);
    assert_eq!(cluster_view(&address).map(|view| view.0), Some("standby".to_owned()));
    assert_eq!(cluster_view(&cluster.server(new).address).map(|view| view.0), Some("leader".to_owned()));
}

#[test]
fn a_wait_of_the_command_line_continues_at_the_next_leader() {
    let mut cluster = ThreeServers::on(EtcdCluster::single());
    let old = cluster.leader();
    let held = run_on(&cluster, &["acquire", "a", "--holder", "first", "--ttl", "10m"]).ok().json();
    let wait = ["acquire", "a", "--holder", "second", "--ttl", "10m", "--wait", "100s", "--json"];
    let waiting = spawn_piped(leasehold(&wait).env("LEASEHOLD_ADDR", cluster.addresses()));
    cluster.server(old).wait_for_waiter("a");
    cluster.kill(old);
    let new = cluster.wait_for_other_leader(old);
    cluster.server(new).wait_for_waiter("a");
    let token = text(&held["token"]);
    cluster.server(new).run(&["release", "a", "--token", &token]).ok();
    let granted = wait_for_output(waiting).ok().json();
    let shown = cluster.server(new).json(&["show", "a"]);
    assert_eq!(shown["leases"][0]["token_number"], granted["token_number"], "it holds the one grant: {shown}");
    assert_eq!((&shown["held"], &shown["leases"][0]["session"]), (&1.into(), &Value::Null), "{shown}");
}

#[test]
fn a_renewal_acknowledged_just_before_a_leader_crash_counts() {
    const TTL: Duration = Duration::from_secs(3);
    let mut cluster = ThreeServers::on(EtcdCluster::single());
    let history = History::default();
    for round in 0..depth(2, 40) {
        let name = format!("renewed/{round}");
        let (floor, requested) = (history.floor(), Instant::now());
        let grant = run_on(&cluster, &["acquire", &name, "--holder", "h", "--ttl", "3s"]).ok().json();
        let old = cluster.leader();
        history.granted(&name, &("h".to_owned(), round as u64), number(&grant), floor);
        history.valid_for(number(&grant), requested, TTL);
        let token = text(&grant["token"]);
        let renewed = Instant::now();
        if run_on(&cluster, &["renew", &name, "--token", &token]).exit == 0 {
            history.valid_for(number(&grant), renewed, TTL);
        }
        cluster.kill(old);
        cluster.wait_for_other_leader(old);
        let successor =
            run_on(&cluster, &["acquire", &name, "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
        history.expired(number(&grant), Instant::now());
        history.ending(&name, number(&grant));
        history.granted(&name, &("next".to_owned(), round as u64), number(&successor), history.floor());
        cluster.start(old);
    }
}

/// Forces `rounds` failovers at an interval. Returns the number of leases of silent holders that ended.
fn fail_over(cluster: &ThreeServers, rounds: usize, ttl: Duration, every: Duration) -> usize {
    let name = format!("silent/{}", every.as_millis());
    let (ttl_text, history) = (format!("{}ms", ttl.as_millis()), History::default());
    let (mut last, mut ended) = (None::<u64>, 0);
    for round in 0..rounds {
        cluster.leader();
        std::thread::sleep(every);
        let (floor, requested) = (history.floor(), Instant::now());
        let reply = run_on(cluster, &["acquire", &name, "--holder", "silent", "--ttl", &ttl_text]);
        if reply.exit == 0 {
            let grant: Value = reply.json();
            if let Some(last) = last.replace(number(&grant)) {
                history.expired(last, Instant::now());
                history.ending(&name, last);
                ended += 1;
            }
            history.granted(&name, &("silent".to_owned(), round as u64), number(&grant), floor);
            history.valid_for(number(&grant), requested, ttl);
        } else {
            assert_eq!(reply.exit, BUSY, "{reply:?}");
        }
        // Only recorded time counts as served. An idle server records its time once per second.
        run_on(
            cluster,
            &["acquire", &format!("other/{}/{round}", every.as_millis()), "--holder", "other", "--ttl", "1s"],
        )
        .ok();
        cluster.etcd.ctl_ok(&["del", "/cluster/leader"]);
    }
    ended
}

#[test]
fn the_lease_of_a_dead_holder_ends_although_the_leader_changes_every_half_and_quarter_ttl() {
    let cluster = ThreeServers::on(EtcdCluster::single());
    let rounds = depth(20, 200);
    let ttl = Duration::from_secs(2);
    for part in [2, 4] {
        // At most two ttls of served time, one of stall credit, and a little per tenure.
        let ended = fail_over(&cluster, rounds, ttl, ttl / part);
        println!("every ttl/{part}: {ended} leases ended in {rounds} tenures");
        assert!(ended > 0, "the lease of a silent holder does not end (L9)");
    }
}
