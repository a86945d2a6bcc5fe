//! Which identity a connection counts for: one bearer token takes no connection of another behind the same address (A12).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use leasehold::{BearerTokenFile, Client, TlsOptions, Watch};
use tempfile::TempDir;

use crate::bearer_tokens::{BearerFiles, CI, read};
use crate::harness::{TlsServer, curl, replace};
use crate::support::{Server, TEST_TIMEOUT};

const OTHER: &str = "bearer:other";
/// Longer than a test takes.
const TTL: Duration = Duration::from_secs(300);

/// An access file with these grants, and at most three connections of each identity and each address.
fn access(grants: &[(&str, &str)]) -> String {
    let grant = |(principal, role): &(&str, &str)| {
        format!("[[grant]]\nprincipal = {principal:?}\nrole = {role:?}\nprefix = \"\"\n\n")
    };
    format!("{}[limits]\nconnections = 3\n", grants.iter().map(grant).collect::<String>())
}

fn client(server: &TlsServer, token: &Path) -> Client {
    let builder = Client::builder(&format!("https://{}", server.server.address)).expect("a valid address");
    let builder = builder.tls(TlsOptions::without_certificate(&server.servers.cert));
    builder.bearer_file(BearerTokenFile::new(token)).holder("w").session_ttl(TTL).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bearer_token_takes_no_connection_of_another_behind_the_same_address() {
    let files = BearerFiles::new();
    let ((_, ci), (_, other)) =
        (files.create("ci", &[]), files.create("other", &["--role", "holder", "--prefix", "jobs"]));
    let server = files.serve(&[]);
    replace(&server.access, access(&[(CI, "admin"), (OTHER, "admin")]).as_bytes());
    server.server.signal("HUP");
    server.server.wait_for_log("access rules reloaded");
    let holder = client(&server, &other);
    let guard = holder.lock("jobs/a").ttl(TTL).acquire().await.expect("the resource is free");
    // As many connections as one identity may have, each with a request that does not end.
    let mut flood: Vec<(Client, Watch)> = Vec::new();
    for _ in 0..3 {
        let flooder = client(&server, &ci);
        let watch = flooder.watch("jobs").await.expect("below the limit");
        flood.push((flooder, watch));
    }
    let refused = client(&server, &ci).status().await.expect_err("the token has its connections");
    assert!(refused.to_string().contains("this identity has 3 connections"), "{refused}");
    // The other token still renews, and opens its own connections from the same address.
    guard.check().await.expect("another token keeps its lease");
    for _ in 0..3 {
        client(&server, &other).status().await.expect("another token has its own connections");
    }
    // Above its limit the token still learns whether the server is ready.
    for (path, expected) in [("readyz", "200"), ("healthz", "200"), ("v1/status", "429")] {
        for version in ["--http1.1", "--http2"] {
            let mut command = curl();
            command.arg(version).arg("--cacert").arg(&server.servers.cert);
            command.arg("-H").arg(format!("authorization: Bearer {}", read(&ci)));
            let output =
                command.arg(format!("https://{}/{path}", server.server.address)).output().expect("curl starts");
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{path} {version}");
        }
    }
    drop(flood);
    let line = server.server.find_log("connection limit reached");
    assert!(line.contains(CI) && line.contains("identity_connections"), "{line}");
}

/// A plain server on loopback with access rules, where a request may present a bearer token.
struct PlainServer {
    server: Server,
    token: String,
    _files: (BearerFiles, TempDir),
}

impl PlainServer {
    fn start() -> Self {
        let (files, data) = (BearerFiles::new(), tempfile::tempdir().expect("a directory"));
        let (_, token) = files.create("ci", &[]);
        let at = |path: &Path| path.to_str().expect("a UTF-8 path").to_owned();
        let rules = files.path("access.toml");
        replace(&rules, access(&[(CI, "admin"), ("anonymous", "observer")]).as_bytes());
        let (bearers, journal) = (at(&files.path("bearers.toml")), at(&data.path().join("journal")));
        let flags = ["--listen", "127.0.0.1:0", "--data", &journal, "--access", &at(&rules), "--bearers", &bearers];
        Self { server: Server::with_flags(&flags), token: read(&token), _files: (files, data) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.server.address).expect("the server listens");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout is valid");
        stream
    }

    fn send(&self, stream: &mut TcpStream, path: &str, token: Option<&str>) {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).expect("the server reads");
    }

    /// The status of a request on a new connection.
    fn status(&self, path: &str, token: Option<&str>) -> String {
        let mut stream = self.connect();
        self.send(&mut stream, path, token);
        let mut line = [0; 12];
        stream.read_exact(&mut line).expect("a reply");
        text_of(&line)["HTTP/1.1 ".len()..].to_owned()
    }

    /// Connections of this machine without a token, each with a request that does not end.
    fn watches(&self, count: usize) -> Vec<TcpStream> {
        let watch = |_| {
            let mut stream = self.connect();
            self.send(&mut stream, "/v1/events", None);
            let mut line = [0; 15];
            stream.read_exact(&mut line).expect("a reply");
            assert_eq!(text_of(&line), "HTTP/1.1 200 OK");
            stream
        };
        (0..count).map(watch).collect()
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_token_gets_in_although_the_connections_of_its_address_are_used_up() {
    let server = PlainServer::start();
    let watches = server.watches(3);
    assert_eq!(server.status("/v1/leases", None), "429", "the address has its connections");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.status(path, None), "200", "{path}");
    }
    // More than the reserve holds, and none of them sends anything.
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for _ in 0..5 {
        assert_eq!(server.status("/v1/leases", Some(&server.token)), "200", "its identity is below its limit");
    }
    // On one connection, the requests of each are served or refused by themselves.
    let mut shared = server.connect();
    for (token, expected) in [(Some(&*server.token), "200"), (None, "429")] {
        server.send(&mut shared, "/v1/leases", token);
        let mut reply = Vec::new();
        let mut byte = [0; 1];
        while !reply.ends_with(b"\r\n\r\n") && shared.read(&mut byte).expect("a reply") == 1 {
            reply.push(byte[0]);
        }
        let head = text_of(&reply).to_lowercase();
        assert!(head.starts_with(&format!("http/1.1 {expected}")), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        shared.read_exact(&mut vec![0; length.parse().expect("a number")]).expect("the body");
    }
    drop((watches, silent));
    let line = server.server.find_log("connection limit reached");
    assert!(line.contains("127.0.0.1") && line.contains("anonymous"), "{line}");
}

#[test]
fn silent_connections_of_an_address_make_room_for_one_with_a_token() {
    let server = PlainServer::start();
    let mut silent: Vec<_> = (0..10).map(|_| server.connect()).collect();
    assert_eq!(server.status("/v1/leases", Some(&server.token)), "200");
    for stream in &mut silent[..7] {
        assert_eq!(stream.read(&mut [0; 1]).expect("the end of the stream"), 0, "the oldest are closed early");
    }
    let line = server.server.find_log("connection limit reached");
    assert!(line.contains("the longest idle connection was closed for a new one"), "{line}");
}
