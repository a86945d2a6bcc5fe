//! What operators ask of several servers: who leads, that another one does, and what a standby knows.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::etcd_support::Server as EtcdServer;
use crate::support::{PATIENCE, Server, leasehold, run, text};
use crate::{Cluster, number, until_it_points};

/// Waits until a server says this of its cluster.
#[track_caller]
fn until_told(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    let over = Instant::now() + PATIENCE;
    loop {
        let told = run(server.command(&["cluster", "status"]).arg("--json"));
        if let Some(body) = told.out.lines().next().and_then(|line| serde_json::from_str(line).ok())
            && wanted(&body)
        {
            return body;
        }
        assert!(Instant::now() < over, "never told: {told:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn all_follow(status: &Value) -> bool {
    status["servers"].as_array().is_some_and(|servers| servers.len() == 3 && servers.iter().all(|s| s["behind"] == 0))
}

#[test]
fn any_server_tells_who_leads_how_far_the_others_are_and_how_etcd_is() {
    let mut cluster = Cluster::of(EtcdServer::three(), 3);
    cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    for server in &cluster.servers {
        let told = until_told(server, all_follow);
        assert_eq!(told["leader"], Value::from(cluster.servers[0].address.as_str()), "{told}");
        assert!(told["since_ms"].as_u64().is_some() && told["position"].as_u64().is_some_and(|at| at >= 2), "{told}");
        let role = |server: &Value| text(&server["role"]);
        let mut roles: Vec<_> = told["servers"].as_array().expect("a list").iter().map(role).collect();
        roles.sort_unstable();
        assert_eq!(roles, ["leads", "stands_by", "stands_by"]);
        let etcd = told["etcd"].as_array().expect("a list");
        assert!(etcd.len() == 3 && etcd.iter().all(|member| member["healthy"] == true), "{told}");
        assert_eq!(etcd.iter().filter(|member| member["leads"] == true).count(), 1, "{told}");
        let (used, quota) = (told["database_bytes"].as_u64(), told["quota_bytes"].as_u64());
        assert!(used.is_some_and(|used| used > 0) && used < quota, "{told}");
    }
    let words = cluster.servers[1].run(&["cluster", "status"]).ok().out;
    assert!(words.contains("stands by") && words.contains("healthy, leads") && words.contains("BEHIND"), "{words}");
    // A member of etcd that is gone is told, and so is a server.
    cluster.etcd.kill(2);
    let told = until_told(&cluster.servers[1], |told| told["etcd"][2]["healthy"] == false);
    assert!(told["etcd"][2]["problem"].is_string(), "{told}");
    let gone = cluster.servers.pop().expect("three").address.clone();
    let named = |told: &Value| {
        let servers = told["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().any(|server| server["address"] == gone.as_str() && server["problem"].is_string())
    };
    until_told(&cluster.servers[0], named);
}

#[test]
fn a_leader_that_steps_down_is_followed_by_another_and_nothing_is_lost() {
    let cluster = Cluster::of(EtcdServer::three(), 3);
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let mut leader = cluster.servers[0].address.clone();
    for round in 0..3 {
        until_told(&cluster.servers[0], all_follow);
        let told = cluster.json(&["step-down"]);
        assert_eq!(told["before"], Value::from(leader.as_str()), "{told}");
        assert_ne!(told["leader"], told["before"], "{told}");
        leader = text(&told["leader"]);
        let shown = cluster.json(&["show", "a"]);
        assert!(shown.to_string().contains(&text(&before["token_number"])), "the same hold: {shown}");
        let after = cluster.json(&["acquire", &format!("b/{round}"), "--holder", "h", "--ttl", "10m"]);
        assert!(number(&after) > number(&before), "{after} after {before}");
    }
    // Whoever stepped down stands by, and can lead again.
    until_told(&cluster.servers[0], all_follow);
    cluster.servers.iter().for_each(until_it_points);
}

#[test]
fn nobody_steps_down_where_nobody_stands_by() {
    let cluster = Cluster::of(EtcdServer::single(), 1);
    let server = &cluster.servers[0];
    let before = server.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    server.run(&["step-down"]).fails(1, "leasehold: NOT_FOUND{standby}: no other server stands by");
    let answer = server.http("POST", "/v1/cluster:step_down", "", "{}");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("\"about\":\"standby\""), "{answer}");
    let after = server.json(&["acquire", "b", "--holder", "h", "--ttl", "10m"]);
    assert!(number(&after) > number(&before), "it goes on: {after}");
    // With a journal on one machine there is nobody to hand over to.
    let alone = Server::start();
    alone.run(&["step-down"]).fails(1, "leasehold: NOT_FOUND{standby}: no such standby");
    assert_eq!(alone.json(&["cluster", "status"])["servers"][0]["role"], "alone");
    let words = alone.run(&["cluster", "status"]).ok().out;
    assert!(words.contains("there are no other servers"), "{words}");
}

#[test]
fn a_standby_answers_a_look_only_if_asked_and_says_as_of_which_position() {
    let cluster = Cluster::of(EtcdServer::single(), 2);
    let (leader, standby) = (&cluster.servers[0], &cluster.servers[1]);
    let grant = leader.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let seen = leader.json(&["status"])["position"].as_u64().expect("a position");
    until_told(standby, |told| told["servers"].as_array().is_some_and(|all| all.iter().all(|one| one["behind"] == 0)));
    // Only the leader, unless a reader says otherwise.
    let told = standby.http("GET", "/v1/leases/a", "", "");
    assert!(told.starts_with("HTTP/1.1 503") && told.contains("NOT_LEADER"), "{told}");
    let told = standby.http("GET", "/v1/leases/a", &format!("leasehold-standby: {seen}\r\n"), "");
    assert!(told.starts_with("HTTP/1.1 200") && told.contains(&text(&grant["token_number"])), "{told}");
    let position = told.lines().find_map(|line| line.strip_prefix("leasehold-position: ")).expect("it is told");
    assert!(position.trim().parse::<u64>().is_ok_and(|position| position >= seen), "{told}");
    assert!(told.contains("\"rung\":\"quorum\""), "{told}");
    // The same at a terminal, where nobody is followed.
    let shown = standby.run(&["show", "a", "--standby"]).ok();
    assert!(shown.out.contains('h') && shown.err.starts_with("leasehold: as of position "), "{shown:?}");
    standby.run(&["ls", "--standby"]).ok();
    standby.run(&["held-by", "h", "--standby=1"]).ok();
    standby.run(&["waiters", "a", "--standby"]).ok();
    assert_eq!(standby.json(&["status", "--standby"])["held"], 1);
    // Below what its reader has seen it is refused.
    let told = standby.http("GET", "/v1/status", "leasehold-standby: 999999999\r\n", "");
    assert!(
        told.starts_with("HTTP/1.1 503") && told.contains("UNAVAILABLE") && told.contains("min_position"),
        "{told}"
    );
    standby.run(&["show", "a", "--standby=999999999"]).fails(5, "leasehold: UNAVAILABLE: min_position");
    let told = standby.http("GET", "/v1/status", "leasehold-standby: soon\r\n", "");
    assert!(told.starts_with("HTTP/1.1 400") && told.contains("leasehold-standby"), "{told}");
    // Whoever wants something changed, or the past, is sent on.
    for (method, path) in [("POST", "/v1/leases/a:release"), ("GET", "/v1/backup"), ("GET", "/v1/history/a")] {
        let told = standby.http(method, path, "leasehold-standby: 0\r\n", "{}");
        assert!(told.starts_with("HTTP/1.1 503") && told.contains(&leader.address), "{path}: {told}");
    }
}

/// Processes that were told of a path, and what lies there.
fn left(path: &Path) -> Vec<String> {
    let here = path.to_str().expect("a text");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(here).then_some(line)
    };
    let files = std::fs::read_dir(path).expect("a directory").flatten().map(|file| file.path().display().to_string());
    std::fs::read_dir("/proc").expect("a list of processes").filter_map(of).chain(files).collect()
}

/// A try-out that is killed if its test fails.
struct TryOut(Child);

impl TryOut {
    /// Starts one, and waits until it says where everything is.
    fn begin(place: &Path, args: &[&str]) -> (Self, Value) {
        let mut command = leasehold(&["dev-cluster", "--json"]);
        command.args(args).env("TMPDIR", place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        let line = BufReader::new(child.stdout.take().expect("it is piped")).lines().next();
        let line = line.expect("it says where").expect("text");
        (Self(child), serde_json::from_str(&line).expect("one document"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for TryOut {
    fn drop(&mut self) {
        // One that ended already has nothing left to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn until_nothing_is_left(place: &Path) {
    let over = Instant::now() + PATIENCE;
    while !left(place).is_empty() {
        assert!(Instant::now() < over, "still there: {:?}", left(place));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_try_out_starts_everything_and_leaves_nothing() {
    for signal in ["INT", "KILL"] {
        let place = tempfile::tempdir().expect("a directory");
        let (mut tried, told) = TryOut::begin(place.path(), &["--servers", "2"]);
        let servers = told["servers"].as_array().expect("a list");
        assert!(servers.len() == 2 && told["etcd"].as_array().is_some_and(|etcd| etcd.len() == 3), "{told}");
        let addresses: Vec<_> = servers.iter().map(|server| text(&server["address"])).collect();
        let acquire = ["acquire", "a", "--holder", "h", "--ttl", "60s", "--json"];
        let grant = run(leasehold(&acquire).env("LEASEHOLD_ADDR", addresses.join(","))).ok().json();
        assert_eq!(grant["rung"], "quorum", "{grant}");
        assert!(!left(place.path()).is_empty(), "it is there while it runs");
        tried.signal(signal);
        let ended = tried.0.wait().expect("it ends");
        assert_eq!(ended.code(), if signal == "INT" { Some(0) } else { None });
        until_nothing_is_left(place.path());
    }
}

#[test]
fn a_try_out_in_a_directory_goes_on_from_what_is_there() {
    let place = tempfile::tempdir().expect("a directory");
    let kept = place.path().join("kept");
    let kept = kept.to_str().expect("a text");
    let mut number = None;
    for round in 0..2 {
        let (mut tried, told) = TryOut::begin(place.path(), &["--servers", "2", "--dir", kept]);
        let address = text(&told["leader"]);
        if round == 0 {
            let acquire = ["acquire", "a", "--holder", "h", "--ttl", "10m", "--json", "--addr", &address];
            number = Some(text(&run(&mut leasehold(&acquire)).ok().json()["token_number"]));
        } else {
            let shown = run(&mut leasehold(&["show", "a", "--json", "--addr", &address])).ok().json();
            assert!(shown.to_string().contains(number.as_deref().expect("it was taken")), "{shown}");
        }
        tried.signal("TERM");
        assert_eq!(tried.0.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn without_etcd_a_try_out_says_what_to_install() {
    let place = tempfile::tempdir().expect("a directory");
    let told = run(leasehold(&["dev-cluster"]).env("TMPDIR", place.path()).env("PATH", place.path()));
    assert!(told.exit == 78 && told.err.contains("apt-get install etcd-server"), "{told:?}");
    assert!(left(place.path()).is_empty());
}
