//! The client library and the command line over TLS: certificates of both sides, names, and leader hints (A17).

use leasehold::{Client, Code};
use leasehold_testkit::certificates::CertificateSpec;

use crate::harness::{TlsServer, WORKER};
use crate::support::{leasehold, run};

#[test]
fn every_command_works_over_tls() {
    let server = TlsServer::start();
    let worker = server.client("worker", WORKER);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("secret");
    let with_secret = |args: &[&str]| run(server.command(&worker, args).env("LEASEHOLD_SECRET_FILE", &file));
    let granted = with_secret(&["acquire", "jobs/a", "--holder", "w1", "--ttl", "60s", "--json"]).ok().json();
    let token = granted["token"].as_str().expect("a token").to_owned();
    // Another process with the same certificate.
    server.run(&worker, &["renew", "jobs/a", "--token", &token]).fails(6, "leasehold: PERMISSION_DENIED");
    with_secret(&["renew", "jobs/a", "--token", &token]).ok();
    server.run(&worker, &["ls"]).ok();
    server.run(&worker, &["status"]).ok();
    server.run(&worker, &["cluster", "status"]).ok();
    with_secret(&["release", "jobs/a", "--token", &token]).ok();
    let inner = server.run(&worker, &["run", "jobs/b", "--", env!("CARGO_BIN_EXE_leasehold"), "show", "jobs/b"]).ok();
    assert!(inner.out.contains("jobs/b"), "the command inherits servers and certificates: {inner:?}");
    server.run(&worker, &["elect", "jobs/c", "--once", "--", "true"]);
    // By flags, after the subcommand, without the environment.
    let text = |path: &std::path::Path| path.to_str().expect("a UTF-8 path").to_owned();
    let flags = [text(&server.servers.cert), text(&worker.cert), text(&worker.key)];
    let [ca, cert, key] = &flags;
    let args = ["ls", "--addr", &server.server.address, "--tls-ca", ca, "--tls-cert", cert, "--tls-key", key];
    run(&mut leasehold(&args)).ok();
}

#[test]
fn wrong_files_are_configuration_errors_and_refused_certificates_name_their_cause() {
    let server = TlsServer::start();
    let worker = server.client("worker", WORKER);
    let with = |name: &str, value: &str, exit: i32, message: &str| {
        let result = run(server.command(&worker, &["ls"]).env(name, value));
        assert_eq!(result.exit, exit, "{name}={value}: {result:?}");
        assert!(result.err.contains(message), "{name}={value}: {result:?}");
    };
    with("LEASEHOLD_TLS_CA", "/missing.pem", 78, "CONFIG{tls_ca}: tls_ca: cannot read /missing.pem");
    with("LEASEHOLD_TLS_CERT", worker.key.to_str().expect("UTF-8"), 78, "contains no certificate in PEM");
    with("LEASEHOLD_TLS_KEY", worker.cert.to_str().expect("UTF-8"), 78, "contains no private key in PEM");
    with("LEASEHOLD_TLS_KEY", "", 78, "CONFIG{tls_key}: tls_key is missing");
    let other = server.client("other", WORKER);
    with("LEASEHOLD_TLS_KEY", other.key.to_str().expect("UTF-8"), 78, "cannot be used");
    // The wrong authority for the server, and a name that its certificate does not have.
    with("LEASEHOLD_TLS_CA", server.hosts.cert.to_str().expect("UTF-8"), 5, "invalid peer certificate");
    with("LEASEHOLD_ADDR", &format!("127.0.0.2:{}", server.port()), 5, "");
    with("LEASEHOLD_ADDR", &format!("https://[::1]:{}", server.port()), 5, "");
    let without_tls = run(leasehold(&["ls"]).env("LEASEHOLD_ADDR", format!("https://{}", server.server.address)));
    without_tls.fails(78, "leasehold: CONFIG{tls_ca}: ");
    // A change that the server refused at the handshake was not executed, and the client knows it.
    let twice = server
        .clients
        .issue("twice", &CertificateSpec::client(&["URI:spiffe://example.com/a", "URI:spiffe://example.com/b"]));
    let refused = server.run(&twice, &["acquire", "jobs/a", "--holder", "w1", "--ttl", "10s"]);
    assert_eq!(refused.exit, 5, "{refused:?}");
    assert!(refused.err.contains("UNAVAILABLE") && refused.err.contains("refused the certificate"), "{refused:?}");
}

#[tokio::test]
async fn a_plain_client_gets_no_answer_from_a_server_with_tls() {
    let server = TlsServer::start();
    let client = Client::new(&server.server.address).expect("a valid address");
    let error = client.status().await.expect_err("the server speaks only TLS");
    assert!(matches!(error.code(), Some(Code::Unavailable | Code::Indeterminate)), "{error}");
}
