//! A collector with TLS: it is verified, and credentials reach nobody else.

use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_server::journal::memory::Memory;
use leasehold_server::otlp::CollectorSettings;
use leasehold_server::server::start;
use leasehold_testkit::certificates::{CertificateSpec, TestAuthority, TestCertificate};
use leasehold_testkit::collector::CollectorStub;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::fixture::{acquire, config_with, metric_reaches, release};

/// Terminates TLS in front of a collector, and returns where.
async fn terminate_tls(certificate: &TestCertificate, collector: SocketAddr) -> SocketAddr {
    let chain = CertificateDer::pem_file_iter(&certificate.cert).expect("a certificate");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they belong together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust the certificate ends here.
                let Ok(mut secure) = acceptor.accept(stream).await else { return };
                let Ok(mut plain) = TcpStream::connect(collector).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_tls_gets_spans_and_headers_only_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let authority = TestAuthority::new(folder.path(), "collectors");
    let stranger = TestAuthority::new(folder.path(), "strangers");
    let certificate = authority.issue("collector", &CertificateSpec::server(&["IP:127.0.0.1"]));
    let collector = CollectorStub::start();
    let secure = terminate_tls(&certificate, collector.address()).await;
    for (ca, is_trusted) in [(&stranger.cert, false), (&authority.cert, true)] {
        let url = format!("https://{secure}").parse().expect("a base URL");
        let headers = vec![("authorization".to_owned(), "Bearer secret".to_owned())];
        let settings = CollectorSettings::new(url, Some(ca)).expect("the file has a certificate");
        let settings = settings.with_headers("otlp_headers_file", headers).expect("TLS protects them");
        let server = start(Memory::new(), config_with(settings)).await.expect("the server starts");
        let granted = acquire(server.address, "jobs/settle", "60s", "").await;
        release(server.address, "jobs/settle", &granted, "").await;
        if is_trusted {
            collector.wait_for_spans(1);
            assert_eq!(collector.exports()[0].header("authorization"), Some("Bearer secret"));
        } else {
            metric_reaches(server.address, "leasehold_span_export_failures_total", 1).await;
            assert_eq!((collector.connections(), collector.spans().len()), (0, 0));
        }
        server.stop().await;
    }
}
