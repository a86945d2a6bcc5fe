//! A gRPC client of another language, Python's grpcio, with and without certificates (A2, A3).

use std::path::Path;
use std::process::Command;

use leasehold_testkit::certificates::{CertificateSpec, TestAuthority, TestCertificate};

use crate::harness::{TlsServer, WORKER};

fn by_grpcio(server: &TlsServer, certificate: Option<&TestCertificate>) -> String {
    by_grpcio_with(server, certificate, None)
}

/// The status of a call by grpcio with a bearer token in a file.
pub fn by_grpcio_with(server: &TlsServer, certificate: Option<&TestCertificate>, bearer: Option<&Path>) -> String {
    let environment = std::env::var("LEASEHOLD_MOTO").expect("./test installs the environment and names it");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/grpc_client.py");
    let mut command = Command::new(Path::new(&environment).join("bin/python"));
    command.arg(script).arg(format!("localhost:{}", server.port())).arg(&server.servers.cert);
    match certificate {
        Some(TestCertificate { cert, key }) => command.arg(cert).arg(key),
        None => command.args(["", ""]),
    };
    command.args(bearer);
    let output = command.output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_official_protoc_accepts_the_published_files() {
    let environment = std::env::var("LEASEHOLD_MOTO").expect("./test installs the environment and names it");
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/proto");
    let out = tempfile::tempdir().expect("a directory");
    let mut files: Vec<_> = std::fs::read_dir(proto.join("leasehold/v1"))
        .expect("the folder of the published files")
        .map(|file| file.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() > 3, "{files:?}");
    let mut command = Command::new(Path::new(&environment).join("bin/python"));
    command.args(["-m", "grpc_tools.protoc", "-I"]).arg(&proto);
    command.arg("--python_out").arg(out.path()).arg("--grpc_python_out").arg(out.path()).args(&files);
    let output = command.output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stub = std::fs::read_to_string(out.path().join("leasehold/v1/leasehold_pb2_grpc.py"))
        .expect("the stub of the service");
    assert!(stub.contains("'/leasehold.v1.Leasehold/OpenSession'"), "the service has its methods");
}

#[test]
fn grpcio_gets_in_only_with_one_trusted_name() {
    let server = TlsServer::start();
    let stranger = TestAuthority::new(server.directory.path(), "stranger");
    let spec = CertificateSpec::client(&["URI:spiffe://example.com/jobs/worker"]);
    let good = server.client("worker", WORKER);
    assert_eq!(by_grpcio(&server, Some(&good)), "OK");
    let expired = CertificateSpec { validity: Some(("20200101000000Z", "20200102000000Z")), ..spec.clone() };
    let two = CertificateSpec::client(&["URI:spiffe://example.com/a", "URI:spiffe://example.com/b"]);
    let other_domain = CertificateSpec::client(&["URI:spiffe://other.com/jobs/worker"]);
    let none = CertificateSpec { common_name: "admin", ..CertificateSpec::client(&[]) };
    let refused = [
        None,
        Some(stranger.issue("worker", &spec)),
        Some(server.clients.issue("expired", &expired)),
        Some(server.clients.issue("two", &two)),
        Some(server.clients.issue("other", &other_domain)),
        Some(server.clients.issue("none", &none)),
    ];
    for certificate in refused {
        assert_eq!(by_grpcio(&server, certificate.as_ref()), "UNAVAILABLE", "{certificate:?}");
    }
    let stranger_to_grants = server.client("unknown", "spiffe://example.com/unknown");
    assert_eq!(by_grpcio(&server, Some(&stranger_to_grants)), "PERMISSION_DENIED", "known, but without a grant");
}
