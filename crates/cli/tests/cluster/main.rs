//! Several servers over one etcd, as processes: one leads, the others point at it, and when it is gone one of them leads.

mod befalls;
#[path = "../survives/chance.rs"]
mod chance;
#[path = "../survives/crowd.rs"]
mod crowd;
mod deposed;
#[path = "../../../server/tests/etcd_support/mod.rs"]
mod etcd_support;
mod guarded;
#[path = "../survives/history.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod history;
#[path = "../survives/line.rs"]
mod line;
#[path = "../survives/link.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod link;
mod ordeal;
mod outage;
mod refused;
#[path = "../survives/sleeper.rs"]
mod sleeper;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod trio;
#[path = "../support/way.rs"]
mod way;
#[path = "../survives/worker.rs"]
mod worker;
#[path = "../survives/writer.rs"]
mod writer;

mod commands;
mod measures;

use std::time::{Duration, Instant};

use etcd_support::Server as EtcdServer;
use support::{PATIENCE, Server, leasehold, run, text};

/// The exit code of a command that nobody could decide.
const NO_LEADER: i32 = 5;

/// Servers over one etcd. The leader key outlives its server by ten seconds: no pause of a busy machine is as long.
struct Cluster {
    etcd: EtcdServer,
    servers: Vec<Server>,
}

impl Cluster {
    fn of(etcd: EtcdServer, servers: usize) -> Self {
        let mut cluster = Self { etcd, servers: Vec::new() };
        for _ in 0..servers {
            let server = cluster.another();
            cluster.servers.push(server);
            // The first leads before there is another: so it is known who does.
            cluster.until_led();
        }
        cluster
    }

    fn another(&self) -> Server {
        let endpoints = self.etcd.entry().endpoints.join(",");
        let data = self.etcd.above.path().join(format!("server-{}", self.servers.len()));
        let data = data.to_str().expect("a path of text");
        let journal = format!("etcd://{endpoints}/cluster");
        Server::with(&["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data, "--etcd-lease", "10"])
    }

    /// Waits until one of the servers answers that it is ready, and the others know which. Returns it.
    fn until_led(&self) -> usize {
        let over = Instant::now() + PATIENCE;
        loop {
            let ready = |server: &Server| answers(server, "/readyz").is_some_and(|answer| answer.ends_with("ready\n"));
            if let Some(at) = self.servers.iter().position(ready) {
                self.servers.iter().for_each(until_it_points);
                return at;
            }
            assert!(Instant::now() < over, "nobody leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn addresses(&self) -> String {
        self.servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// A command that asks them all.
    fn json(&self, args: &[&str]) -> serde_json::Value {
        run(leasehold(args).arg("--json").env("LEASEHOLD_ADDR", self.addresses())).ok().json()
    }
}

/// Waits until a server leads or knows who does: one that has just begun to stand by points at nobody for a moment.
fn until_it_points(server: &Server) {
    let over = Instant::now() + PATIENCE;
    while server.run(&["show", "a"]).exit == NO_LEADER {
        assert!(Instant::now() < over, "it points at nobody");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a server answers, if it does.
fn answers(server: &Server, path: &str) -> Option<String> {
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
fn one_leads_and_the_others_point_at_it() {
    let cluster = Cluster::of(EtcdServer::single(), 2);
    let (leader, standby) = (&cluster.servers[0], &cluster.servers[1]);
    assert!(answers(standby, "/readyz").is_some_and(|answer| answer.ends_with("standby\n")));
    assert!(answers(standby, "/healthz").is_some_and(|answer| answer.ends_with("alive\n")));
    assert!(answers(standby, "/metrics").is_some_and(|answer| answer.contains("leasehold_position")));
    let told = standby.http("POST", "/v1/leases/a:acquire", "", r#"{"holder":"h","ttl":"10s"}"#);
    assert!(told.starts_with("HTTP/1.1 503") && told.contains("NOT_LEADER"), "{told}");
    assert!(told.contains(&leader.address), "{told}");
    // The client follows by itself.
    let grant = standby.json(&["acquire", "a", "--holder", "h", "--ttl", "60s"]);
    assert_eq!(grant["rung"], "quorum", "{grant}");
    assert_eq!(leader.json(&["show", "a"])["held"], 1);
}

#[test]
fn when_the_leader_is_killed_another_leads_and_has_every_lease() {
    let mut cluster = Cluster::of(EtcdServer::three(), 3);
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let leader = cluster.until_led();
    drop(cluster.servers.remove(leader));
    cluster.until_led();
    let shown = cluster.json(&["show", "a"]);
    assert!(shown.to_string().contains(&text(&before["token_number"])), "the same hold: {shown}");
    let after = cluster.json(&["acquire", "b", "--holder", "h", "--ttl", "10m"]);
    assert!(number(&after) > number(&before), "{after} after {before}");
    // Held is held: a second holder does not get it from the new leader.
    let told = run(
        leasehold(&["acquire", "a", "--holder", "other", "--ttl", "1m"]).env("LEASEHOLD_ADDR", cluster.addresses())
    );
    assert_eq!(told.exit, 4, "{told:?}");
}

#[test]
fn a_leader_that_stood_still_decides_nothing_when_it_wakes() {
    let cluster = Cluster::of(EtcdServer::single(), 2);
    let leader = cluster.until_led();
    let (old, new) = (&cluster.servers[leader], &cluster.servers[1 - leader]);
    let before = old.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    old.signal("STOP");
    new.await_log("serving on");
    let token = text(&before["token"]);
    new.run(&["release", "a", "--token", &token]).ok();
    let after = new.json(&["acquire", "a", "--holder", "other", "--ttl", "10m"]);
    old.signal("CONT");
    old.await_log("stands by");
    until_it_points(old);
    // It has the old state in memory, and tells nobody of it.
    let shown = old.json(&["show", "a"]);
    assert!(shown.to_string().contains(&text(&after["token_number"])), "{shown}");
    let told = old.run(&["renew", "a", "--token", &token]);
    assert_eq!(told.exit, 3, "the hold is over, whoever is asked: {told:?}");
}

#[test]
fn a_leader_that_is_asked_to_stop_hands_over_first() {
    let mut cluster = Cluster::of(EtcdServer::single(), 2);
    let leader = cluster.until_led();
    let before = cluster.json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let mut old = cluster.servers.remove(leader);
    old.signal("TERM");
    let said = old.await_log("handed over to");
    assert!(said.contains(&cluster.servers[0].address), "{said}");
    assert_eq!(old.wait(), Some(0));
    cluster.servers[0].await_log("serving on");
    let shown = cluster.json(&["show", "a"]);
    assert!(shown.to_string().contains(&text(&before["token_number"])), "{shown}");
}
