//! Configuration of `leasehold serve`: flags, file, SIGHUP, and the service manager.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::process::TestProcess;
use serde_json::Value;
use support::{Server, TEST_TIMEOUT, UNUSED_ADDRESS, leasehold, run, text};
use tempfile::TempDir;

/// A directory for a configuration file and data.
struct ConfigDir(TempDir);

impl ConfigDir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the configuration file. `DATA` in it is replaced by a data directory.
    fn write(&self, settings: &str) -> String {
        let path = self.path("leasehold.toml");
        let data = self.path("data");
        std::fs::write(&path, settings.replace("DATA", data.to_str().expect("a UTF-8 path")))
            .expect("the file is writable");
        path.to_str().expect("a UTF-8 path").to_owned()
    }
}

const FREE: &str = "listen = \"127.0.0.1:0\"\ndata = \"DATA\"\n";

#[test]
fn the_file_configures_the_server_and_flags_override_it() {
    let dir = ConfigDir::new();
    let config = dir.write(&format!("# settings\r\n{FREE}\tmax_ttl = \"1h\"\nlog_level = \"warn\"\n"));
    let server = Server::with_flags(&["--config", &config, "--log-level", "info"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 3_600_000);
    assert!(dir.path("data/journal").exists(), "the journal is in the configured directory");

    let other = ConfigDir::new();
    let config = other.write(&format!("{FREE}max_ttl = \"1h\"\n"));
    let server = Server::with_flags(&["--config", &config, "--max-ttl", "5m"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 300_000);
}

#[test]
fn an_invalid_file_is_rejected_with_file_line_and_key() {
    let dir = ConfigDir::new();
    let table = [
        ("lisen = \"127.0.0.1:0\"\n", ", 1, lisen}: ", "expected one of"),
        ("log_format = \"text\"\nlog_format = \"json\"\n", ", 2, log_format}: ", "duplicate key"),
        ("listen = 7421\n", ", 1, listen}: ", "invalid type"),
        ("\n\nlisten = \"localhost\"\n", ", 3, listen}: ", "not an IP address and a port"),
        ("listen = \":7421\"\n", ", 1, listen}: ", "write 127.0.0.1:7421 for this machine"),
        ("max_connections = -1\n", ", 1, max_connections}: ", "a whole number"),
        ("max_connections = 0\n", ", 1, max_connections}: ", "from 1 to 1000000"),
        ("allowed_hosts = \"a\"\n", ", 1, allowed_hosts}: ", "invalid type"),
        ("allowed_hosts = [\"a.example\", \"b.example:7421\"]\n", ", 1, allowed_hosts}: ", "write the name alone"),
        ("allowed_hosts = [\"*\"]\n", ", 1, allowed_hosts}: ", "write the name alone"),
        ("max_request_rate_per_address = 0\n", ", 1, max_request_rate_per_address}: ", "from 1 to 10000000"),
        ("max_request_rate = 0\n", ", 1, max_request_rate}: ", "from 1 to 10000000"),
        ("max_connections = \"many\"\n", ", 1, max_connections}: ", "invalid type"),
        ("max_ttl = 10\n", ", 1, max_ttl}: ", "invalid type"),
        ("max_ttl = \"10\"\n", ", 1, max_ttl}: ", "10s"),
        ("max_ttl = \"99ms\"\n", ", 1, max_ttl}: ", "from 100ms to 7d"),
        ("max_ttl = \"8d\"\n", ", 1, max_ttl}: ", "from 100ms to 7d"),
        ("snapshot_after_bytes = 1000\n", ", 1, snapshot_after_bytes}: ", "invalid type"),
        ("snapshot_after_bytes = \"64\"\n", ", 1, snapshot_after_bytes}: ", "for example 64MiB"),
        ("snapshot_after_bytes = \"1023B\"\n", ", 1, snapshot_after_bytes}: ", "from 1KiB to 1TiB"),
        ("snapshot_after_batches = 0\n", ", 1, snapshot_after_batches}: ", "from 1 to 4294967296"),
        ("snapshot_after_batches = -1\n", ", 1, snapshot_after_batches}: ", "a whole number"),
        ("audit_max_bytes = \"63KiB\"\n", ", 1, audit_max_bytes}: ", "from 64KiB to 1024TiB"),
        ("audit_max_age = \"-1d\"\n", ", 1, audit_max_age}: ", "not a duration"),
        ("audit_max_age = \"999ms\"\n", ", 1, audit_max_age}: ", "less than 1s"),
        ("journal = \"tape\"\n", ", 1, journal}: ", "file, memory"),
        ("journal = \"etcd://127.0.0.1\"\n", ", 1, journal}: ", "is not HOST:PORT"),
        ("etcd_quota = \"1MiB\"\n", ", 1, etcd_quota}: ", "from 16MiB to 64GiB"),
        ("etcd_user = \"u\"\n", "CONFIG{etcd_user}: ", "etcd_password_file"),
        ("etcd_cert = \"c\"\n", "CONFIG{etcd_cert}: ", "set both"),
        ("etcd_cert = \"c\"\netcd_key = \"k\"\n", "CONFIG{etcd_ca}: ", "set etcd_ca"),
        ("advertise = \"http://a:1\"\n", ", 1, advertise}: ", "scheme"),
        ("log_level = \"loud\"\n", ", 1, log_level}: ", "error, warn, info, debug or trace"),
        ("insecure_listen = \"yes\"\n", ", 1, insecure_listen}: ", "invalid type"),
        ("[server]\n", ", 1, server}: ", "unknown field"),
        ("listen = \n", ", 1, listen}: ", "leasehold: CONFIG{"),
        ("\u{feff}log_format = \"text\"\n", "leasehold.toml}: ", "byte-order mark"),
    ];
    for (settings, position, message) in table {
        let config = dir.write(settings);
        for args in [&["serve", "--config", &config][..], &["config", "check", &config]] {
            let result = run(&mut leasehold(args)).fails(78, "leasehold: CONFIG{");
            assert!(result.err.contains(position) && result.err.contains(message), "{settings:?}: {result:?}");
            assert_eq!(result.err.lines().count(), 1, "{result:?}");
        }
    }
    let problem = run(&mut leasehold(&["config", "check", &dir.write("lisen = 1\n"), "--json"])).problem();
    assert_eq!((&problem["code"], &problem["line"], &problem["key"]), (&"CONFIG".into(), &1.into(), &"lisen".into()));
}

#[test]
fn an_unreadable_file_is_rejected() {
    let dir = ConfigDir::new();
    let directory = dir.0.path().to_str().expect("a UTF-8 path").to_owned();
    let inside = format!("{}/inside", dir.write("log_format = \"text\"\n"));
    let missing = format!("{directory}/missing.toml");
    let (large, bytes) = (dir.path("large.toml"), dir.path("bytes.toml"));
    std::fs::write(&large, "#".repeat((1 << 20) + 1)).expect("the file is writable");
    std::fs::write(&bytes, b"log_format = \"\xff\"").expect("the file is writable");
    let (large, bytes) = (large.to_str().expect("a UTF-8 path"), bytes.to_str().expect("a UTF-8 path"));
    let table = [
        (missing.as_str(), "does not exist"),
        (&directory, "is a directory"),
        (&inside, "cannot open"),
        (large, "larger than 1048576 bytes"),
        (bytes, "not UTF-8"),
    ];
    for (config, message) in table {
        let result = run(&mut leasehold(&["serve", "--config", config])).fails(78, "leasehold: CONFIG{");
        assert!(result.err.contains(message), "{config}: {result:?}");
    }
}

/// The value of a metric.
fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.http("GET", "/metrics", "", "");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no metric {name}: {metrics}")).parse().expect("a number")
}

fn acquire_many(server: &Server, many: std::ops::Range<u32>) {
    for n in many {
        let body = r#"{"holder":"w1","ttl":"5m"}"#;
        let answer = server.http("POST", &format!("/v1/leases/many/{n}:acquire"), "", body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn small_snapshot_thresholds_take_snapshots_often_and_lose_nothing() {
    for bound in ["snapshot_after_bytes = \"1KiB\"\n", "snapshot_after_batches = 8\n"] {
        let dir = ConfigDir::new();
        let config = dir.write(&format!("{FREE}{bound}"));
        let server = Server::with_flags(&["--config", &config]);
        acquire_many(&server, 0..100);
        let over = std::time::Instant::now() + TEST_TIMEOUT;
        while metric(&server, "leasehold_snapshots_total") < 2.0 {
            assert!(std::time::Instant::now() < over, "no second snapshot was taken");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server.signal("KILL");
        drop(server);
        let server = Server::with_flags(&["--config", &config]);
        assert_eq!(server.json(&["status"])["held"], 100, "{bound}");
    }
}

#[test]
fn a_small_audit_trail_keeps_its_newest_entries_and_verifies() {
    let dir = ConfigDir::new();
    let config = dir.write(&format!("{FREE}audit_max_bytes = \"64KiB\"\naudit_max_age = \"90d\"\n"));
    let server = Server::with_flags(&["--config", &config]);
    acquire_many(&server, 0..300);
    let proof = server.json(&["audit", "verify"]);
    let (first, last) = (proof["first"].as_u64().expect("a number"), proof["last"].as_u64().expect("a number"));
    assert!(first > 1 && last > 300, "{proof}");
    let newest = &server.json(&["history", "--limit", "1"])["entries"][0];
    assert_eq!((&newest["entry"], &newest["resource"]), (&last.into(), &"many/299".into()));
}

#[test]
fn config_check_prints_the_resolved_settings() {
    let dir = ConfigDir::new();
    let hosts = "allowed_hosts = [\"A.example\", \"b.example\"]\nmax_request_rate = 7\n";
    let config = dir.write(&format!("max_ttl = \"1h\"\nadvertise = \"lease-1.example:7421\"\n{hosts}"));
    let result = run(&mut leasehold(&["config", "check", &config])).ok();
    let lines: Vec<Vec<&str>> = result.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        ["max_ttl", "1h"],
        ["max_connections", "10000"],
        ["allowed_hosts", "a.example,b.example"],
        ["max_request_rate_per_address", "7"],
        ["snapshot_after_bytes", "64MiB"],
        ["audit_max_age", "unlimited"],
    ] {
        assert!(lines.iter().any(|printed| *printed == line), "{line:?} in {result:?}");
    }
    let body = run(&mut leasehold(&["config", "check", &config, "--json"])).ok().json();
    assert_eq!((&body["advertise"], &body["log_format"]), (&"lease-1.example:7421".into(), &"text".into()));
}

#[test]
fn the_advertised_host_and_the_allowed_hosts_are_names_of_the_server() {
    let flags = ["--ephemeral", "--listen", "127.0.0.1:0", "--advertise", "lease-1.example:7421"];
    let server = Server::with_flags(&[&flags[..], &["--allowed-hosts", "a.example,B.example"]].concat());
    let status = |host: &str| {
        let mut stream = std::net::TcpStream::connect(&server.address).expect("the server listens");
        let request = format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("the server reads");
        std::io::read_to_string(stream).expect("the server responds")
    };
    for host in ["lease-1.example", "lease-1.example:7421", "a.example", "b.example:80", "localhost", "[::1]:1"] {
        assert!(status(host).starts_with("HTTP/1.1 200"), "{host}");
    }
    let refused = status("lease-2.example");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("allowed_hosts (--allowed-hosts)"), "{refused}");
}

#[test]
fn invalid_flags_are_usage_errors() {
    for args in [
        &["--max-ttl", "10"][..],
        &["--max-connections", "0"],
        &["--max-request-rate", "0"],
        &["--allowed-hosts", "http://a.example"],
        &["--allowed-hosts", ""],
        &["--listen", "localhost"],
        &["--listen", ":7421"],
        &["--listen", "localhost:many"],
        &["--journal", "tape"],
        &["--journal", "etcd://127.0.0.1:2379/a b"],
        &["--log-format", "xml"],
        &["--log-level", "loud"],
        &["--advertise", "nowhere"],
        &["--ephemeral", "--data", "x"],
    ] {
        assert_eq!(run(&mut leasehold(&[&["serve"], args].concat())).exit, 2, "{args:?}");
    }
    let result = run(&mut leasehold(&["serve", "--journal", "etcd://127.0.0.1:2379", "--listen", "0.0.0.0:0"]));
    assert!(result.fails(78, "leasehold: CONFIG{advertise}: ").err.contains("clients can reach"));
    let result = run(&mut leasehold(&["serve", "--ephemeral", "--listen", "0.0.0.0:0"]));
    assert!(result.fails(78, "leasehold: CONFIG: ").err.contains("--insecure-listen"));
}

#[test]
fn a_password_for_etcd_is_not_sent_to_other_machines_without_tls() {
    let dir = ConfigDir::new();
    let password = dir.path("password");
    std::fs::write(&password, "secret\n").expect("the directory is writable");
    let journal = "etcd://127.0.0.1:2379,192.0.2.1:2379/p";
    let mut command = leasehold(&["serve", "--journal", journal, "--etcd-user", "u", "--etcd-password-file"]);
    let refused = run(command.arg(&password).arg("--data").arg(dir.path("data")));
    let refused = refused.fails(78, "leasehold: CONFIG{etcd_ca}: ");
    assert!(refused.err.contains("192.0.2.1:2379") && refused.err.contains("--insecure-etcd"), "{refused:?}");
}

#[test]
fn a_server_listens_on_localhost_by_name() {
    let server = Server::with_flags(&["--ephemeral", "--listen", "localhost:0"]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    run(&mut leasehold(&["status", "--addr", &format!("localhost:{port}")])).ok();
    let refused = run(&mut leasehold(&["status", "--addr", &format!(":{port}")]));
    assert!(refused.fails(78, "leasehold: CONFIG").err.contains("write 127.0.0.1 for this machine"));
}

#[test]
fn listening_beyond_loopback_requires_insecure_listen_and_logs_a_warning() {
    let server = Server::with_flags(&["--ephemeral", "--listen", "0.0.0.0:0", "--insecure-listen"]);
    assert!(server.startup_log.iter().any(|line| line.contains("without TLS")), "{:?}", server.startup_log);
}

#[test]
fn max_ttl_is_fixed_at_the_first_start() {
    let dir = ConfigDir::new();
    let config = dir.write(FREE);
    drop(Server::with_flags(&["--config", &config, "--max-ttl", "1m"]));
    let server = Server::with_flags(&["--config", &config]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 60_000);
    assert!(!server.startup_log.iter().any(|line| line.contains("max_ttl")), "max_ttl was not set");
    drop(server);
    let server = Server::with_flags(&["--config", &config, "--max-ttl", "1h"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 60_000);
    assert!(server.startup_log.iter().any(|line| line.contains("WARN") && line.contains("max_ttl stays 1m")));
}

#[test]
fn a_copied_data_directory_requires_accept_copy() {
    let dir = ConfigDir::new();
    let config = dir.write(FREE);
    let server = Server::with_flags(&["--config", &config]);
    let token = server.acquire("a", "w1");
    drop(server);
    let copy = dir.path("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(dir.path("data")).arg(&copy).status();
    assert!(copied.expect("cp is installed").success());
    let copy = copy.to_str().expect("a UTF-8 path");
    let result = run(&mut leasehold(&["serve", "--listen", "127.0.0.1:0", "--data", copy]));
    assert!(result.fails(78, "leasehold: CONFIG: ").err.contains("--accept-copy"));
    let server = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", copy, "--accept-copy"]);
    server.run(&["check", "a", "--token", &token]).ok();
}

#[test]
fn sighup_reloads_the_file_and_an_invalid_file_changes_nothing() {
    let dir = ConfigDir::new();
    let config = dir.write(&format!("{FREE}max_connections = 10\n"));
    let server = Server::with_flags(&["--config", &config]);
    dir.write(&format!("{}max_connections = 20\nmax_ttl = \"1h\"\n", FREE.replace(":0", ":1")));
    server.signal("HUP");
    server.wait_for_log("max_connections changed from 10 to 20");
    server.wait_for_log("listen stays 127.0.0.1:0; restart the server to change it to 127.0.0.1:1");
    server.wait_for_log("max_ttl stays 10m; change it with: leasehold cluster set-max-ttl 1h");

    dir.write("max_connections = \"none\"\n");
    server.signal("HUP");
    let result = server.wait_for_log("reload failed, settings unchanged");
    assert!(result.contains(", 1, max_connections}: "), "{result}");
    dir.write(&format!("{FREE}max_connections = 20\nlog_level = \"warn\"\n"));
    server.signal("HUP");
    server.wait_for_log("log_level changed from info to warn");
    dir.write(&format!("{}max_connections = 20\nlog_level = \"debug\"\n", FREE.replace(":0", ":3")));
    server.signal("HUP");
    server.wait_for_log("listen stays 127.0.0.1:0; restart the server to change it to 127.0.0.1:3");
    dir.write(&format!("{}max_connections = 20\nlog_level = \"warn\"\n", FREE.replace(":0", ":2")));
    server.signal("HUP");
    server.wait_for_log("log_level changed from debug to warn");
    server.wait_for_log("listen stays 127.0.0.1:0; restart the server to change it to 127.0.0.1:2");
    server.run(&["status"]).ok();
}

#[test]
fn a_reload_of_other_files_does_not_say_that_nothing_changed() {
    let dir = ConfigDir::new();
    let access = dir.path("access.toml");
    let grant = |role: &str| format!("[[grant]]\nprincipal = \"uid:0\"\nrole = \"{role}\"\nprefix = \"\"\n");
    std::fs::write(&access, grant("admin")).expect("the file is writable");
    let config = dir.write(&format!("{FREE}access = {access:?}\n"));
    let server = Server::with_flags(&["--config", &config]);
    std::fs::write(&access, grant("admin") + &grant("holder")).expect("the file is writable");
    server.signal("HUP");
    server.wait_for_log("access rules reloaded");
    server.wait_for_log("configuration file reloaded; no setting changed");
}

#[test]
fn sighup_without_a_file_is_ignored() {
    let server = Server::with_flags(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    server.signal("HUP");
    server.wait_for_log("nothing to reload");
    server.run(&["status"]).ok();
}

#[test]
fn max_connections_is_raised_without_a_restart() {
    let dir = ConfigDir::new();
    let config = dir.write(&format!("{FREE}max_connections = 1\n"));
    let server = Server::with_flags(&["--config", &config]);
    let mut first = TcpStream::connect(&server.address).expect("the server listens");
    first.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the server reads");
    // A connection that serves a request occupies the only slot; an idle one would make room.
    first.read_exact(&mut [0; 1]).expect("the watch starts");
    let refused = server.run(&["status", "--json"]);
    assert_eq!(refused.exit, 7, "{refused:?}");
    assert!(refused.err.contains("\"limit\":\"connections\",\"max\":1"), "{refused:?}");
    dir.write(&format!("{FREE}max_connections = 2\n"));
    server.signal("HUP");
    server.wait_for_log("max_connections changed from 1 to 2");
    assert_eq!(server.run(&["status", "--json"]).ok().json()["held"], 0);
    drop(first);
}

#[test]
fn the_service_manager_is_notified_of_start_reload_and_stop() {
    let dir = ConfigDir::new();
    let config = dir.write(FREE);
    let socket = dir.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let notification = || {
        let mut bytes = [0; 1_024];
        let length = manager.recv(&mut bytes).expect("a notification");
        String::from_utf8(bytes[..length].to_vec()).expect("UTF-8 text")
    };
    let mut server = Server::with_notify_socket(&["--config", &config], &socket);
    assert_eq!(notification(), format!("READY=1\nSTATUS=serving on {}", server.address));
    server.signal("HUP");
    let reloading = notification();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload notification");
    assert!(since.parse::<u64>().is_ok_and(|since| since > 0), "{reloading}");
    assert!(notification().starts_with("READY=1"));
    server.signal("TERM");
    assert_eq!(notification(), "STOPPING=1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_missing_service_manager_does_not_stop_the_server() {
    let server = Server::with_notify_socket(&["--ephemeral", "--listen", "127.0.0.1:0"], Path::new("/nowhere/at/all"));
    server.wait_for_log("cannot notify the service manager");
    server.run(&["status"]).ok();
}

#[test]
fn the_json_log_contains_no_token_and_no_secret() {
    let args = ["--ephemeral", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "trace"];
    let mut server = Server::with_flags(&args);
    let token = server.acquire("a", "w1");
    let session = server.http("POST", "/v1/sessions", "", r#"{"holder":"w2","ttl":"60s"}"#);
    let (_, body) = session.split_once("\r\n\r\n").expect("the headers end");
    let secret = text(&serde_json::from_str::<Value>(body).expect("a JSON body")["secret"]);
    let renewed = server.http("POST", "/v1/leases/a:renew", &format!("lease-token: {token}\r\n"), "");
    assert!(renewed.starts_with("HTTP/1.1 200"), "{renewed}");
    server.run(&["release", "a", "--token", &token]).ok();
    server.run(&["release", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let lines = server.all_log_lines();
    assert!(lines.len() >= 4, "{lines:?}");
    for line in &lines {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let all = lines.join("\n");
    assert!(all.contains("journal opened") && all.contains("serving on ") && all.contains("stopped"), "{all}");
    assert!(!all.contains("lh1-") && !all.contains(&secret), "{all}");
}

#[test]
fn a_closed_standard_error_does_not_stop_the_server() {
    let dir = ConfigDir::new();
    let socket = dir.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let mut command = leasehold(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut server = command.env("NOTIFY_SOCKET", &socket).stderr(writer).spawn().expect("the binary was built");
    let mut bytes = [0; 1_024];
    let length = manager.recv(&mut bytes).expect("a notification");
    assert!(bytes[..length].starts_with(b"READY=1"));
    let pid = server.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill is installed").success());
    assert_eq!(server.wait().expect("the process ends").code(), Some(0));
}

#[test]
fn a_server_notifies_the_watchdog_until_it_is_paused() {
    let dir = ConfigDir::new();
    let socket = dir.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let mut command = leasehold(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "20000");
    let server =
        TestProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped())).expect("the binary was built");
    let receive = || {
        let mut bytes = [0; 1_024];
        manager.recv(&mut bytes).map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let mut seen = Vec::new();
    while !seen.iter().any(|state: &String| state.starts_with("READY=1")) || !seen.ends_with(&["WATCHDOG=1".to_owned()])
    {
        seen.push(receive().expect("a notification"));
    }
    for _ in 0..5 {
        assert_eq!(receive().expect("a notification"), "WATCHDOG=1");
    }
    server.stop();
    manager.set_nonblocking(true).expect("a socket can be non-blocking");
    while receive().is_ok() {}
    // Far beyond the limit: the service manager would have ended the process.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(receive().expect_err("a paused process sends nothing").kind(), ErrorKind::WouldBlock);
}

#[test]
fn health_of_one_server_is_known_without_rights_and_certificates() {
    let server = Server::with_flags(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    assert_eq!(server.run(&["health"]).ok().out, "ready\n");
    assert_eq!(server.run(&["health", "--alive"]).ok().out, "alive\n");
    let dir = ConfigDir::new();
    let socket = dir.path("socket");
    let access = dir.path("access.toml");
    std::fs::write(&access, "[[grant]]\nprincipal = \"dns:other.example\"\nrole = \"admin\"\nprefix = \"\"\n")
        .expect("writable");
    let socket = socket.to_str().expect("a UTF-8 path");
    let access = access.to_str().expect("a UTF-8 path");
    let args = ["--ephemeral", "--listen", "127.0.0.1:0", "--socket", socket, "--access", access];
    let restricted = Server::with_flags(&args);
    let by_socket = |args: &[&str]| run(leasehold(args).env("LEASEHOLD_ADDR", format!("unix:{socket}")));
    by_socket(&["status"]).fails(6, "leasehold: PERMISSION_DENIED");
    assert_eq!(by_socket(&["health"]).ok().out, "ready\n");
    restricted.signal("STOP");
    by_socket(&["health", "--timeout", "100ms"]).fails(5, "leasehold: UNAVAILABLE");
    restricted.signal("CONT");
    let https = run(leasehold(&["health"]).env("LEASEHOLD_ADDR", "https://127.0.0.1:1"));
    https.fails(2, "leasehold: INVALID_ARGUMENT");
    run(leasehold(&["health"]).env("LEASEHOLD_ADDR", UNUSED_ADDRESS)).fails(5, "leasehold: UNAVAILABLE");
}

#[test]
fn the_timeout_of_health_covers_a_response_that_never_ends() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    // Each byte arrives long before a timeout of the socket.
    let trickle = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the command connects");
        while std::io::Write::write_all(&mut stream, b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let late = run(leasehold(&["health", "--timeout", "300ms"]).env("LEASEHOLD_ADDR", &address));
    let late = late.fails(5, "leasehold: UNAVAILABLE");
    assert!(late.err.contains("/readyz did not answer completely within 300ms"), "{late:?}");
    trickle.join().expect("the connection ends with the command");
    let zero = run(leasehold(&["health", "--timeout", "0s"]).env("LEASEHOLD_ADDR", &address));
    let zero = zero.fails(2, "leasehold: INVALID_ARGUMENT");
    assert!(zero.err.contains("timeout: 0 leaves no time"), "{zero:?}");
}
