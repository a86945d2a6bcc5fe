//! Secrets of leases and sessions with the real program: two processes with one identity, restarts, a failover, and a search for
//! secrets in everything that a server writes (A6, A11).

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testkit::etcd::EtcdCluster;
use serde_json::Value;
use support::{CommandRun, Server, TEST_TIMEOUT, leasehold, run, text};
use tempfile::TempDir;

/// Everyone on this machine has the same identity.
const SHARED: &str = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"holder\"\nprefix = \"jobs\"\n\
                      [[grant]]\nprincipal = \"anonymous\"\nrole = \"admin\"\nprefix = \"\"\n";

/// A directory with an access file, in which servers are started again and again.
struct Setup {
    directory: TempDir,
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("access.toml"), SHARED).expect("the file is writable");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn start(&self, more: &[&str]) -> Server {
        let (data, access) = (self.text_path("data"), self.text_path("access.toml"));
        let mut flags = vec!["--listen", "127.0.0.1:0", "--data", &data, "--access", &access];
        flags.extend(more);
        Server::with_flags(&flags)
    }

    /// A command with the secret file of one process.
    fn command(&self, server: &Server, secret: &str, args: &[&str]) -> Command {
        let mut command = server.command(args);
        command.env("LEASEHOLD_SECRET_FILE", self.path(secret));
        command
    }

    fn run(&self, server: &Server, secret: &str, args: &[&str]) -> CommandRun {
        run(&mut self.command(server, secret, args))
    }
}

#[test]
fn a_process_without_the_secret_file_cannot_touch_a_lease_and_a_restart_changes_nothing() {
    let setup = Setup::new();
    let server = setup.start(&[]);
    let granted =
        setup.run(&server, "one", &["acquire", "jobs/a", "--holder", "one", "--ttl", "9m", "--json"]).ok().json();
    assert!(granted.get("secret").is_none(), "it is in the file: {granted}");
    assert_eq!(fs::metadata(setup.path("one")).expect("it was written").mode() & 0o7777, 0o600);
    let token = text(&granted["token"]);
    setup.run(&server, "two", &["acquire", "jobs/b", "--holder", "two", "--ttl", "9m"]).ok();
    let refused = |server: &Server| {
        for verb in ["renew", "release"] {
            let without = server.run(&[verb, "jobs/a", "--token", &token]).fails(6, "leasehold: PERMISSION_DENIED");
            assert!(without.err.contains("the lease's secret is missing or wrong"), "{}", without.err);
            setup.run(server, "two", &[verb, "jobs/a", "--token", &token]).fails(6, "leasehold: PERMISSION_DENIED");
        }
        server.run(&["check", "jobs/a", "--token", &token]).ok();
    };
    refused(&server);
    setup.run(&server, "one", &["renew", "jobs/a", "--token", &token]).ok();

    // A kill, not a shutdown.
    drop(server);
    let server = setup.start(&[]);
    refused(&server);
    setup.run(&server, "one", &["renew", "jobs/a", "--token", &token]).ok();
    setup.run(&server, "one", &["release", "jobs/a", "--token", &token]).ok();

    // Without a file the secret is a field, which HTTP sends as a header.
    let granted = server.run(&["acquire", "jobs/c", "--holder", "one", "--ttl", "60s", "--json"]).ok().json();
    let (secret, token) = (text(&granted["secret"]), text(&granted["token"]));
    let body = format!(r#"{{"token":"{token}"}}"#);
    let http = |headers: &str| server.http("POST", "/v1/leases/jobs/c:release", headers, &body);
    assert!(http("").starts_with("HTTP/1.1 403"), "{}", http(""));
    assert!(http(&format!("Lease-Secret: {secret}\r\n")).starts_with("HTTP/1.1 200"));
}

#[test]
fn with_quiet_and_access_rules_no_lease_is_kept_whose_secret_is_dropped() {
    let setup = Setup::new();
    let server = setup.start(&[]);
    let acquire = ["acquire", "jobs/a", "--holder", "one", "--ttl", "9m", "--quiet"];
    let refused = server.run(&acquire).fails(78, "leasehold: CONFIG{secret_file}");
    assert!(refused.err.contains("--secret-file FILE"), "{}", refused.err);
    assert!(refused.out.is_empty(), "no token is printed: {}", refused.out);
    // The lease is free again, and with a file it is usable.
    let acquired = setup.run(&server, "one", &acquire).ok();
    setup.run(&server, "one", &["release", "jobs/a", "--token", acquired.out.trim()]).ok();
}

#[test]
fn a_lost_cluster_key_invalidates_secrets_and_the_server_says_so() {
    let setup = Setup::new();
    let server = setup.start(&[]);
    let acquired = setup.run(&server, "one", &["acquire", "jobs/a", "--holder", "one", "--ttl", "9m", "--quiet"]).ok();
    let token = acquired.out.trim().to_owned();
    drop(server);
    fs::remove_file(setup.path("data/keys/cluster.key")).expect("the key exists");
    let server = setup.start(&[]);
    assert!(server.startup_log.iter().any(|line| line.contains("created a cluster key")), "{:?}", server.startup_log);
    setup.run(&server, "one", &["release", "jobs/a", "--token", &token]).fails(6, "leasehold: PERMISSION_DENIED");
}

#[test]
fn keys_that_others_can_read_or_that_are_missing_stop_the_start_with_the_next_step() {
    let setup = Setup::new();
    drop(setup.start(&[]));
    let (keys, key) = (setup.path("data/keys"), setup.path("data/keys/cluster.key"));
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
    let (data, access) = (setup.text_path("data"), setup.text_path("access.toml"));
    let on_data = ["--data", &data];
    let start = |more: &[&str]| {
        let mut command = leasehold(&["serve", "--listen", "127.0.0.1:0", "--access", &access]);
        run(command.args(more)).fails(78, "leasehold: CONFIG{keys}")
    };
    assert_eq!(
        (fs::metadata(&keys).expect("created").mode() & 0o777, fs::metadata(&key).expect("created").mode() & 0o777),
        (0o700, 0o600)
    );
    mode(&keys, 0o755);
    assert!(start(&on_data).err.contains("chmod 0700"));
    mode(&keys, 0o700);
    mode(&key, 0o644);
    assert!(start(&on_data).err.contains("chmod 0600"));
    mode(&key, 0o600);
    let kept = fs::read_to_string(&key).expect("readable");
    fs::write(&key, &kept[1..]).expect("writable");
    let malformed = start(&on_data);
    assert!(malformed.err.contains("64 lower-case hexadecimal digits"), "{}", malformed.err);
    assert!(!malformed.err.contains(&kept[1..33]), "an error does not repeat a key: {}", malformed.err);
    // On etcd no server creates a key, because all servers must have the same.
    let other = setup.text_path("other");
    let etcd = ["--journal", "etcd://127.0.0.1:1/x", "--data", &other];
    assert!(start(&etcd).err.contains("keys is required with access on etcd"));
    let empty = setup.text_path("empty");
    fs::create_dir(&empty).expect("a directory");
    mode(Path::new(&empty), 0o700);
    let missing = start(&[&etcd[..], &["--keys", &empty]].concat());
    assert!(missing.err.contains("cluster.key does not exist; copy it from another server"), "{}", missing.err);
}

#[test]
fn a_secret_is_valid_at_the_next_leader() {
    let setup = Setup::new();
    let etcd = EtcdCluster::single();
    let keys = setup.text_path("keys");
    fs::create_dir(&keys).expect("a directory");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o700)).expect("the mode is set");
    fs::write(setup.path("keys/cluster.key"), format!("{}\n", "5a".repeat(32))).expect("writable");
    fs::set_permissions(setup.path("keys/cluster.key"), fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let journal = format!("etcd://{}/secrets", etcd.endpoints().join(","));
    let access = setup.text_path("access.toml");
    let start = |name: &str| {
        let data = setup.text_path(name);
        let flags = ["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--keys", &keys];
        Server::with_flags(&[&flags[..], &["--journal", &journal]].concat())
    };
    let is_leader = |server: &Server| server.http("GET", "/readyz", "", "").ends_with("\r\n\r\nready\n");
    let wait_for_leader = |server: &Server| {
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        while !is_leader(server) {
            assert!(std::time::Instant::now() < deadline, "the server does not lead");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let first = start("first");
    wait_for_leader(&first);
    let second = start("second");
    let acquired = setup.run(&first, "one", &["acquire", "jobs/a", "--holder", "one", "--ttl", "9m", "--quiet"]).ok();
    let token = acquired.out.trim().to_owned();
    drop(first);
    wait_for_leader(&second);
    second.run(&["renew", "jobs/a", "--token", &token]).fails(6, "leasehold: PERMISSION_DENIED");
    setup.run(&second, "one", &["renew", "jobs/a", "--token", &token]).ok();
    setup.run(&second, "one", &["release", "jobs/a", "--token", &token]).ok();
}

/// Secrets of one run and their spellings. A new kind of secret is added where [`Canaries::add`] is called.
#[derive(Default)]
struct Canaries(Vec<(String, Vec<u8>)>);

impl Canaries {
    /// Adds a secret that is given as hexadecimal digits: as digits in both cases, as bytes, in base64 and as a list of numbers.
    fn add(&mut self, name: &str, hex: &str) {
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits")).collect();
        assert!(bytes.len() >= 16, "{name} is long enough not to appear by chance");
        let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let spellings =
            [hex.as_bytes().to_vec(), hex.to_uppercase().into_bytes(), list.into_bytes(), base64(&bytes), bytes];
        self.0.extend(spellings.map(|spelling| (name.to_owned(), spelling)));
    }

    /// The names of secrets that the bytes contain.
    fn found_in(&self, bytes: &[u8]) -> Vec<&str> {
        // Log segments are preallocated: nothing is after the last byte that is not zero.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let bytes = &bytes[..used];
        let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        self.0.iter().filter(|(_, spelling)| contains(spelling)).map(|(name, _)| name.as_str()).collect()
    }
}

/// Base64 without the last group, whose characters depend on what follows.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.chunks_exact(3).map(|three| u32::from_be_bytes([0, three[0], three[1], three[2]]));
    groups.flat_map(|bits| [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize])).collect()
}

/// Every file below a directory, except for the keys.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "keys") {
                files(&path, found);
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
}

#[test]
fn no_secret_of_a_run_is_in_its_logs_audit_log_metrics_errors_listings_files_or_backups() {
    let setup = Setup::new();
    let mut canaries = Canaries::default();
    let key = "43414e4152592d4f462d5448452d434c55535445522d4b45592d303132333435".to_owned();
    fs::create_dir(setup.path("data")).expect("a directory");
    fs::create_dir(setup.path("data/keys")).expect("a directory");
    for (name, mode) in [("data", 0o700), ("data/keys", 0o700), ("data/keys/cluster.key", 0o600)] {
        if mode == 0o600 {
            fs::write(setup.path(name), &key).expect("writable");
        }
        fs::set_permissions(setup.path(name), fs::Permissions::from_mode(mode)).expect("the mode is set");
    }
    canaries.add("cluster key", &key);
    let keys = setup.text_path("data/keys");
    run(&mut leasehold(&["keys", "create", "--keys", &keys])).ok();
    let created = ["keys", "create-stamp", "ledger", "--under", "jobs", "--keys", &keys, "--json"];
    let stamp_file = text(&run(&mut leasehold(&created)).ok().json()["file"]);
    let stamp_key: Value = serde_json::from_slice(&fs::read(&stamp_file).expect("readable")).expect("JSON");
    canaries.add("stamp key", &text(&stamp_key["key"]));
    let mut server = setup.start(&["--log-level", "debug", "--log-format", "json", "--snapshot-after-batches", "5"]);
    let mut outputs: Vec<(String, Vec<u8>)> = Vec::new();
    let mut shown = |what: &str, run: CommandRun| {
        outputs.push((format!("{what}: output"), run.out.into_bytes()));
        outputs.push((format!("{what}: errors"), run.err.into_bytes()));
    };

    let body = |response: String| -> Value {
        serde_json::from_str(response.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
    };
    let charter = r#"{"comment":"c","charter":{"targets":[{"name":"ledger","at":"db"}]}}"#;
    let set = server.http("PUT", "/v1/charters/jobs", "", charter);
    assert!(set.starts_with("HTTP/1.1 200"), "{set}");
    let opened = body(server.http("POST", "/v1/sessions", "", r#"{"holder":"canary","ttl":"9m"}"#));
    let (session, session_secret) = (text(&opened["session"]), text(&opened["secret"]));
    canaries.add("session secret", &session_secret);
    let proven = format!("Session-Secret: {session_secret}\r\nIdempotency-Key: {session}:1\r\n");
    let acquire = r#"{"holder":"canary","ttl":"9m"}"#;
    let granted = body(server.http("POST", "/v1/leases/jobs/a:acquire", &proven, acquire));
    let (token, secret) = (text(&granted["token"]), text(&granted["secret"]));
    canaries.add("lease secret", &secret);
    assert!(text(&granted["stamped_tokens"]["ledger"]).starts_with(&format!("{token}.")), "the token was stamped");
    let replayed = body(server.http("POST", "/v1/leases/jobs/a:acquire", &proven, acquire));
    assert_eq!(text(&replayed["secret"]), secret);
    setup.run(&server, "file", &["acquire", "jobs/b", "--holder", "canary", "--ttl", "9m"]).ok();
    let in_file = fs::read_to_string(setup.path("file")).expect("it was written").trim().to_owned();
    canaries.add("lease secret in a file", &in_file);
    let file_token = text(&server.run(&["show", "jobs/b", "--json"]).ok().json()["leases"][0]["token_number"]);

    // Requests with right secrets, with wrong ones, and with secrets in the wrong places.
    let renew = format!(r#"{{"token":"{token}"}}"#);
    let mut errors = Vec::new();
    for headers in [
        format!("Lease-Secret: {secret}\r\n"),
        format!("Lease-Secret: {in_file}\r\n"),
        format!("Lease-Secret: {secret}00\r\n"),
        format!("Lease-Secret: {session_secret}\r\n"),
        format!("Session-Secret: {secret}\r\n"),
        format!("Session-Secret: {session_secret}\r\nIdempotency-Key: {session_secret}:1\r\n"),
        format!("Lease-Token: {secret}\r\n"),
    ] {
        errors.extend(server.http("POST", "/v1/leases/jobs/a:renew", &headers, &renew).into_bytes());
        errors.extend(server.http("POST", &format!("/v1/sessions/{session}:renew"), &headers, "{}").into_bytes());
    }
    for at in 0..20 {
        let acquire = ["acquire", &format!("jobs/{at}"), "--holder", "canary", "--ttl", "60s", "--quiet"];
        setup.run(&server, "more", &acquire).ok();
    }
    shown("release with a wrong secret", setup.run(&server, "file", &["release", "jobs/a", "--token", &token]));
    shown("renew", setup.run(&server, "file", &["renew", "jobs/b", "--token", &token]));
    for args in [
        &["ls", "--json"][..],
        &["show", "jobs/a", "--json"],
        &["held-by", "canary", "--json"],
        &["history", "jobs/a", "--json"],
        &["status", "--json"],
        &["audit", "verify"],
        &["backup", &setup.text_path("backup")],
    ] {
        shown(&args.join(" "), server.run(args));
    }
    assert!(setup.path("backup").exists(), "the backup was written");
    assert!(!file_token.is_empty());
    for path in ["/metrics", "/v1/leases", "/v1/audit", "/v1/status", "/v1/history/jobs/a", "/v1/openapi.json"] {
        let response = server.http("GET", path, "", "");
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
        outputs.push((path.to_owned(), response.into_bytes()));
    }
    outputs.push(("errors of HTTP".to_owned(), errors));
    server.signal("TERM");
    server.wait();
    outputs.push(("log".to_owned(), server.all_log_lines().join("\n").into_bytes()));
    let mut paths = Vec::new();
    files(&setup.path("data"), &mut paths);
    paths.push(setup.path("backup"));
    assert!(paths.len() >= 4, "a journal, a snapshot, an audit log and a backup: {paths:?}");
    outputs.extend(paths.into_iter().map(|path| (path.display().to_string(), fs::read(&path).expect("readable"))));

    let found: Vec<_> = outputs
        .iter()
        .flat_map(|(what, bytes)| {
            canaries.found_in(bytes).into_iter().map(move |name| format!("{what} contains the {name}"))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    // The search finds what is there.
    let own = fs::read(setup.path("data/keys/cluster.key")).expect("readable");
    assert_eq!(canaries.found_in(&own), ["cluster key"]);
    assert_eq!(canaries.found_in(&fs::read(setup.path("file")).expect("readable")), ["lease secret in a file"]);
}
