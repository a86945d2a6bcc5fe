//! Probes of targets that are not what they should be: unprotected, of another cluster, hostile or silent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use leasehold_core::charter::TargetMode;

use crate::support::{CommandRun, Server, TEST_TIMEOUT, leasehold, run, text};
use crate::{Ledger, RESOURCE, declare, fence};

/// A password in the environment or in an address.
const SECRET: &str = "hunter2";

fn hole(probed: &CommandRun) -> String {
    probed.json()["targets"][0]["hole"].as_str().unwrap_or_default().to_owned()
}

fn probe(server: &Server, target: &str) -> CommandRun {
    server.run(&["coverage", RESOURCE, "--probe", "--target", target, "--json"])
}

/// A ledger whose fence was claimed.
fn claimed(server: &Server) -> Ledger {
    let ledger = Ledger::fenced(server);
    fence(server).claim(&mut ledger.open(), server.acquire(RESOURCE, "w1")).expect("the holder claims");
    ledger
}

/// Accepts connections and never replies.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

/// A listener that replies to the first request of each connection. The receiver yields the bytes of each connection, up to
/// its end.
fn replying(reply: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut bytes = vec![0; 4096];
            let length = stream.read(&mut bytes).unwrap_or(0);
            bytes.truncate(length);
            // The peer may have closed the connection.
            let _ = stream.write_all(&reply(&bytes));
            let _ = stream.read_to_end(&mut bytes);
            if sender.send(bytes).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// Asks every client for its password in clear text, as a hostile PostgreSQL server does.
fn asking_for_passwords() -> (String, Receiver<Vec<u8>>) {
    replying(|_| [b"R".as_slice(), &8_u32.to_be_bytes(), &3_u32.to_be_bytes()].concat())
}

/// Whether anyone has connected since the last call.
fn has_connection(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).expect("a mode");
    let mut connections = 0;
    loop {
        match listener.accept() {
            Ok(_) => connections += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return connections > 0,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_sqlite_target_is_green_only_while_its_guards_refuse() {
    let server = Server::start();
    let ledger = claimed(&server);
    declare(&server, "ledger", &ledger.url, TargetMode::Forced).await;
    let (any, listed) = (format!("ledger={}", ledger.url), format!("ledger={}?tables=paid", ledger.url));
    let open = probe(&server, &any);
    assert_eq!((open.exit, hole(&open)), (8, "unprotected".to_owned()), "{open:?}");
    assert!(open.err.contains(&format!("leasehold fence protect {} --resource {RESOURCE}", ledger.url)), "{open:?}");
    server.run(&["fence", "protect", &ledger.url, "--resource", RESOURCE, "--table", "paid"]).ok();
    for target in [&any, &listed] {
        let proven = probe(&server, target);
        assert_eq!((proven.exit, hole(&proven)), (0, String::new()), "{proven:?}");
        assert_eq!(proven.json()["targets"][0]["probe"]["established"], "forced", "{proven:?}");
    }
    for (removal, found) in [
        ("DROP TRIGGER leasehold_guard_paid_UPDATE", "no guard for UPDATE"),
        ("DROP TRIGGER leasehold_guard_paid_INSERT", "no guard for INSERT"),
    ] {
        ledger.open().execute_batch(removal).expect("anyone with the file can");
        let removed = probe(&server, &any);
        assert_eq!((removed.exit, hole(&removed)), (8, "unprotected".to_owned()), "{removal}: {removed:?}");
        assert!(removed.err.contains(found), "{removal}: {removed:?}");
    }
    fence(&server).unprotect(&mut ledger.open(), "paid").expect("unprotected");
    for target in [&any, &listed] {
        let removed = probe(&server, target);
        assert_eq!((removed.exit, hole(&removed)), (8, "unprotected".to_owned()), "{removed:?}");
    }
    let missing = server.run(&["fence", "protect", &ledger.url, "--resource", RESOURCE, "--table", "nowhere"]);
    assert!(missing.exit != 0 && missing.err.contains("nowhere: "), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_the_charter_are_probed_at_the_operators_address() {
    let server = Server::start();
    let ledger = claimed(&server);
    ledger.open().execute_batch("CREATE TABLE refunds (id INTEGER PRIMARY KEY)").expect("a table");
    server.run(&["fence", "protect", &ledger.url, "--resource", RESOURCE, "--table", "paid"]).ok();
    let target = format!("ledger={}", ledger.url);
    declare(&server, "ledger", &ledger.url, TargetMode::Forced).await;
    let unlisted = probe(&server, &target);
    assert_eq!((unlisted.exit, hole(&unlisted)), (0, String::new()), "{unlisted:?}");
    assert!(unlisted.err.contains("only those that the database itself protects were probed (paid)"), "{unlisted:?}");
    assert!(text(&unlisted.json()["targets"][0]["probe"]["limit"]).contains("?tables="), "{unlisted:?}");

    declare(&server, "ledger", &format!("{}?tables=paid,refunds", ledger.url), TargetMode::Forced).await;
    let open = probe(&server, &target);
    assert_eq!((open.exit, hole(&open)), (8, "unprotected".to_owned()), "{open:?}");
    assert!(open.err.contains("refunds: no guard for INSERT"), "{open:?}");
    server.run(&["fence", "protect", &ledger.url, "--resource", RESOURCE, "--table", "refunds"]).ok();
    let proven = probe(&server, &target);
    assert_eq!((proven.exit, hole(&proven)), (0, String::new()), "{proven:?}");
    assert!(!proven.err.contains("no table is listed"), "{proven:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weakened_guard_and_every_journal_mode_are_probed() {
    let server = Server::start();
    let ledger = claimed(&server);
    declare(&server, "ledger", &format!("{}?tables=paid", ledger.url), TargetMode::Forced).await;
    let target = format!("ledger={}", ledger.url);
    server.run(&["fence", "protect", &ledger.url, "--resource", RESOURCE, "--table", "paid"]).ok();
    for mode in ["delete", "truncate", "wal"] {
        ledger.open().execute_batch(&format!("PRAGMA journal_mode = {mode}")).expect("a mode");
        let proven = probe(&server, &target);
        assert_eq!((proven.exit, hole(&proven)), (0, String::new()), "{mode}: {proven:?}");
    }
    let guard = "SELECT sql FROM sqlite_schema WHERE name = 'leasehold_guard_paid_DELETE'";
    let guard: String = ledger.open().query_row(guard, [], |row| row.get(0)).expect("the guard");
    let weak = guard.replacen(" BEGIN", " WHEN OLD.rowid = 1 BEGIN", 1);
    ledger.open().execute_batch(&format!("DROP TRIGGER leasehold_guard_paid_DELETE; {weak}")).expect("weakened");
    let weakened = probe(&server, &target);
    assert_eq!((weakened.exit, hole(&weakened)), (8, "unprotected".to_owned()), "{weakened:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_a_charter_is_not_contacted_unless_the_operator_asks_for_it() {
    let server = Server::start();
    let listener = silent();
    let at = listener.local_addr().expect("an address");
    for address in [
        format!("postgres://app@{at}/shop"),
        format!("redis://{at}"),
        format!("etcd://{at}"),
        format!("nats://{at}/STREAM/subject"),
        format!("http://{at}"),
    ] {
        declare(&server, "trap", &address, TargetMode::Cooperative).await;
        let probed = server.run(&["coverage", RESOURCE, "--probe", "--json"]);
        assert_eq!((probed.exit, hole(&probed)), (8, "not_probed".to_owned()), "{probed:?}");
        assert!(probed.err.contains("--target trap=ADDRESS"), "{probed:?}");
        assert!(!has_connection(&listener), "{address} was contacted");
    }
    // A file that a charter names is not opened: the reply does not even tell whether it exists.
    for path in ["/nowhere/at/all.db", "/etc/hostname"] {
        for scheme in ["sqlite", "file"] {
            declare(&server, "trap", &format!("{scheme}:{path}"), TargetMode::Cooperative).await;
            let probed = server.run(&["coverage", RESOURCE, "--probe", "--json"]);
            assert_eq!((probed.exit, hole(&probed)), (8, "not_probed".to_owned()), "{probed:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_of_the_environment_is_sent_to_an_address_in_a_charter() {
    let server = Server::start();
    let (at, received) = asking_for_passwords();
    let url = format!("postgres://app@{at}/shop");
    declare(&server, "trap", &url, TargetMode::Cooperative).await;
    let probe = |more: &[&str]| {
        let args = [&["coverage", RESOURCE, "--probe", "--timeout", "2s", "--json"][..], more].concat();
        let mut command = server.command(&args);
        command.env("PGPASSWORD", SECRET).env("PGUSER", "operator").env("AWS_SECRET_ACCESS_KEY", SECRET);
        run(&mut command)
    };
    let contains = |bytes: &[u8], word: &str| bytes.windows(word.len()).any(|part| part == word.as_bytes());
    let by_charter = probe(&["--charter-addresses"]);
    assert_eq!((by_charter.exit, hole(&by_charter)), (8, "unreachable".to_owned()), "{by_charter:?}");
    let sent = received.recv_timeout(TEST_TIMEOUT).expect("it was contacted");
    assert!(!contains(&sent, SECRET) && !contains(&sent, "operator"), "{}", String::from_utf8_lossy(&sent));
    // The operator's own address gets the operator's password.
    let by_operator = probe(&["--target", &format!("trap={url}")]);
    assert_eq!(by_operator.exit, 8, "{by_operator:?}");
    let sent = received.recv_timeout(TEST_TIMEOUT).expect("it was contacted");
    assert!(contains(&sent, SECRET), "{}", String::from_utf8_lossy(&sent));
    // Without a user in the address, the client would send the name of the operator's account.
    declare(&server, "trap", &format!("postgres://{at}/shop"), TargetMode::Cooperative).await;
    let no_user = probe(&["--charter-addresses"]);
    assert!(no_user.err.contains("names no user"), "{no_user:?}");
    assert!(received.try_recv().is_err(), "it was not contacted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_target_ends_the_probe_at_its_timeout() {
    let server = Server::start();
    let listener = silent();
    let at = listener.local_addr().expect("an address");
    for address in [
        format!("postgres://app@{at}/shop"),
        format!("redis://{at}"),
        format!("etcd://{at}"),
        format!("nats://{at}/STREAM/subject"),
        format!("http://{at}"),
    ] {
        let target = format!("store={address}");
        let args = ["coverage", RESOURCE, "--probe", "--timeout", "300ms", "--json", "--target", &target];
        let probed = server.run(&args);
        assert_eq!(probed.exit, 8, "{address}: {probed:?}");
        let probe = &probed.json()["targets"][0]["probe"];
        assert_eq!(probe["result"], "unreachable", "{address}: {probed:?}");
        assert!(text(&probe["error"]).contains("did not reply within 300ms"), "{address}: {probed:?}");
    }
    // Opening a pipe waits for its other end.
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    for scheme in ["file", "sqlite"] {
        let refused = probe(&server, &format!("store={scheme}:{}", pipe.display()));
        let probe = &refused.json()["targets"][0]["probe"];
        assert!(text(&probe["error"]).contains("file"), "{refused:?}");
        for verb in ["marks", "lost"] {
            let refused = server.run(&["fence", verb, &format!("{scheme}:{}", pipe.display())]);
            assert_eq!(refused.exit, 2, "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_another_cluster_is_a_hole_of_its_own() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let other = Server::start();
    declare(&other, "ledger", &ledger.url, TargetMode::Cooperative).await;
    let probed = probe(&other, &format!("ledger={}", ledger.url));
    assert_eq!((probed.exit, hole(&probed)), (8, "foreign".to_owned()), "{probed:?}");
    assert!(probed.err.contains(&crate::cluster(&server).to_string()), "{probed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let server = Server::start();
    let elsewhere = silent();
    let location = format!("http://{}/-/claim", elsewhere.local_addr().expect("an address"));
    let reply = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (at, received) = replying(move |_| reply.clone().into_bytes());
    declare(&server, "service", &format!("http://{at}"), TargetMode::Cooperative).await;
    let probed = probe(&server, &format!("service=http://{at}"));
    assert_eq!((probed.exit, hole(&probed)), (8, "missing".to_owned()), "{probed:?}");
    received.recv_timeout(TEST_TIMEOUT).expect("it was contacted");
    assert!(!has_connection(&elsewhere), "the token was sent elsewhere");
}

#[test]
fn targets_are_reached_over_ipv6() {
    let server = Server::start();
    let listener = TcpListener::bind("[::1]:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    for address in [
        format!("postgres://app@{at}/shop"),
        format!("redis://{at}"),
        format!("etcd://{at}"),
        format!("nats://{at}/STREAM/subject"),
        format!("http://{at}"),
    ] {
        let target = format!("store={address}");
        server.run(&["coverage", RESOURCE, "--probe", "--timeout", "300ms", "--target", &target]);
        assert!(has_connection(&listener), "{address}");
    }
}

#[test]
fn a_password_in_an_address_is_never_printed() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("plain");
    let listener = silent();
    let dead = crate::support::UNUSED_ADDRESS;
    let at = listener.local_addr().expect("an address");
    let addresses = [
        format!("postgress://app:{SECRET}@{dead}/shop"),
        format!("postgres:app:{SECRET}@{dead}/shop"),
        format!("postgres://app:{SECRET}@{dead}/shop"),
        format!("postgres://app:{SECRET}@{dead}:x/shop"),
        format!("postgres://app@{dead}/shop?{SECRET}=x"),
        format!("postgres://app@{dead}/shop?password={SECRET}"),
        format!("redis://:{SECRET}@{dead}/3"),
        format!("redis://:{SECRET}@{dead}/x"),
        format!("etcd://root:{SECRET}@{dead}/app"),
        format!("nats://app:{SECRET}@{dead}/STREAM/subject"),
        format!("nats://app:{SECRET} @{dead}/STREAM/subject"),
        format!("http://app:{SECRET}@{dead}"),
        format!("http://app:{SECRET} @{dead}"),
        format!("s3://key:{SECRET}@bucket"),
        SECRET.to_owned(),
    ];
    for address in &addresses {
        let target = format!("store={address}");
        for args in [
            vec!["fence", "marks", address],
            vec!["fence", "arm", address, "--resource", RESOURCE],
            vec!["fence", "lost", address],
            vec!["fence", "protect", address, "--resource", RESOURCE, "--table", "paid"],
            vec!["coverage", RESOURCE, "--probe", "--target", &target],
            vec!["restore", "/nowhere/at/all.backup", "--data", data, "--target", address],
        ] {
            for json in [&[][..], &["--json"]] {
                let output = server.run(&[&args[..], json].concat());
                assert!(output.exit != 0, "{output:?}");
                let printed = format!("{}{}", output.out, output.err);
                assert!(!printed.contains(SECRET), "{args:?}: {printed}");
            }
        }
    }
    let shown = server.run(&[
        "coverage",
        RESOURCE,
        "--probe",
        "--timeout",
        "300ms",
        "--json",
        "--target",
        &format!("s=redis://:{SECRET}@{at}"),
    ]);
    assert_eq!(shown.json()["targets"][0]["probe"]["address"], format!("redis://@{at}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_a_hostile_target_cannot_control_the_terminal() {
    let server = Server::start();
    let message = "SERROR\0C57P03\0M\u{1b}[2J\u{1b}[1;1Hno hole\nleasehold: 0 holes\0\0";
    let length = u32::try_from(message.len() + 4).expect("short").to_be_bytes();
    let reply = [b"E".as_slice(), &length, message.as_bytes()].concat();
    let (at, _received) = replying(move |_| reply.clone());
    let probed = server.run(&["coverage", RESOURCE, "--probe", "--target", &format!("x=postgres://app@{at}/shop")]);
    assert_eq!(probed.exit, 8, "{probed:?}");
    assert!(!probed.err.contains('\u{1b}') && !probed.err.contains("\nleasehold: 0"), "{probed:?}");
}

#[test]
fn a_target_is_named_once_and_with_an_address() {
    let server = Server::start();
    let twice = ["coverage", RESOURCE, "--probe", "--target", "a=sqlite:/x", "--target", "a=sqlite:/y"];
    server.run(&twice).fails(2, "leasehold: INVALID_ARGUMENT: --target names a twice");
    for wrong in ["a", "=sqlite:/x", "a=", "a=/x"] {
        let output = run(&mut leasehold(&["coverage", RESOURCE, "--probe", "--target", wrong]));
        assert_eq!(output.exit, 2, "{output:?}");
    }
}
