//! A server pointed at an etcd that cannot keep its journal says why in one line, ends with the code for it, and has begun
//! nothing there.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::etcd_support::Server as Etcd;
use crate::etcd_support::proxy::Proxy;
use crate::support::{Told, begin, end, leasehold};
use crate::trio::PATIENCE;

/// Exit codes: the wrong etcd, the wrong settings for it, nobody there, no room.
const USAGE: i32 = 2;
const CONFIG: i32 = 78;
const UNAVAILABLE: i32 = 5;
const LIMIT: i32 = 7;

/// Runs a server that does not come to serve. It is ended if it does.
fn serve(etcd: &Etcd, port: u16, prefix: &str, more: &[&str]) -> Told {
    let data = etcd.above.path().join(format!("data-{prefix}"));
    let journal = format!("etcd://127.0.0.1:{port}/{prefix}");
    let mut command = leasehold(&["serve", "--journal", &journal, "--listen", "127.0.0.1:0", "--data"]);
    let mut child = begin(command.arg(data).args(more));
    let over = std::time::Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if std::time::Instant::now() > over {
            child.kill().expect("it runs");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    end(child)
}

/// One line, with its code and the next step, and nothing is left under the prefix but what was there.
#[track_caller]
fn refused(etcd: &Etcd, prefix: &str, told: &Told, exit: i32, code: &str, there: &str) {
    assert_eq!((told.exit, told.out.as_str()), (exit, ""), "{told:?}");
    assert_eq!(told.err.lines().count(), 1, "one line: {told:?}");
    assert!(told.err.contains(code) && told.err.contains(';'), "{code} and what to do: {told:?}");
    let left = etcd.ctl_ok(&["get", &format!("/{prefix}/"), "--prefix", "--keys-only"]);
    assert_eq!(left.trim(), there, "nothing was begun there");
}

/// What this etcd calls itself.
fn own_version() -> String {
    let said = Command::new("etcd").arg("--version").output().expect("etcd is installed").stdout;
    let said = String::from_utf8(said).expect("text");
    said.lines().next().and_then(|line| line.split_whitespace().last()).expect("a version").to_owned()
}

#[test]
fn versions_that_do_not_keep_what_they_promise_are_refused() {
    let (etcd, version) = (Etcd::single(), own_version());
    let older = format!("3.3.{}", &version[4..]);
    let broken = format!("3.5.2{}", "+".repeat(version.len() - 5));
    for (prefix, said) in [("older", older), ("broken", broken)] {
        let (version, told_instead) = (version.clone(), said.clone());
        let way = Proxy::telling(etcd.members[0].client, move |bytes| {
            while let Some(at) = bytes.windows(version.len()).position(|part| part == version.as_bytes()) {
                bytes[at..at + version.len()].copy_from_slice(told_instead.as_bytes());
            }
        });
        let told = serve(&etcd, way.port, prefix, &[]);
        refused(&etcd, prefix, &told, USAGE, "UNSUPPORTED_VERSION", "");
        assert!(told.err.contains(&said) && told.err.contains("3.5.3"), "{told:?}");
    }
}

#[test]
fn an_etcd_that_does_not_answer_is_told() {
    let etcd = Etcd::single();
    let told = serve(&etcd, 1, "nowhere", &[]);
    refused(&etcd, "nowhere", &told, UNAVAILABLE, "UNAVAILABLE", "");
    assert!(told.err.contains("127.0.0.1:1"), "{told:?}");
    // One that is there and says nothing.
    etcd.signal(0, "STOP");
    let told = serve(&etcd, etcd.members[0].client, "silent", &[]);
    etcd.signal(0, "CONT");
    refused(&etcd, "silent", &told, UNAVAILABLE, "UNAVAILABLE", "");
}

#[test]
fn a_prefix_that_holds_something_else_is_told_and_left_alone() {
    let etcd = Etcd::single();
    etcd.ctl_ok(&["put", "/taken/by", "somebody"]);
    let told = serve(&etcd, etcd.members[0].client, "taken", &[]);
    refused(&etcd, "taken", &told, USAGE, "WRONG_CLUSTER", "/taken/by");
    etcd.ctl_ok(&["put", "/newer/meta", "leasehold-journal 9\nid x\n"]);
    let told = serve(&etcd, etcd.members[0].client, "newer", &[]);
    refused(&etcd, "newer", &told, USAGE, "UNSUPPORTED_VERSION", "/newer/meta");
}

#[test]
fn a_server_that_may_not_write_or_is_not_known_is_told() {
    let etcd = Etcd::single();
    etcd.know_only(&[("reader", "read")]);
    let port = etcd.members[0].client;
    let password = |name: &str, text: &str| {
        let path = etcd.above.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a path of text").to_owned()
    };
    let (right, wrong) = (password("right", "secret\n"), password("wrong", "geheim\n"));
    let nobody = serve(&etcd, port, "kept", &[]);
    let unknown = serve(&etcd, port, "kept", &["--etcd-user", "reader", "--etcd-password-file", &wrong]);
    let reader = serve(&etcd, port, "kept", &["--etcd-user", "reader", "--etcd-password-file", &right]);
    etcd.know_everybody();
    refused(&etcd, "kept", &nobody, CONFIG, "--etcd-user", "");
    refused(&etcd, "kept", &unknown, CONFIG, "--etcd-user", "");
    refused(&etcd, "kept", &reader, CONFIG, "readwrite", "");
    for told in [nobody, unknown, reader] {
        assert!(!told.err.contains("secret") && !told.err.contains("geheim"), "a password is never told: {told:?}");
    }
}

#[test]
fn a_full_etcd_is_told() {
    let etcd = Etcd::start(1, &["--quota-backend-bytes", "1000000"]);
    let put = || {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.entry().endpoints[0], "put", "other"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("etcdctl is installed");
        // It may have been refused before it has read all.
        let _ = child.stdin.take().expect("it is piped").write_all(&[b'x'; 400_000]);
        child.wait().expect("it ends").success()
    };
    for tries in 0.. {
        assert!(tries < 1_000, "a bound of a megabyte is reached");
        if !put() {
            break;
        }
    }
    let told = serve(&etcd, etcd.members[0].client, "full", &[]);
    refused(&etcd, "full", &told, LIMIT, "STORAGE_FULL", "");
}
