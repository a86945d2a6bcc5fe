//! Who gets in: certificates made by openssl, presented by openssl and curl (A2, A3).

use leasehold_testkit::certificates::{CLIENT_AUTH, CertificateSpec, SERVER_AUTH, TestAuthority};

use crate::harness::{TlsServer, WORKER};

/// A certificate, its authority, and whether its owner gets in.
struct Case<'a> {
    name: &'static str,
    authority: &'a TestAuthority,
    spec: CertificateSpec<'static>,
    gets_in: bool,
}

const URI: &str = "URI:spiffe://example.com/jobs/worker";
const CLIENT: CertificateSpec<'static> = CertificateSpec::client(&[URI]);
const LONG_AGO: (&str, &str) = ("20200101000000Z", "20200102000000Z");
const LATER: (&str, &str) = ("20990101000000Z", "20990102000000Z");

fn cases<'a>(server: &'a TlsServer, stranger: &'a TestAuthority) -> Vec<Case<'a>> {
    let (clients, hosts) = (&server.clients, &server.hosts);
    let client = |names| CertificateSpec::client(names);
    let case = |name, authority, spec, gets_in| Case { name, authority, spec, gets_in };
    vec![
        case("one SPIFFE id", clients, CLIENT, true),
        case("one SPIFFE id and two DNS names", clients, client(&[URI, "DNS:a.example", "DNS:b.example"]), true),
        case("one DNS name", hosts, client(&["DNS:worker.example.com"]), true),
        // CommonNameBelieved
        case("no name, but CN=admin", clients, CertificateSpec { common_name: "admin", ..client(&[]) }, false),
        case(
            "no name, but CN of a worker",
            hosts,
            CertificateSpec { common_name: "worker.example.com", ..client(&[]) },
            false,
        ),
        // FirstSanWins
        case("two SPIFFE ids", clients, client(&[URI, "URI:spiffe://example.com/admin"]), false),
        case("the same SPIFFE id twice", clients, client(&[URI, URI]), false),
        case("two DNS names", hosts, client(&["DNS:worker.example.com", "DNS:b.example.com"]), false),
        case("a wildcard", hosts, client(&["DNS:*.example.com"]), false),
        case("an IP address", hosts, client(&["IP:127.0.0.1"]), false),
        case("an email address", hosts, client(&["email:worker@example.com"]), false),
        case("a URI of another scheme", clients, client(&["URI:https://example.com/jobs/worker"]), false),
        case("a SPIFFE id in upper case", clients, client(&["URI:spiffe://EXAMPLE.com/jobs/worker"]), false),
        case("a SPIFFE id without a path", clients, client(&["URI:spiffe://example.com"]), false),
        case("another trust domain", clients, client(&["URI:spiffe://other.com/jobs/worker"]), false),
        case("an unknown authority", stranger, CLIENT, false),
        // BundleShared
        case("a SPIFFE id by the authority of DNS names", hosts, CLIENT, false),
        case("a DNS name by the authority of the trust domain", clients, client(&["DNS:worker.example.com"]), false),
        case("expired", clients, CertificateSpec { validity: Some(LONG_AGO), ..CLIENT }, false),
        case("not valid yet", clients, CertificateSpec { validity: Some(LATER), ..CLIENT }, false),
        case("without extended key usage", clients, CertificateSpec { usages: &[], ..CLIENT }, false),
        case("for servers only", clients, CertificateSpec { usages: &[SERVER_AUTH], ..CLIENT }, false),
        case(
            "for clients and servers",
            clients,
            CertificateSpec { usages: &[CLIENT_AUTH, SERVER_AUTH], ..CLIENT },
            true,
        ),
    ]
}

#[test]
fn only_a_certificate_with_one_name_of_a_trusted_authority_gets_in() {
    let server = TlsServer::start();
    let stranger = TestAuthority::new(server.directory.path(), "stranger");
    let mut table = vec![format!("{:<50} {:<9} {:<9} expected", "certificate", "curl", "openssl")];
    let mut row = |name: &str, curl: u16, openssl: &str, gets_in: bool| {
        let (by_curl, by_openssl) = (curl == 200, openssl.contains("HTTP/1.1 200"));
        table.push(format!("{name:<50} {by_curl:<9} {by_openssl:<9} {gets_in}"));
        (by_curl == gets_in && by_openssl == gets_in).then_some(()).ok_or_else(|| format!("{name}: {curl} {openssl}"))
    };
    let mut results = vec![row("none", server.curl(None, &[]), &server.openssl(None, &[]), false)];
    for case in cases(&server, &stranger) {
        let certificate = case.authority.issue("case", &case.spec);
        let (curl, openssl) = (server.curl(Some(&certificate), &[]), server.openssl(Some(&certificate), &[]));
        results.push(row(case.name, curl, &openssl, case.gets_in));
    }
    let revoked = server.client("revoked", WORKER);
    results.push(row(
        "before it is revoked",
        server.curl(Some(&revoked), &[]),
        &server.openssl(Some(&revoked), &[]),
        true,
    ));
    std::fs::copy(server.clients.revoke(&revoked), &server.list).expect("the list is replaced");
    server.reload();
    results.push(row("revoked", server.curl(Some(&revoked), &[]), &server.openssl(Some(&revoked), &[]), false));
    let other = server.client("other", WORKER);
    results.push(row("not revoked", server.curl(Some(&other), &[]), &server.openssl(Some(&other), &[]), true));
    println!("{}", table.join("\n"));
    let wrong: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}\n{}", table.join("\n"), wrong.join("\n"));
}

#[test]
fn only_tls_1_3_is_spoken() {
    let server = TlsServer::start();
    let client = server.client("worker", WORKER);
    for version in ["-tls1_2", "-tls1_1", "-tls1"] {
        let output = server.openssl(Some(&client), &[version]);
        assert!(!output.contains("HTTP/1.1") && !output.contains("New, TLS"), "{version}: {output}");
    }
    let output = server.openssl(Some(&client), &["-tls1_3"]);
    assert!(output.contains("HTTP/1.1 200") && output.contains("New, TLSv1.3"), "{output}");
    for args in [&["--tlsv1.3", "--http1.1"][..], &["--tlsv1.3", "--http2"]] {
        assert_eq!(server.curl(Some(&client), args), 200, "{args:?}");
    }
    assert_eq!(server.curl(Some(&client), &["--tls-max", "1.2"]), 0);
}

#[test]
fn no_session_is_resumed_so_a_removed_authority_counts_at_once() {
    let server = TlsServer::start();
    let client = server.client("worker", WORKER);
    let session = server.directory.path().join("session.pem");
    let session = session.to_str().expect("a UTF-8 path");
    let first = server.openssl(Some(&client), &["-sess_out", session]);
    assert!(first.contains("HTTP/1.1 200") && !first.contains("Post-Handshake New Session Ticket"), "{first}");
    let next = TestAuthority::new(server.directory.path(), "next");
    std::fs::copy(&next.cert, &server.bundle).expect("the bundle is replaced");
    server.reload();
    // Without a ticket openssl has nothing to resume with. If it had, the second connection would not be verified.
    let resume: &[&str] = if std::path::Path::new(session).exists() { &["-sess_in", session] } else { &[] };
    let second = server.openssl(Some(&client), resume);
    assert!(!second.contains("HTTP/1.1") && !second.contains("Reused"), "{second}");
}

#[test]
fn a_page_that_was_loaded_without_tls_is_no_page_of_the_server() {
    let server = TlsServer::start();
    let worker = server.client("worker", WORKER);
    let from = |scheme: &str| {
        let origin = format!("Origin: {scheme}://localhost:{}", server.port());
        server.curl(Some(&worker), &["--http1.1", "-H", &origin])
    };
    assert_eq!((from("https"), from("http")), (200, 403));
}
