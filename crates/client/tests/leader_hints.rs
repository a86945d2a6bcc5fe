//! Leader hints and lists of servers are followed only to endpoints, and to servers whose certificate names the cluster (A17, the
//! fault `HintBelieved`). `crates/cli/tests/fences/probes.rs` tries the addresses in charters (`CharterDialled`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use leasehold::types::Acquire;
use leasehold::{BearerTokenFile, Client, Code, TlsOptions};
use leasehold_testkit::certificates::{CertificateSpec, TestAuthority, TestCertificate};
use leasehold_wire::{problem_to_status, v1};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto, version};
use tokio_rustls::server::TlsStream;

const SECRET: &str = "lhb1_a_token_of_the_test";

/// A fake server that remembers the header `authorization` of each request.
struct FakeServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// Answers every call with this problem, with TLS if there is a certificate.
    async fn start(certificate: Option<&TestCertificate>, problem: v1::Problem) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let handler = move |request: Request| {
            let bearer = request.headers().get("authorization").and_then(|value| value.to_str().ok());
            seen.lock().expect("no handler panicked").push(bearer.unwrap_or("none").to_owned());
            let problem = problem.clone();
            async move { problem_to_status(problem).into_http::<axum::body::Body>() }
        };
        let router = axum::Router::new().fallback(handler);
        match certificate {
            Some(certificate) => {
                let listener = TlsTestListener { listener, acceptor: acceptor(certificate) };
                tokio::spawn(async move { axum::serve(listener, router).await });
            }
            None => drop(tokio::spawn(async move { axum::serve(listener, router).await })),
        }
        Self { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no handler panicked").clone()
    }
}

fn acceptor(certificate: &TestCertificate) -> TlsAcceptor {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_file_iter(&certificate.cert).expect("a PEM file");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13]);
    let config = config.expect("TLS 1.3").with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.expect("the key of the certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Accepts TLS connections for a test server.
struct TlsTestListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsTestListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn busy() -> v1::Problem {
    v1::Problem::of(Code::Busy, "held by another; wait or give up")
}

fn not_leader(hint: SocketAddr) -> v1::Problem {
    v1::Problem { leader: hint.to_string(), ..v1::Problem::of(Code::NotLeader, "another server decides") }
}

async fn acquire(client: &Client) -> Option<Code> {
    client.acquire(&Acquire::exclusive("a", "h", 1_000)).await.expect_err("no fake server grants").code()
}

/// A client with a bearer token.
fn client(endpoint: &str, authority: Option<&Path>, folder: &Path) -> Client {
    let token: PathBuf = folder.join("token");
    std::fs::write(&token, SECRET).expect("the file is writable");
    let builder = Client::builder(endpoint).expect("a valid address").bearer_file(BearerTokenFile::new(token));
    match authority {
        Some(authority) => builder.tls(TlsOptions::without_certificate(authority)).build(),
        None => builder.build(),
    }
}

#[tokio::test]
async fn without_tls_a_hint_is_followed_only_to_an_endpoint() {
    let folder = tempfile::tempdir().expect("a directory");
    let elsewhere = FakeServer::start(None, busy()).await;
    let standby = FakeServer::start(None, not_leader(elsewhere.address)).await;
    let one = client(&standby.address.to_string(), None, folder.path());
    assert_eq!(acquire(&one).await, Some(Code::NotLeader), "the hint is reported, not followed");
    assert_eq!((standby.requests().len(), elsewhere.requests()), (1, Vec::new()));
    let listed = one.cluster_at(&elsewhere.address.to_string(), Duration::from_secs(5)).await;
    assert_eq!(listed.expect_err("not an endpoint").code(), Some(Code::Config));
    assert_eq!(elsewhere.requests(), Vec::<String>::new());
    let both = client(&format!("{},{}", standby.address, elsewhere.address), None, folder.path());
    assert_eq!(acquire(&both).await, Some(Code::Busy));
    assert_eq!(elsewhere.requests(), [format!("Bearer {SECRET}")]);
}

#[tokio::test]
async fn with_tls_a_hint_is_followed_only_to_a_server_that_names_the_cluster() {
    let folder = tempfile::tempdir().expect("a directory");
    let authority = TestAuthority::new(folder.path(), "servers");
    let stranger = TestAuthority::new(folder.path(), "stranger");
    const MAIN: &str = "URI:spiffe://example.com/leasehold/main";
    let of = |authority: &TestAuthority, name: &str, names: &[&str]| {
        authority.issue(name, &CertificateSpec::server(&[&["IP:127.0.0.1"], names].concat()))
    };
    let own = of(&authority, "own", &[MAIN]);
    let table = [
        ("the same cluster", of(&authority, "same", &[MAIN]), true),
        ("no name", of(&authority, "none", &[]), false),
        ("another cluster", of(&authority, "other", &["URI:spiffe://example.com/leasehold/test"]), false),
        ("another trust domain", of(&authority, "domain", &["URI:spiffe://evil.com/leasehold/main"]), false),
        ("a path below the name", of(&authority, "below", &["URI:spiffe://example.com/leasehold/main/x"]), false),
        ("the name by another authority", of(&stranger, "stranger", &[MAIN]), false),
        (
            "the name for another host",
            authority.issue("host", &CertificateSpec::server(&["DNS:lease.example.com", MAIN])),
            false,
        ),
    ];
    for (case, certificate, follows) in table {
        let named = FakeServer::start(Some(&certificate), busy()).await;
        let standby = FakeServer::start(Some(&own), not_leader(named.address)).await;
        let client = client(&format!("https://{}", standby.address), Some(&authority.cert), folder.path());
        assert!(!client.may_contact(&named.address.to_string()), "{case}: nothing is known of the cluster yet");
        let code = acquire(&client).await;
        let expected = if follows { Some(Code::Busy) } else { Some(Code::NotLeader) };
        assert_eq!(code, expected, "{case}");
        let received = if follows { vec![format!("Bearer {SECRET}")] } else { Vec::new() };
        assert_eq!(named.requests(), received, "{case}: no credential is sent to it");
        assert_eq!(standby.requests(), [format!("Bearer {SECRET}")], "{case}");
        let listed = client.cluster_at(&named.address.to_string(), Duration::from_secs(5)).await;
        assert!(listed.is_err(), "{case}: no fake server has a status");
        assert_eq!(named.requests().len(), if follows { 2 } else { 0 }, "{case}: its status is queried too");
    }
    // A server of the list that shows no name gives no name that others could show.
    let plain = of(&authority, "plain", &[]);
    let named = FakeServer::start(Some(&own), busy()).await;
    let standby = FakeServer::start(Some(&plain), not_leader(named.address)).await;
    let client = client(&format!("https://{}", standby.address), Some(&authority.cert), folder.path());
    assert_eq!(acquire(&client).await, Some(Code::NotLeader));
    assert_eq!(named.requests(), Vec::<String>::new());
}
