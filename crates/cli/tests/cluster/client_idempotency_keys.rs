//! Idempotency keys that plain HTTP clients make, over a failover (L11).

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};
use serde_json::Value;

use crate::Cluster;
use crate::support::{Server, TEST_TIMEOUT, text};

const PATH: &str = "/v1/leases/jobs/settle:acquire";
const BODY: &str = r#"{"holder":"w1","ttl":"10m"}"#;
const KEY: &str = "Idempotency-Key: 6b0f1c1e-7f0b-4a57-9a3e-5f6f1a0c9d21\r\n";
const OTHER_KEY: &str = "Idempotency-Key: 7b0f1c1e-7f0b-4a57-9a3e-5f6f1a0c9d21\r\n";

/// Status and body of a reply to the acquire.
fn acquire(server: &Server, key: &str, body: &str) -> (u16, Value) {
    let reply = server.http("POST", PATH, key, body);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a response: {reply}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}")))
}

#[test]
fn a_reply_that_was_lost_with_its_leader_is_repeated_by_the_next_one() {
    let mut cluster = Cluster::of(EtcdCluster::three(), 3);
    let leader = cluster.wait_for_leader();
    let proxy = TcpProxy::start(&cluster.servers[leader].address);
    proxy.set_flow(Flow::Pass, Flow::Drop);
    let mut client = TcpStream::connect(proxy.address()).expect("the proxy listens");
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{KEY}");
    write!(client, "{head}content-length: {}\r\n\r\n{BODY}", BODY.len()).expect("the request is sent");
    let deadline = Instant::now() + TEST_TIMEOUT;
    while proxy.dropped_bytes() == 0 {
        assert!(Instant::now() < deadline, "the leader does not reply");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The reply was sent and lost. With it the leader dies.
    let granted = cluster.json(&["show", "jobs/settle"]);
    let number = text(&granted["leases"][0]["token_number"]);
    drop(cluster.servers.remove(leader));
    let next = cluster.wait_for_leader();
    let server = &cluster.servers[next];
    let (status, first) = acquire(server, KEY, BODY);
    assert_eq!((status, text(&first["token_number"])), (200, number.clone()), "{first}");
    assert_eq!((&first["lease"], &first["holder"]), (&granted["leases"][0]["lease"], &"w1".into()), "{first}");
    let (status, again) = acquire(server, KEY, BODY);
    assert_eq!((status, &again["token"]), (200, &first["token"]), "{again}");
    let (status, conflict) = acquire(server, KEY, r#"{"holder":"w2","ttl":"10m"}"#);
    assert_eq!((status, &conflict["code"]), (409, &"CONFLICT".into()), "another body: {conflict}");
    let (status, busy) = acquire(server, OTHER_KEY, BODY);
    assert_eq!((status, &busy["code"]), (423, &"BUSY".into()), "another request: {busy}");
    assert_eq!(cluster.json(&["show", "jobs/settle"])["held"], 1, "one lease");
    server.run(&["release", "jobs/settle", "--token", &text(&first["token"])]).ok();
    let (_, lost) = acquire(server, KEY, BODY);
    assert_eq!((&lost["code"], &lost["reason"]), (&"LEASE_LOST".into(), &"released".into()), "no second lease: {lost}");
}
