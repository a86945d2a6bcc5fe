//! Several server processes on one etcd: leadership, redirects, failover and standby reads.

mod access;
#[path = "../durability/clients.rs"]
mod clients;
mod deposed_leader;
mod etcd_auth;
mod faults;
#[path = "../durability/fifo.rs"]
mod fifo;
mod harness;
#[path = "../durability/history.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod history;
mod incompatible_etcd;
mod outage;
#[path = "../durability/silent_holder.rs"]
mod silent_holder;
mod storm;
#[path = "../support/mod.rs"]
mod support;
#[path = "../durability/transport.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod transport;
#[path = "../durability/worker.rs"]
mod worker;
mod workload;
#[path = "../durability/writer.rs"]
mod writer;

mod bench;
mod client_idempotency_keys;
mod commands;
mod health;
mod trace;

use std::time::{Duration, Instant};

use leasehold_testkit::etcd::EtcdCluster;
use support::{Server, TEST_TIMEOUT, leasehold, run, text};

/// Exit code of a command without a leader.
const NO_LEADER: i32 = 5;

/// Servers on one etcd. The leader key outlives its server by ten seconds, longer than any pause of a busy machine.
struct Cluster {
    etcd: EtcdCluster,
    servers: Vec<Server>,
}

impl Cluster {
    fn of(etcd: EtcdCluster, servers: usize) -> Self {
        let mut cluster = Self { etcd, servers: Vec::new() };
        for _ in 0..servers {
            let server = cluster.start_server();
            cluster.servers.push(server);
            // The first server leads before the next one starts, so the leader is known.
            cluster.wait_for_leader();
        }
        cluster
    }

    fn start_server(&self) -> Server {
        let endpoints = self.etcd.endpoints().join(",");
        let data = self.etcd.dir().join(format!("server-{}", self.servers.len()));
        let data = data.to_str().expect("a UTF-8 path");
        let journal = format!("etcd://{endpoints}/cluster");
        Server::with_flags(&["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data, "--etcd-lease", "10"])
    }

    /// Waits until one server is ready and the others redirect to it. Returns its index.
    fn wait_for_leader(&self) -> usize {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let ready = |server: &Server| get(server, "/readyz").is_some_and(|answer| answer.ends_with("ready\n"));
            if let Some(at) = self.servers.iter().position(ready) {
                self.servers.iter().for_each(wait_until_redirects);
                return at;
            }
            assert!(Instant::now() < deadline, "no server leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn addresses(&self) -> String {
        self.servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Runs a command against all servers.
    fn json(&self, args: &[&str]) -> serde_json::Value {
        run(leasehold(args).arg("--json").env("LEASEHOLD_ADDR", self.addresses())).ok().json()
    }
}

/// Waits until a server leads or redirects. A new standby does not know the leader for a moment.
fn wait_until_redirects(server: &Server) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let redirects = |answer: String| !answer.starts_with("HTTP/1.1 503") || answer.contains("to the leader at ");
    while !get(server, "/v1/leases/a").is_some_and(redirects) {
        assert!(Instant::now() < deadline, "the server does not redirect");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The response of a server, if it responds.
fn get(server: &Server, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(&server.address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn number(grant: &serde_json::Value) -> u64 {
    text(&grant["token_number"]).parse().expect("a number")
}

#[test]
fn one_server_leads_and_the_others_redirect_to_it() {
    let cluster = Cluster::of(EtcdCluster::single(), 2);
    let (leader, standby) = (&cluster.servers[0], &cluster.servers[1]);
    assert!(get(standby, "/readyz").is_some_and(|answer| answer.ends_with("standby\n")));
    assert!(get(standby, "/healthz").is_some_and(|answer| answer.ends_with("alive\n")));
    assert!(get(standby, "/metrics").is_some_and(|answer| answer.contains("leasehold_journal_position")));
    let reply = standby.http("POST", "/v1/leases/a:acquire", "", r#"{"holder":"h","ttl":"10s"}"#);
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("NOT_LEADER"), "{reply}");
    assert!(reply.contains(&leader.address), "{reply}");
    // The client follows the redirect, to a server of its list only.
    let refused = standby.run(&["acquire", "a", "--holder", "h", "--ttl", "60s"]);
    assert!(refused.exit == NO_LEADER && refused.err.contains("NOT_LEADER"), "{refused:?}");
    let both = format!("{},{}", standby.address, leader.address);
    let grant = standby.json(&["acquire", "a", "--holder", "h", "--ttl", "60s", "--addr", &both]);
    assert_eq!(grant["validity"], "quorum", "{grant}");
    assert_eq!(leader.json(&["show", "a"])["held"], 1);
}

#[test]
fn after_a_leader_crash_another_server_leads_with_every_lease() {
    let mut cluster = Cluster::of(EtcdCluster::three(), 3);
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let leader = cluster.wait_for_leader();
    drop(cluster.servers.remove(leader));
    cluster.wait_for_leader();
    let shown = cluster.json(&["show", "a"]);
    assert!(shown.to_string().contains(&text(&before["token_number"])), "the same lease: {shown}");
    let after = cluster.json(&["acquire", "b", "--holder", "h", "--ttl", "10m"]);
    assert!(number(&after) > number(&before), "{after} after {before}");
    // The new leader does not grant a held lease to another holder.
    let reply = run(
        leasehold(&["acquire", "a", "--holder", "other", "--ttl", "1m"]).env("LEASEHOLD_ADDR", cluster.addresses())
    );
    assert_eq!(reply.exit, 4, "{reply:?}");
}

#[test]
fn a_stopped_leader_decides_nothing_after_it_continues() {
    let cluster = Cluster::of(EtcdCluster::single(), 2);
    let leader = cluster.wait_for_leader();
    let (old, new) = (&cluster.servers[leader], &cluster.servers[1 - leader]);
    let before = old.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    old.signal("STOP");
    new.wait_for_log("serving on");
    let token = text(&before["token"]);
    new.run(&["release", "a", "--token", &token]).ok();
    let after = new.json(&["acquire", "a", "--holder", "other", "--ttl", "10m"]);
    old.signal("CONT");
    old.wait_for_log("stands by");
    wait_until_redirects(old);
    // It has the old state in memory, but does not serve it.
    let both = format!("{},{}", old.address, new.address);
    let shown = old.json(&["show", "a", "--addr", &both]);
    assert!(shown.to_string().contains(&text(&after["token_number"])), "{shown}");
    let reply = old.run(&["renew", "a", "--token", &token, "--addr", &both]);
    assert_eq!(reply.exit, 3, "the lease has ended on every server: {reply:?}");
}

#[test]
fn a_leader_hands_over_before_it_stops() {
    let mut cluster = Cluster::of(EtcdCluster::single(), 2);
    let leader = cluster.wait_for_leader();
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let mut old = cluster.servers.remove(leader);
    old.signal("TERM");
    let line = old.wait_for_log("leadership resigned");
    assert!(line.contains(&cluster.servers[0].address), "{line}");
    assert_eq!(old.wait(), Some(0));
    cluster.servers[0].wait_for_log("serving on");
    let shown = cluster.json(&["show", "a"]);
    assert!(shown.to_string().contains(&text(&before["token_number"])), "{shown}");
}
