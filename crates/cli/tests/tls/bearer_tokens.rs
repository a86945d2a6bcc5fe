//! Who gets in with a bearer token: tokens of `leasehold bearer`, presented by openssl, curl and grpcio (A2, A3).

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use leasehold_testkit::certificates::TestCertificate;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{TlsServer, WORKER, curl, write_access};
use crate::python_grpc::by_grpcio_with;
use crate::support::{Server, leasehold, run, text};

/// The principal of most tokens.
pub const CI: &str = "bearer:ci";

/// A directory with an access file and a bearer file.
pub struct BearerFiles {
    pub directory: TempDir,
}

impl BearerFiles {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        write_access(&directory.path().join("access.toml"), &[WORKER, CI, "uid:0"]);
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a token; returns its id and the file that contains it.
    pub fn create(&self, name: &str, args: &[&str]) -> (String, PathBuf) {
        let out = self.path(&format!("{name}-{}.token", self.path("").read_dir().expect("a directory").count()));
        let mut command = leasehold(&["bearer", "create", name, "--json", "--dir"]);
        command.arg(self.directory.path()).arg("--out").arg(&out).args(args);
        (text(&run(&mut command).ok().json()["id"]), out)
    }

    pub fn revoke(&self, token: &str) {
        run(leasehold(&["bearer", "revoke", token, "--dir"]).arg(self.directory.path())).ok();
    }

    /// A server with TLS that accepts these tokens, and no other rights than theirs and a worker's.
    pub fn serve(&self, flags: &[&str]) -> TlsServer {
        let bearers = self.path("bearers.toml");
        let mut all = vec!["--bearers", bearers.to_str().expect("a UTF-8 path")];
        all.extend(flags);
        let server = TlsServer::with_flags(&all);
        grant(&server, &[WORKER, CI]);
        server
    }
}

/// Replaces the grants of a server, and waits until they are in effect.
pub fn grant(server: &TlsServer, admins: &[&str]) {
    write_access(&server.access, admins);
    server.server.signal("HUP");
    server.server.wait_for_log("access rules reloaded");
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the file is readable").trim().to_owned()
}

fn header(token: &str) -> String {
    format!("authorization: Bearer {token}")
}

/// The text with another last digit, so that its check no longer matches.
fn with_wrong_check(token: &str) -> String {
    let last = if token.ends_with('0') { "1" } else { "0" };
    format!("{}{last}", &token[..token.len() - 1])
}

#[test]
fn only_a_known_valid_token_of_one_identity_gets_in() {
    let files = BearerFiles::new();
    let (_, good) = files.create("ci", &[]);
    let (revoked_id, revoked) = files.create("ci", &[]);
    let (_, expired) = files.create("ci", &["--expires", "1s"]);
    let (_, of_worker) = files.create("worker", &["--principal", WORKER]);
    let (_, stranger) = files.create("stranger", &["--role", "holder", "--prefix", "jobs"]);
    let elsewhere = BearerFiles::new();
    let (_, unknown) = elsewhere.create("ci", &[]);
    files.revoke(&revoked_id);
    let server = files.serve(&[]);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let worker = server.client("worker", WORKER);
    let mistyped = files.path("mistyped.token");
    std::fs::write(&mistyped, with_wrong_check(&read(&good))).expect("the file is writable");
    let cut = files.path("cut.token");
    std::fs::write(&cut, &read(&good)[..60]).expect("the file is writable");

    // The statuses of curl and grpcio.
    let (ok, unauthenticated, denied) = ((200, "OK"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"));
    type Case<'a> = (&'a str, Option<&'a TestCertificate>, Option<&'a PathBuf>, (u16, &'a str));
    let cases: [Case<'_>; 12] = [
        ("no token and no certificate", None, None, unauthenticated),
        ("a certificate alone", Some(&worker), None, ok),
        ("a token", None, Some(&good), ok),
        ("a token with a wrong check", None, Some(&mistyped), unauthenticated),
        ("a token that was cut", None, Some(&cut), unauthenticated),
        ("an unknown token", None, Some(&unknown), unauthenticated),
        ("a revoked token", None, Some(&revoked), unauthenticated),
        ("an expired token", None, Some(&expired), unauthenticated),
        ("a token without a grant", None, Some(&stranger), denied),
        // BearerBeatsCert
        ("a token and the certificate of another", Some(&worker), Some(&good), unauthenticated),
        ("an unknown token and a certificate", Some(&worker), Some(&unknown), unauthenticated),
        ("a token and the certificate of the same principal", Some(&worker), Some(&of_worker), ok),
    ];
    let mut table = vec![format!("{:<52} {:<6} {:<8} {:<18} expected", "credentials", "curl", "openssl", "grpcio")];
    let mut wrong = Vec::new();
    for (name, certificate, token, expected) in cases {
        let headers: Vec<String> = token.into_iter().map(|token| header(&read(token))).collect();
        let args: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        let by_curl = server.curl(certificate, &args);
        let lines: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let answer = server.openssl_with(certificate, &[], &lines);
        let by_openssl = answer.contains("HTTP/1.1 200");
        let by_grpcio = by_grpcio_with(&server, certificate, token.map(PathBuf::as_path));
        table.push(format!("{name:<52} {by_curl:<6} {by_openssl:<8} {by_grpcio:<18} {expected:?}"));
        let shown = token.is_some_and(|token| answer.contains(&read(token)[18..60]));
        if (by_curl, by_grpcio.as_str()) != expected || by_openssl != (expected.0 == 200) || shown {
            wrong.push(format!("{name}: {answer}"));
        }
    }
    println!("{}", table.join("\n"));
    assert!(wrong.is_empty(), "{}\n{}", table.join("\n"), wrong.join("\n"));

    // Headers that are not one token are refused, also beside a valid certificate.
    let (one, other) = (header(&read(&of_worker)), header(&read(&good)));
    for args in [
        &["-H", "authorization: Basic YTpi"][..],
        &["-H", "authorization: Bearer"],
        &["-H", &one, "-H", &other],
        &["-H", &one, "-H", &one],
    ] {
        assert_eq!(server.curl(Some(&worker), args), 401, "{args:?}");
    }
    assert_eq!(server.curl(None, &["--http1.1", "-H", &other]), 200);
    assert_eq!(server.curl(None, &["--http2", "-H", &other.replace("Bearer", "bearer")]), 200, "schemes have no case");
    let refused = run(leasehold(&["ls"]).env("LEASEHOLD_ADDR", format!("https://{}", server.server.address)));
    assert_eq!(refused.exit, 78, "no certificate, no token: {}", refused.err);
}

#[test]
fn the_command_line_presents_a_token_from_a_file_or_a_profile() {
    let files = BearerFiles::new();
    let (_, token) = files.create("ci", &[]);
    let server = files.serve(&[]);
    let address = format!("https://{}", server.server.address);
    let with_token = |variable: &Path| {
        let mut command = leasehold(&["ls", "--json"]);
        command.env("LEASEHOLD_ADDR", &address).env("LEASEHOLD_TLS_CA", &server.servers.cert);
        command.env("LEASEHOLD_BEARER_FILE", variable);
        run(&mut command)
    };
    with_token(&token).ok();
    let missing = with_token(&files.path("missing"));
    assert!(missing.exit == 78 && missing.err.contains("bearer_file"), "{}", missing.err);
    let elsewhere = BearerFiles::new();
    let (_, unknown) = elsewhere.create("ci", &[]);
    let refused = with_token(&unknown);
    assert!(refused.exit == 6 && refused.err.contains("UNAUTHENTICATED"), "{}", refused.err);
    assert!(!refused.err.contains(&read(&unknown)), "{}", refused.err);

    let home = tempfile::tempdir().expect("a directory");
    let profile = home.path().join("leasehold/ci");
    std::fs::create_dir_all(&profile).expect("a new directory");
    std::fs::copy(&token, profile.join("ci.token")).expect("the token is copied");
    std::fs::copy(&server.servers.cert, profile.join("ca.pem")).expect("the CA is copied");
    let lines = format!("addr = {address:?}\ntls_ca = \"ca.pem\"\nbearer = \"ci.token\"\n");
    std::fs::write(profile.join("profile.toml"), lines).expect("the profile is written");
    run(leasehold(&["--as", "ci", "acquire", "jobs/a", "--holder", "h", "--ttl", "1m"])
        .env("XDG_CONFIG_HOME", home.path()))
    .ok();

    // Never over a plain connection to another machine: not even a connection is made.
    let mut plain = leasehold(&["ls", "--addr", "192.0.2.1:7421"]);
    let refused = run(plain.env("LEASEHOLD_BEARER_FILE", &token));
    assert!(refused.exit == 78 && refused.err.contains("without TLS"), "{}", refused.err);
}

#[test]
fn a_token_counts_on_plain_loopback_and_on_the_socket_only_as_the_same_user() {
    let files = BearerFiles::new();
    let (_, token) = files.create("ci", &[]);
    let user = files.path("access.toml").metadata().expect("the file exists").uid();
    let principal = format!("uid:{user}");
    write_access(&files.path("access.toml"), &[CI, &principal]);
    let (_, of_user) = files.create("user", &["--principal", &principal]);
    let (access, bearers, socket) = (files.path("access.toml"), files.path("bearers.toml"), files.path("socket"));
    let [access, bearers, socket] = [&access, &bearers, &socket].map(|path| path.to_str().expect("a UTF-8 path"));
    let flags = ["--listen", "127.0.0.1:0", "--journal", "memory", "--access", access, "--bearers", bearers];
    let server = Server::with_flags(&[&flags[..], &["--socket", socket]].concat());
    let status = |token: Option<&Path>| {
        let headers = token.map(|token| format!("{}\r\n", header(&read(token)))).unwrap_or_default();
        server.http("GET", "/v1/leases", &headers, "")[9..12].to_owned()
    };
    assert_eq!((status(Some(&token)), status(None)), ("200".into(), "403".into()), "no token: anonymous");
    let on_socket = |token: &Path| {
        let mut command = curl();
        command.args(["--unix-socket", socket, "-H", &header(&read(token)), "http://localhost/v1/leases"]);
        String::from_utf8_lossy(&command.output().expect("curl starts").stdout).into_owned()
    };
    assert_eq!((on_socket(&of_user), on_socket(&token)), ("200".into(), "401".into()));
}

#[test]
fn a_server_that_accepts_no_tokens_refuses_them_and_requires_a_certificate() {
    let server = TlsServer::start();
    let worker = server.client("worker", WORKER);
    let files = BearerFiles::new();
    let (_, token) = files.create("ci", &[]);
    let header = header(&read(&token));
    assert_eq!(server.curl(None, &["-H", &header]), 0, "the handshake fails");
    assert_eq!(server.curl(Some(&worker), &["-H", &header]), 401);
    assert_eq!(server.curl(Some(&worker), &[]), 200);
}

#[test]
fn tokens_are_created_listed_and_revoked_and_the_file_keeps_only_digests() {
    let files = BearerFiles::new();
    let dir = files.directory.path().to_str().expect("a UTF-8 path");
    let create = |args: &[&str]| run(&mut leasehold(&[&["bearer", "create"], args, &["--dir", dir]].concat()));
    let printed = create(&["deploy", "--role", "holder", "--prefix", "jobs"]).ok();
    let token = printed.out.trim().to_owned();
    assert!(token.starts_with("lhb1_") && token.len() == 70 && !printed.err.contains(&token), "{}", printed.err);
    let file = read(&files.path("bearers.toml"));
    assert!(file.contains("bearer:deploy") && !file.contains(&token[18..61]), "{file}");
    assert!(
        read(&files.path("access.toml"))
            .contains("principal = \"bearer:deploy\"\nrole = \"holder\"\nprefix = \"jobs\"")
    );
    for path in [files.path("bearers.toml"), files.create("deploy", &[]).1] {
        let mode = path.metadata().expect("the file exists").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    for (args, part) in [
        (&["other"][..], "no grant yet"),
        (&["a/b"], "not a name"),
        (&["deploy", "--expires", "0s"], "range"),
        (&["deploy", "--principal", "anonymous"], "proves an identity"),
        (&["deploy", "--principal", "root"], "not a principal"),
        (&["deploy", "--role", "holder"], "one --prefix for each --role"),
        (&["deploy", "--out", "/proc/nowhere"], "cannot write"),
    ] {
        let refused = create(args);
        assert!(refused.exit != 0 && refused.err.contains(part), "{args:?}: {}", refused.err);
    }
    let list = || -> Vec<Value> {
        let listed = run(&mut leasehold(&["bearer", "list", "--json", "--dir", dir])).ok().json();
        listed["bearers"].as_array().expect("a list").clone()
    };
    assert_eq!(list().iter().map(|entry| text(&entry["state"])).collect::<Vec<_>>(), ["valid", "valid"]);
    files.revoke(&token[5..17]);
    assert_eq!(list().iter().map(|entry| text(&entry["state"])).collect::<Vec<_>>(), ["revoked", "valid"]);
    files.revoke("deploy");
    assert_eq!(list().iter().map(|entry| text(&entry["state"])).collect::<Vec<_>>(), ["revoked", "revoked"]);
    let again = run(&mut leasehold(&["bearer", "revoke", "deploy", "--dir", dir]));
    assert!(again.exit == 78 && again.err.contains("no valid token"), "{}", again.err);
}
