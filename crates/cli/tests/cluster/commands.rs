//! Operator commands on a cluster: cluster status, step-down, standby reads and dev-cluster.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::process::TestProcess;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Server, TEST_TIMEOUT, leasehold, run, text};
use crate::{Cluster, number, wait_until_redirects};

/// All addresses of a cluster, with one server first.
fn addresses_from(cluster: &Cluster, first: &Server) -> String {
    let others = cluster.servers.iter().map(|server| &server.address).filter(|address| **address != first.address);
    [&first.address].into_iter().chain(others).cloned().collect::<Vec<_>>().join(",")
}

/// Waits until the status from the first server that answers satisfies a condition.
#[track_caller]
fn wait_for_status(addresses: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let reply = run(&mut leasehold(&["cluster", "status", "--json", "--addr", addresses]));
        if let Some(body) = reply.out.lines().next().and_then(|line| serde_json::from_str(line).ok())
            && condition(&body)
        {
            return body;
        }
        assert!(Instant::now() < deadline, "status not reached: {reply:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn all_follow(status: &Value) -> bool {
    status["servers"].as_array().is_some_and(|servers| servers.len() == 3 && servers.iter().all(|s| s["behind"] == 0))
}

#[test]
fn every_server_reports_the_leader_the_lag_of_standbys_and_the_health_of_etcd() {
    let mut cluster = Cluster::of(EtcdCluster::three(), 3);
    cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    for server in &cluster.servers {
        let reply = wait_for_status(&addresses_from(&cluster, server), all_follow);
        assert_eq!(reply["leader"], Value::from(cluster.servers[0].address.as_str()), "{reply}");
        assert!(
            reply["since_ms"].as_u64().is_some() && reply["position"].as_u64().is_some_and(|at| at >= 2),
            "{reply}"
        );
        let role = |server: &Value| text(&server["role"]);
        let mut roles: Vec<_> = reply["servers"].as_array().expect("an array").iter().map(role).collect();
        roles.sort_unstable();
        assert_eq!(roles, ["leader", "standby", "standby"]);
        let etcd = reply["etcd"].as_array().expect("an array");
        assert!(etcd.len() == 3 && etcd.iter().all(|member| member["healthy"] == true), "{reply}");
        assert_eq!(etcd.iter().filter(|member| member["is_leader"] == true).count(), 1, "{reply}");
        let (used, quota) = (reply["database_bytes"].as_u64(), reply["quota_bytes"].as_u64());
        assert!(used.is_some_and(|used| used > 0) && used < quota, "{reply}");
    }
    let addresses = addresses_from(&cluster, &cluster.servers[1]);
    let text = cluster.servers[1].run(&["cluster", "status", "--addr", &addresses]).ok().out;
    assert!(text.contains("standby") && text.contains("healthy, leader") && text.contains("BEHIND"), "{text}");
    // A missing member of etcd is reported, and so is a missing server.
    cluster.etcd.kill(2);
    let reply = wait_for_status(&addresses, |reply| reply["etcd"][2]["healthy"] == false);
    assert!(reply["etcd"][2]["problem"].is_string(), "{reply}");
    let gone = cluster.servers.pop().expect("three").address.clone();
    let named = |reply: &Value| {
        let servers = reply["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().any(|server| server["address"] == gone.as_str() && server["problem"].is_string())
    };
    wait_for_status(&addresses, named);
    // A server that is not in the list is not contacted, although another one names it.
    let alone = wait_for_status(&cluster.servers[0].address, |_| true);
    let others = alone["servers"].as_array().expect("an array").iter();
    let others: Vec<_> = others.filter(|server| server["address"] != cluster.servers[0].address.as_str()).collect();
    let refused =
        |server: &&Value| server["problem"].as_str().is_some_and(|problem| problem.contains("add it to the addresses"));
    assert!(!others.is_empty() && others.iter().all(refused), "{alone}");
}

#[test]
fn another_server_leads_after_a_step_down_and_nothing_is_lost() {
    let cluster = Cluster::of(EtcdCluster::three(), 3);
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let mut leader = cluster.servers[0].address.clone();
    for round in 0..3 {
        wait_for_status(&cluster.addresses(), all_follow);
        let reply = cluster.json(&["step-down"]);
        assert_eq!(reply["before"], Value::from(leader.as_str()), "{reply}");
        assert_ne!(reply["leader"], reply["before"], "{reply}");
        leader = text(&reply["leader"]);
        let shown = cluster.json(&["show", "a"]);
        assert!(shown.to_string().contains(&text(&before["token_number"])), "the same lease: {shown}");
        let after = cluster.json(&["acquire", &format!("b/{round}"), "--holder", "h", "--ttl", "10m"]);
        assert!(number(&after) > number(&before), "{after} after {before}");
    }
    // A server that stepped down is a standby and can lead again.
    wait_for_status(&cluster.addresses(), all_follow);
    cluster.servers.iter().for_each(wait_until_redirects);
}

#[test]
fn step_down_fails_without_a_standby() {
    let cluster = Cluster::of(EtcdCluster::single(), 1);
    let server = &cluster.servers[0];
    let before = server.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    server.run(&["step-down"]).fails(1, "leasehold: NOT_FOUND{standby}: no other server stands by");
    let answer = server.http("POST", "/v1/cluster:step_down", "", "{}");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("\"subject\":\"standby\""), "{answer}");
    let after = server.json(&["acquire", "b", "--holder", "h", "--ttl", "10m"]);
    assert!(number(&after) > number(&before), "the server still leads: {after}");
    // A server with a local journal has no standby.
    let single = Server::start();
    single.run(&["step-down"]).fails(1, "leasehold: NOT_FOUND{standby}: no standby exists, ");
    assert_eq!(single.json(&["cluster", "status"])["servers"][0]["role"], "standalone");
    let text = single.run(&["cluster", "status"]).ok().out;
    assert!(text.contains("there are no other servers"), "{text}");
}

#[test]
fn a_standby_answers_reads_only_on_request_and_reports_its_position() {
    let cluster = Cluster::of(EtcdCluster::single(), 2);
    let (leader, standby) = (&cluster.servers[0], &cluster.servers[1]);
    let grant = leader.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let seen = leader.json(&["status"])["position"].as_u64().expect("a position");
    wait_for_status(&addresses_from(&cluster, standby), |reply| {
        reply["servers"].as_array().is_some_and(|all| all.iter().all(|one| one["behind"] == 0))
    });
    // By default only the leader answers.
    let reply = standby.http("GET", "/v1/leases/a", "", "");
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("NOT_LEADER"), "{reply}");
    let reply = standby.http("GET", "/v1/leases/a", &format!("leasehold-standby: {seen}\r\n"), "");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(&text(&grant["token_number"])), "{reply}");
    let position =
        reply.lines().find_map(|line| line.strip_prefix("leasehold-position: ")).expect("the header is present");
    assert!(position.trim().parse::<u64>().is_ok_and(|position| position >= seen), "{reply}");
    assert!(reply.contains("\"validity\":\"quorum\""), "{reply}");
    // The same with the command line, which follows no redirect here.
    let shown = standby.run(&["show", "a", "--standby"]).ok();
    assert!(shown.out.contains('h') && shown.err.starts_with("leasehold: as of position "), "{shown:?}");
    standby.run(&["ls", "--standby"]).ok();
    standby.run(&["held-by", "h", "--standby=1"]).ok();
    standby.run(&["waiters", "a", "--standby"]).ok();
    assert_eq!(standby.json(&["status", "--standby"])["held"], 1);
    // A standby behind the required position refuses.
    let reply = standby.http("GET", "/v1/status", "leasehold-standby: 999999999\r\n", "");
    assert!(
        reply.starts_with("HTTP/1.1 503") && reply.contains("UNAVAILABLE") && reply.contains("min_position"),
        "{reply}"
    );
    standby.run(&["show", "a", "--standby=999999999"]).fails(5, "leasehold: UNAVAILABLE: min_position");
    let reply = standby.http("GET", "/v1/status", "leasehold-standby: soon\r\n", "");
    assert!(reply.starts_with("HTTP/1.1 400") && reply.contains("leasehold-standby"), "{reply}");
    // Changes and history are redirected to the leader.
    for (method, path) in [("POST", "/v1/leases/a:release"), ("GET", "/v1/backup"), ("GET", "/v1/history/a")] {
        let reply = standby.http(method, path, "leasehold-standby: 0\r\n", "{}");
        assert!(reply.starts_with("HTTP/1.1 503") && reply.contains(&leader.address), "{path}: {reply}");
    }
    // Pages name the leader in the parts that only it has.
    let only_leader = format!("send the request to the leader at {}", leader.address);
    for path in ["/", "/ui/resource/a", "/ui/handovers", "/ui/audit", "/ui/audit/verify"] {
        let reply = standby.http("GET", path, "", "");
        assert!(reply.contains(&only_leader) && !reply.contains("shutting down"), "{path}: {reply}");
    }
    // A standby refuses wrong methods and web pages as a leader does.
    let reply = standby.http("POST", "/healthz", "", "");
    assert!(reply.starts_with("HTTP/1.1 405") && reply.contains("METHOD_NOT_ALLOWED"), "{reply}");
    for path in ["/healthz", "/metrics", "/v1/cluster", "/v1/leases"] {
        let reply = standby.http("GET", path, "origin: http://evil.test\r\n", "");
        assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("PERMISSION_DENIED"), "{path}: {reply}");
    }
}

/// Processes with a path in their command line, and the files in it.
fn leftovers(path: &Path) -> Vec<String> {
    let here = path.to_str().expect("a UTF-8 path");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(here).then_some(line)
    };
    let files = std::fs::read_dir(path).expect("a directory").flatten().map(|file| file.path().display().to_string());
    std::fs::read_dir("/proc").expect("a list of processes").filter_map(of).chain(files).collect()
}

/// Starts a `dev-cluster` process and waits until it prints its addresses.
fn start_dev_cluster(dir: &Path, args: &[&str]) -> (TestProcess, Value) {
    let mut command = leasehold(&["dev-cluster", "--json"]);
    command.args(args).env("TMPDIR", dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let process = TestProcess::spawn(&mut command).expect("the binary starts");
    let line = process.stdout().next_line().expect("a line");
    (process, serde_json::from_str(&line).expect("one document"))
}

#[track_caller]
fn until_nothing_is_leftovers(place: &Path) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !leftovers(place).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", leftovers(place));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_dev_cluster_starts_everything_and_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::KILL] {
        let place = tempfile::tempdir().expect("a directory");
        let (mut cluster, reply) = start_dev_cluster(place.path(), &["--servers", "2"]);
        let servers = reply["servers"].as_array().expect("an array");
        assert!(servers.len() == 2 && reply["etcd"].as_array().is_some_and(|etcd| etcd.len() == 3), "{reply}");
        let addresses: Vec<_> = servers.iter().map(|server| text(&server["address"])).collect();
        let acquire = ["acquire", "a", "--holder", "h", "--ttl", "60s", "--json"];
        let grant = run(leasehold(&acquire).env("LEASEHOLD_ADDR", addresses.join(","))).ok().json();
        assert_eq!(grant["validity"], "quorum", "{grant}");
        assert!(!leftovers(place.path()).is_empty(), "it exists while it runs");
        cluster.signal(signal).expect("the process runs");
        let ended = cluster.wait();
        assert_eq!(ended.code(), if signal == Signal::INT { Some(0) } else { None });
        until_nothing_is_leftovers(place.path());
    }
}

#[test]
fn a_dev_cluster_in_a_directory_continues_with_its_data() {
    let place = tempfile::tempdir().expect("a directory");
    let kept = place.path().join("kept");
    let kept = kept.to_str().expect("a UTF-8 path");
    let mut number = None;
    for round in 0..2 {
        let (mut cluster, reply) = start_dev_cluster(place.path(), &["--servers", "2", "--dir", kept]);
        let address = text(&reply["leader"]);
        if round == 0 {
            let acquire = ["acquire", "a", "--holder", "h", "--ttl", "10m", "--json", "--addr", &address];
            number = Some(text(&run(&mut leasehold(&acquire)).ok().json()["token_number"]));
        } else {
            let shown = run(&mut leasehold(&["show", "a", "--json", "--addr", &address])).ok().json();
            assert!(shown.to_string().contains(number.as_deref().expect("the lease was acquired")), "{shown}");
        }
        cluster.signal(Signal::TERM).expect("the process runs");
        assert_eq!(cluster.wait().code(), Some(0));
    }
}

#[test]
fn without_etcd_dev_cluster_names_the_package_to_install() {
    let place = tempfile::tempdir().expect("a directory");
    let reply = run(leasehold(&["dev-cluster"]).env("TMPDIR", place.path()).env("PATH", place.path()));
    assert!(reply.exit == 78 && reply.err.contains("apt-get install etcd-server"), "{reply:?}");
    assert!(leftovers(place.path()).is_empty());
}
