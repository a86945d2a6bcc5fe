//! Who was removed is out, also with an open stream; the session lives to its ttl (A10).

use leasehold_testkit::certificates::{CertificateSpec, TestAuthority};

use crate::harness::{ADMIN, TlsServer, WORKER, replace, until};
use crate::open_streams::{OpenStreams, TTL};

/// How a certificate stops to count.
#[derive(Clone, Copy, Debug)]
enum Removal {
    Expiry,
    Revocation,
    Authority,
}

/// A session stream, a watch and a stream without traffic end; the lease stays until its ttl, and others notice nothing.
async fn removed_while_streams_are_open(how: Removal) {
    let server = TlsServer::start();
    let admin = server.hosts.issue("admin", &CertificateSpec::client(&["DNS:worker.example.com"]));
    let spec = CertificateSpec::client(&["URI:spiffe://example.com/jobs/worker"]);
    let seconds = matches!(how, Removal::Expiry).then_some(10);
    let worker = server.clients.issue("worker", &CertificateSpec { seconds, ..spec });
    let builder = || server.builder(&worker);
    let mut streams = OpenStreams::open(builder(), builder(), server.builder(&admin)).await;
    match how {
        Removal::Expiry => {}
        Removal::Revocation => {
            let list = server.clients.revoke(&worker);
            replace(&server.list, &std::fs::read(list).expect("the list is readable"));
            server.server.signal("HUP");
        }
        Removal::Authority => {
            let next = TestAuthority::new(server.directory.path(), "next");
            replace(&server.bundle, &std::fs::read(&next.cert).expect("the authority is readable"));
            server.server.signal("HUP");
        }
    }
    let reason = match how {
        Removal::Expiry => "expired",
        Removal::Revocation => "was revoked",
        Removal::Authority => "no longer trusted",
    };
    for _ in 0..2 {
        let line = server.server.wait_for_log("connection ended");
        assert!(line.contains(reason) && line.contains(WORKER), "{how:?}: {line}");
    }
    println!("{how:?}: the watch ended with: {}", streams.watch_end().await);
    assert!(streams.guard.check().await.is_err(), "{how:?}: the removed client reaches the server no more");
    streams.assert_nothing_else_ended().await;
    until("no new connection", async || streams.client.status().await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_the_certificate_of_its_client() {
    removed_while_streams_are_open(Removal::Expiry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_the_revocation_of_its_client() {
    removed_while_streams_are_open(Removal::Revocation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_the_authority_of_its_client() {
    removed_while_streams_are_open(Removal::Authority).await;
}

#[tokio::test]
async fn a_reload_that_changes_no_trust_keeps_every_connection() {
    let server = TlsServer::start();
    let (worker, admin) = (server.client("worker", WORKER), server.client("admin", ADMIN));
    let client = server.builder(&worker).holder("w1").session_ttl(TTL).build();
    let guard = client.lock("jobs/a").ttl(TTL).acquire().await.expect("the resource is free");
    let before = server.metric(&admin, "leasehold_tls_handshakes_total{result=\"ok\"}");
    for _ in 0..5 {
        server.reload();
        guard.check().await.expect("the connection is open");
    }
    let after = server.metric(&admin, "leasehold_tls_handshakes_total{result=\"ok\"}");
    assert_eq!(after - before, 1.0, "only the request for the metrics itself connects");
}
