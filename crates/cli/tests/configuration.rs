//! `leasehold serve` as it is set up: by flags, by a file, by SIGHUP, under a service manager.

mod support;

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{PATIENCE, Server, leasehold, run, text};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file of settings; `DATA` in it stands for a directory of this place.
    fn write(&self, settings: &str) -> String {
        let path = self.path("leasehold.toml");
        let data = self.path("data");
        std::fs::write(&path, settings.replace("DATA", data.to_str().expect("a text"))).expect("it can be written");
        path.to_str().expect("a text").to_owned()
    }
}

const FREE: &str = "listen = \"127.0.0.1:0\"\ndata = \"DATA\"\n";

#[test]
fn a_file_sets_the_server_up_and_a_flag_goes_before_it() {
    let place = Place::new();
    let config = place.write(&format!("# settings\r\n{FREE}\tmax_ttl = \"1h\"\nlog_level = \"warn\"\n"));
    let server = Server::with(&["--config", &config, "--log-level", "info"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 3_600_000);
    assert!(place.path("data/journal").exists(), "the journal is where the file says");

    let other = Place::new();
    let config = other.write(&format!("{FREE}max_ttl = \"1h\"\n"));
    let server = Server::with(&["--config", &config, "--max-ttl", "5m"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 300_000);
}

#[test]
fn a_file_that_says_what_it_may_not_is_refused_with_its_place() {
    let place = Place::new();
    let table = [
        ("lisen = \"127.0.0.1:0\"\n", ", 1, lisen}: ", "expected one of"),
        ("log = \"text\"\nlog = \"json\"\n", ", 2, log}: ", "duplicate key"),
        ("listen = 7421\n", ", 1, listen}: ", "invalid type"),
        ("\n\nlisten = \"localhost\"\n", ", 3, listen}: ", "socket address"),
        ("connections = -1\n", ", 1, connections}: ", "u32"),
        ("connections = 0\n", ", 1, connections}: ", "from 1 to 1000000"),
        ("request_rate = 0\n", ", 1, request_rate}: ", "from 1 to 10000000"),
        ("connections = \"many\"\n", ", 1, connections}: ", "invalid type"),
        ("max_ttl = 10\n", ", 1, max_ttl}: ", "invalid type"),
        ("max_ttl = \"10\"\n", ", 1, max_ttl}: ", "10s"),
        ("max_ttl = \"99ms\"\n", ", 1, max_ttl}: ", "from 100ms to 7d"),
        ("max_ttl = \"8d\"\n", ", 1, max_ttl}: ", "from 100ms to 7d"),
        ("log_bytes = 1000\n", ", 1, log_bytes}: ", "invalid type"),
        ("log_bytes = \"64\"\n", ", 1, log_bytes}: ", "like 64MiB"),
        ("log_bytes = \"1023B\"\n", ", 1, log_bytes}: ", "from 1KiB to 1TiB"),
        ("log_batches = 0\n", ", 1, log_batches}: ", "from 1 to 4294967296"),
        ("log_batches = -1\n", ", 1, log_batches}: ", "u64"),
        ("trail_bytes = \"63KiB\"\n", ", 1, trail_bytes}: ", "from 64KiB to 1024TiB"),
        ("trail_age = \"-1d\"\n", ", 1, trail_age}: ", "not a duration"),
        ("trail_age = \"999ms\"\n", ", 1, trail_age}: ", "at least 1s"),
        ("journal = \"tape\"\n", ", 1, journal}: ", "file, memory"),
        ("journal = \"etcd://127.0.0.1\"\n", ", 1, journal}: ", "is not HOST:PORT"),
        ("etcd_quota = \"1MiB\"\n", ", 1, etcd_quota}: ", "from 16MiB to 64GiB"),
        ("etcd_user = \"u\"\n", "CONFIG{etcd_user}: ", "etcd_password_file"),
        ("etcd_cert = \"c\"\n", "CONFIG{etcd_cert}: ", "name both files"),
        ("etcd_cert = \"c\"\netcd_key = \"k\"\n", "CONFIG{etcd_ca}: ", "name whom to trust"),
        ("advertise = \"http://a:1\"\n", ", 1, advertise}: ", "scheme"),
        ("log_level = \"loud\"\n", ", 1, log_level}: ", "error, warn, info, debug or trace"),
        ("insecure_listen = \"yes\"\n", ", 1, insecure_listen}: ", "invalid type"),
        ("[server]\n", ", 1, server}: ", "unknown field"),
        ("listen = \n", ", 1, listen}: ", "leasehold: CONFIG{"),
        ("\u{feff}log = \"text\"\n", "leasehold.toml}: ", "byte-order mark"),
    ];
    for (settings, place_told, says) in table {
        let config = place.write(settings);
        for args in [&["serve", "--config", &config][..], &["config", "check", &config]] {
            let told = run(&mut leasehold(args)).fails(78, "leasehold: CONFIG{");
            assert!(told.err.contains(place_told) && told.err.contains(says), "{settings:?}: {told:?}");
            assert_eq!(told.err.lines().count(), 1, "{told:?}");
        }
    }
    let problem = run(&mut leasehold(&["config", "check", &place.write("lisen = 1\n"), "--json"])).problem();
    assert_eq!((&problem["code"], &problem["line"], &problem["key"]), (&"CONFIG".into(), &1.into(), &"lisen".into()));
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let place = Place::new();
    let directory = place.0.path().to_str().expect("a text").to_owned();
    let inside = format!("{}/inside", place.write("log = \"text\"\n"));
    let missing = format!("{directory}/missing.toml");
    let (large, bytes) = (place.path("large.toml"), place.path("bytes.toml"));
    std::fs::write(&large, "#".repeat((1 << 20) + 1)).expect("it can be written");
    std::fs::write(&bytes, b"log = \"\xff\"").expect("it can be written");
    let (large, bytes) = (large.to_str().expect("a text"), bytes.to_str().expect("a text"));
    let table = [
        (missing.as_str(), "is not there"),
        (&directory, "is a directory"),
        (&inside, "cannot be opened"),
        (large, "more than 1048576 bytes"),
        (bytes, "not UTF-8"),
    ];
    for (config, says) in table {
        let told = run(&mut leasehold(&["serve", "--config", config])).fails(78, "leasehold: CONFIG{");
        assert!(told.err.contains(says), "{config}: {told:?}");
    }
}

/// A figure of the server.
fn figure(server: &Server, name: &str) -> f64 {
    let figures = server.http("GET", "/metrics", "", "");
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not told: {figures}")).parse().expect("a number")
}

fn acquire_many(server: &Server, many: std::ops::Range<u32>) {
    for n in many {
        let body = r#"{"holder":"w1","ttl":"5m"}"#;
        let answer = server.http("POST", &format!("/v1/leases/many/{n}:acquire"), "", body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn a_small_log_is_gathered_often_and_nothing_is_lost() {
    for bound in ["log_bytes = \"1KiB\"\n", "log_batches = 8\n"] {
        let place = Place::new();
        let config = place.write(&format!("{FREE}{bound}"));
        let server = Server::with(&["--config", &config]);
        acquire_many(&server, 0..100);
        let over = std::time::Instant::now() + PATIENCE;
        while figure(&server, "leasehold_snapshots_total") < 2.0 {
            assert!(std::time::Instant::now() < over, "no second snapshot was taken");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server.signal("KILL");
        drop(server);
        let server = Server::with(&["--config", &config]);
        assert_eq!(server.json(&["status"])["held"], 100, "{bound}");
    }
}

#[test]
fn a_small_trail_keeps_its_newest_entries_and_they_prove_themselves() {
    let place = Place::new();
    let config = place.write(&format!("{FREE}trail_bytes = \"64KiB\"\ntrail_age = \"90d\"\n"));
    let server = Server::with(&["--config", &config]);
    acquire_many(&server, 0..300);
    let proved = server.json(&["trail", "verify"]);
    let (first, last) = (proved["first"].as_u64().expect("a number"), proved["last"].as_u64().expect("a number"));
    assert!(first > 1 && last > 300, "{proved}");
    let newest = &server.json(&["history", "--most", "1"])["entries"][0];
    assert_eq!((&newest["entry"], &newest["resource"]), (&last.into(), &"many/299".into()));
}

#[test]
fn a_check_prints_what_would_hold() {
    let place = Place::new();
    let config = place.write("max_ttl = \"1h\"\nadvertise = \"lease-1.example:7421\"\n");
    let told = run(&mut leasehold(&["config", "check", &config])).ok();
    let lines: Vec<Vec<&str>> = told.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [["max_ttl", "1h"], ["connections", "10000"], ["log_bytes", "64MiB"], ["trail_age", "unbounded"]] {
        assert!(lines.iter().any(|told| *told == line), "{line:?} in {told:?}");
    }
    let body = run(&mut leasehold(&["config", "check", &config, "--json"])).ok().json();
    assert_eq!((&body["advertise"], &body["log"]), (&"lease-1.example:7421".into(), &"text".into()));
}

#[test]
fn flags_that_cannot_be_meant_are_wrong_usage() {
    for args in [
        &["--max-ttl", "10"][..],
        &["--connections", "0"],
        &["--request-rate", "0"],
        &["--listen", "localhost"],
        &["--journal", "tape"],
        &["--journal", "etcd://127.0.0.1:2379/a b"],
        &["--log", "xml"],
        &["--log-level", "loud"],
        &["--advertise", "nowhere"],
        &["--ephemeral", "--data", "x"],
    ] {
        assert_eq!(run(&mut leasehold(&[&["serve"], args].concat())).exit, 2, "{args:?}");
    }
    let told = run(&mut leasehold(&["serve", "--journal", "etcd://127.0.0.1:2379", "--listen", "0.0.0.0:0"]));
    assert!(told.fails(78, "leasehold: CONFIG{advertise}: ").err.contains("say where they reach it"));
    let told = run(&mut leasehold(&["serve", "--ephemeral", "--listen", "0.0.0.0:0"]));
    assert!(told.fails(78, "leasehold: CONFIG: ").err.contains("--insecure-listen"));
}

#[test]
fn beyond_this_machine_it_listens_only_when_that_is_spelled_out_and_says_so() {
    let server = Server::with(&["--ephemeral", "--listen", "0.0.0.0:0", "--insecure-listen"]);
    assert!(server.said.iter().any(|line| line.contains("without TLS")), "{:?}", server.said);
}

#[test]
fn the_longest_ttl_is_fixed_at_the_first_start() {
    let place = Place::new();
    let config = place.write(FREE);
    drop(Server::with(&["--config", &config, "--max-ttl", "1m"]));
    let server = Server::with(&["--config", &config]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 60_000);
    assert!(!server.said.iter().any(|line| line.contains("max_ttl")), "nobody asked for another");
    drop(server);
    let server = Server::with(&["--config", &config, "--max-ttl", "1h"]);
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 60_000);
    assert!(server.said.iter().any(|line| line.contains("WARN") && line.contains("max_ttl stays 1m00s")));
}

#[test]
fn a_copied_directory_is_served_only_when_the_copy_is_accepted() {
    let place = Place::new();
    let config = place.write(FREE);
    let server = Server::with(&["--config", &config]);
    let token = server.acquire("a", "w1");
    drop(server);
    let copy = place.path("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(place.path("data")).arg(&copy).status();
    assert!(copied.expect("cp is there").success());
    let copy = copy.to_str().expect("a text");
    let told = run(&mut leasehold(&["serve", "--listen", "127.0.0.1:0", "--data", copy]));
    assert!(told.fails(78, "leasehold: CONFIG: ").err.contains("--accept-copy"));
    let server = Server::with(&["--listen", "127.0.0.1:0", "--data", copy, "--accept-copy"]);
    server.run(&["check", "a", "--token", &token]).ok();
}

#[test]
fn a_hang_up_reads_the_file_again_and_a_bad_file_changes_nothing() {
    let place = Place::new();
    let config = place.write(&format!("{FREE}connections = 10\n"));
    let server = Server::with(&["--config", &config]);
    place.write(&format!("{}connections = 20\nmax_ttl = \"1h\"\n", FREE.replace(":0", ":1")));
    server.signal("HUP");
    server.await_log("connections is 20 now, and was 10");
    server.await_log("listen stays 127.0.0.1:0; to make it 127.0.0.1:1, restart");
    server.await_log("max_ttl stays 10m; to make it 1h, restart");

    place.write("connections = \"none\"\n");
    server.signal("HUP");
    let told = server.await_log("the settings stay as they are");
    assert!(told.contains(", 1, connections}: "), "{told}");
    place.write(&format!("{FREE}connections = 20\nlog_level = \"warn\"\n"));
    server.signal("HUP");
    server.await_log("log_level is warn now, and was info");
    place.write(&format!("{}connections = 20\nlog_level = \"debug\"\n", FREE.replace(":0", ":3")));
    server.signal("HUP");
    server.await_log("listen stays 127.0.0.1:0; to make it 127.0.0.1:3, restart");
    place.write(&format!("{}connections = 20\nlog_level = \"warn\"\n", FREE.replace(":0", ":2")));
    server.signal("HUP");
    server.await_log("log_level is warn now, and was debug");
    server.await_log("listen stays 127.0.0.1:0; to make it 127.0.0.1:2, restart");
    server.run(&["status"]).ok();
}

#[test]
fn a_hang_up_without_a_file_stops_nothing() {
    let server = Server::with(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    server.signal("HUP");
    server.await_log("nothing to read again");
    server.run(&["status"]).ok();
}

#[test]
fn more_connections_are_let_in_without_a_restart() {
    let place = Place::new();
    let config = place.write(&format!("{FREE}connections = 1\n"));
    let server = Server::with(&["--config", &config]);
    let first = TcpStream::connect(&server.address).expect("the server listens");
    // Connections are taken in their order, so the one that only stands there has the only place.
    let refused = server.run(&["status", "--json"]);
    assert_eq!(refused.exit, 7, "{refused:?}");
    assert!(refused.err.contains("\"limit\":\"connections\",\"max\":1"), "{refused:?}");
    place.write(&format!("{FREE}connections = 2\n"));
    server.signal("HUP");
    server.await_log("connections is 2 now, and was 1");
    assert_eq!(server.run(&["status", "--json"]).ok().json()["held"], 0);
    drop(first);
}

#[test]
fn a_service_manager_is_told_of_start_reload_and_stop() {
    let place = Place::new();
    let config = place.write(FREE);
    let socket = place.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time");
    let told = || {
        let mut bytes = [0; 1_024];
        let length = manager.recv(&mut bytes).expect("the server tells");
        String::from_utf8(bytes[..length].to_vec()).expect("a text")
    };
    let mut server = Server::managed(&["--config", &config], &socket);
    assert_eq!(told(), format!("READY=1\nSTATUS=serving on {}", server.address));
    server.signal("HUP");
    let reloading = told();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("it reloads");
    assert!(since.parse::<u64>().is_ok_and(|since| since > 0), "{reloading}");
    assert!(told().starts_with("READY=1"));
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_service_manager_that_is_gone_stops_nothing() {
    let server = Server::managed(&["--ephemeral", "--listen", "127.0.0.1:0"], Path::new("/nowhere/at/all"));
    server.await_log("the service manager was not told");
    server.run(&["status"]).ok();
}

#[test]
fn the_log_is_json_when_asked_for_and_never_holds_a_token() {
    let args = ["--ephemeral", "--listen", "127.0.0.1:0", "--log", "json", "--log-level", "trace"];
    let mut server = Server::with(&args);
    let token = server.acquire("a", "w1");
    let session = server.http("POST", "/v1/sessions", "", r#"{"holder":"w2","ttl":"60s"}"#);
    let (_, body) = session.split_once("\r\n\r\n").expect("headers have an end");
    let secret = text(&serde_json::from_str::<Value>(body).expect("a JSON body")["secret"]);
    let renewed = server.http("POST", "/v1/leases/a:renew", &format!("lease-token: {token}\r\n"), "");
    assert!(renewed.starts_with("HTTP/1.1 200"), "{renewed}");
    server.run(&["release", "a", "--token", &token]).ok();
    server.run(&["release", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let said = server.everything_said();
    assert!(said.len() >= 4, "{said:?}");
    for line in &said {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let all = said.join("\n");
    assert!(all.contains("the journal is open") && all.contains("serving on ") && all.contains("stopped"), "{all}");
    assert!(!all.contains("lh1-") && !all.contains(&secret), "{all}");
}

#[test]
fn whoever_reads_the_log_may_go_away() {
    let place = Place::new();
    let socket = place.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut command = leasehold(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut server = command.env("NOTIFY_SOCKET", &socket).stderr(writer).spawn().expect("the binary was built");
    let mut bytes = [0; 1_024];
    let length = manager.recv(&mut bytes).expect("it serves");
    assert!(bytes[..length].starts_with(b"READY=1"));
    let pid = server.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there").success());
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
}
