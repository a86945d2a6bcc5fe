//! Certificates and rights that are replaced under load: no renewal is lost (A10).

use std::time::{Duration, Instant};

use leasehold::{Guard, GuardState};
use leasehold_testkit::certificates::{CertificateSpec, TestAuthority};
use leasehold_testkit::depth::depth;

use crate::harness::{ADMIN, TlsServer, WORKER, replace, until, write_access};

/// Ttl of the leases: short, so that a lost renewal ends one.
const TTL: Duration = Duration::from_secs(3);
/// Holders, each with a connection of its own.
const HOLDERS: usize = 8;
const LEASES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn certificates_authorities_and_rights_are_rotated_without_losing_a_renewal() {
    let server = TlsServer::start();
    let (worker, admin) = (server.client("worker", WORKER), server.client("admin", ADMIN));
    let mut guards: Vec<Guard> = Vec::new();
    let mut clients = Vec::new();
    for holder in 0..HOLDERS {
        let client = server.builder(&worker).holder(format!("w{holder}")).session_ttl(TTL).build();
        for lease in 0..LEASES {
            let lock = client.lock(format!("jobs/{holder}/{lease}")).ttl(TTL);
            guards.push(lock.acquire().await.expect("the resource is free"));
        }
        clients.push(client);
    }
    let tokens: Vec<_> = guards.iter().map(|guard| guard.token()).collect();
    let handshakes = || server.metric(&admin, "leasehold_tls_handshakes_total{result=\"ok\"}");
    let before = handshakes();
    let mut authority = std::fs::read(&server.clients.cert).expect("the authority is readable");
    let (rotations, began) = (depth(10, 10, u32::MAX), Instant::now());
    let mut done = 0;
    for rotation in 0..rotations {
        if rotation >= 10 && began.elapsed() > Duration::from_secs(60) {
            break;
        }
        done += 1;
        // The server's certificate, from the same authority.
        server.servers.issue("server", &CertificateSpec::server(&["DNS:localhost", "IP:127.0.0.1"]));
        // An authority more: the bundle changes, and every open connection is verified again.
        if rotation % 5 == 0 {
            let next = TestAuthority::new(server.directory.path(), &format!("next-{rotation}"));
            authority.extend(std::fs::read(&next.cert).expect("the authority is readable"));
            replace(&server.bundle, &authority);
        }
        // The clients' certificate, a revocation list, and the rights of others.
        server.client("worker", WORKER);
        replace(&server.list, &std::fs::read(server.clients.revocation_list()).expect("the list is readable"));
        write_access(&server.access, &[WORKER, ADMIN, &format!("dns:other-{rotation}.example.com"), "uid:0"]);
        assert!(server.reload().contains("reloaded"));
        tokio::time::sleep(Duration::from_millis(500)).await;
        for guard in &guards {
            assert_eq!(guard.state(), GuardState::Held, "rotation {rotation}");
        }
    }
    // Two more ttls, so that every lease was renewed after the last rotation.
    tokio::time::sleep(2 * TTL).await;
    let after = handshakes();
    for (guard, token) in guards.iter().zip(&tokens) {
        assert_eq!((guard.state(), guard.token()), (GuardState::Held, *token));
        guard.check().await.expect("the server confirms it");
    }
    let refused = server.metric_sum(&admin, "leasehold_renewals_refused_total");
    println!("{done} rotations, {} leases, {refused} renewals refused, {after} handshakes", guards.len());
    assert_eq!(refused, 0.0);
    assert_eq!(after - before, 1.0, "only the metrics were read over a new connection");
}

#[tokio::test]
async fn a_client_uses_the_certificates_that_are_in_place_when_it_connects() {
    let server = TlsServer::start();
    let spec = CertificateSpec::client(&["URI:spiffe://example.com/jobs/worker"]);
    let worker = server.clients.issue("worker", &CertificateSpec { seconds: Some(20), ..spec.clone() });
    let client = server.builder(&worker).holder("w1").session_ttl(Duration::from_secs(120)).build();
    let guard = client.lock("jobs/a").ttl(Duration::from_secs(120)).acquire().await.expect("the resource is free");
    // The new certificate is in place when the old one ends: the stream is ended, and resumed with the new one.
    server.clients.issue("worker", &spec);
    server.server.wait_for_log("connection ended");
    until("the lease is confirmed on a new connection", async || guard.check().await.is_ok()).await;
    assert_eq!(guard.state(), GuardState::Held);
}

#[test]
fn changed_files_are_noticed_without_a_signal_and_a_broken_one_changes_nothing() {
    let server = TlsServer::with_flags(&["--file-check", "1"]);
    let worker = server.client("worker", WORKER);
    assert_eq!(server.curl(Some(&worker), &[]), 200);
    let next = TestAuthority::new(server.directory.path(), "next");
    let by_next = next.issue("worker", &CertificateSpec::client(&["URI:spiffe://example.com/jobs/worker"]));
    assert_eq!(server.curl(Some(&by_next), &[]), 0);
    replace(&server.bundle, b"broken");
    let line = server.server.wait_for_log("certificates unchanged");
    assert!(line.contains("client_ca: ") && line.contains("bundle.pem"), "{line}");
    assert_eq!(server.curl(Some(&worker), &[]), 200, "what was loaded stays");
    replace(&server.bundle, &std::fs::read(&next.cert).expect("the authority is readable"));
    server.server.wait_for_log("open connections are verified again");
    assert_eq!((server.curl(Some(&worker), &[]), server.curl(Some(&by_next), &[])), (0, 200));
}

#[test]
fn a_certificate_that_ends_soon_is_warned_of_and_measured() {
    let server = TlsServer::with_flags(&["--file-check", "1"]);
    let admin = server.client("admin", ADMIN);
    let left = server.metric(&admin, "leasehold_certificate_expiry_seconds{certificate=\"server\"}");
    assert!((29.0 * 86_400.0..30.0 * 86_400.0).contains(&left), "{left}");
    server.server.wait_for_log("certificate expires in 29 days: server; replace it before");
    let soon = CertificateSpec { seconds: Some(3_000), ..CertificateSpec::server(&["DNS:localhost", "IP:127.0.0.1"]) };
    server.servers.issue("server", &soon);
    server.server.wait_for_log("min: server; replace it before");
    let left = server.metric(&admin, "leasehold_certificate_expiry_seconds{certificate=\"server\"}");
    assert!((0.0..3_000.0).contains(&left), "{left}");
}
