//! Unsuitable etcd: the server exits with one error line and its exit code, and writes nothing to etcd.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::harness::TEST_TIMEOUT;
use crate::support::{CommandRun, UNUSED_ADDRESS, leasehold, spawn_piped, wait_for_output};

// Exit codes.
const USAGE: i32 = 2;
const CONFIG: i32 = 78;
const UNAVAILABLE: i32 = 5;
const LIMIT: i32 = 7;

/// Runs a server that fails to start. It is killed after a timeout.
fn serve(etcd: &EtcdCluster, at: impl Display, prefix: &str, flags: &[&str]) -> CommandRun {
    let data = etcd.dir().join(format!("data-{prefix}"));
    let journal = format!("etcd://{at}/{prefix}");
    let mut command = leasehold(&["serve", "--journal", &journal, "--listen", "127.0.0.1:0", "--data"]);
    let mut child = spawn_piped(command.arg(data).args(flags));
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    while child.try_wait().expect("a child").is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().expect("the process runs");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    wait_for_output(child)
}

/// Checks for one line with code and next step, and that only `keys` exist under the prefix.
#[track_caller]
fn assert_refused(etcd: &EtcdCluster, prefix: &str, reply: &CommandRun, exit: i32, code: &str, keys: &str) {
    assert_eq!((reply.exit, reply.out.as_str()), (exit, ""), "{reply:?}");
    assert_eq!(reply.err.lines().count(), 1, "one line: {reply:?}");
    assert!(reply.err.contains(code) && reply.err.contains(';'), "{code} and the next step: {reply:?}");
    let left = etcd.ctl_ok(&["get", &format!("/{prefix}/"), "--prefix", "--keys-only"]);
    assert_eq!(left.trim(), keys, "nothing was written");
}

/// Version of the installed etcd.
fn own_version() -> String {
    let output = Command::new("etcd").arg("--version").output().expect("etcd is installed").stdout;
    let output = String::from_utf8(output).expect("text");
    output.lines().next().and_then(|line| line.split_whitespace().last()).expect("a version").to_owned()
}

#[test]
fn unsupported_etcd_versions_are_refused() {
    let (etcd, version) = (EtcdCluster::single(), own_version());
    let older = format!("3.3.{}", &version[4..]);
    let broken = format!("3.5.2{}", "+".repeat(version.len() - 5));
    for (prefix, reported) in [("older", older), ("broken", broken)] {
        let (version, replacement) = (version.clone(), reported.clone());
        let proxy = TcpProxy::rewriting(etcd.members[0].client, move |bytes| {
            while let Some(at) = bytes.windows(version.len()).position(|part| part == version.as_bytes()) {
                bytes[at..at + version.len()].copy_from_slice(replacement.as_bytes());
            }
        });
        let reply = serve(&etcd, proxy.address(), prefix, &[]);
        assert_refused(&etcd, prefix, &reply, USAGE, "UNSUPPORTED_VERSION", "");
        assert!(reply.err.contains(&reported) && reply.err.contains("3.5.3"), "{reply:?}");
    }
}

#[test]
fn an_unreachable_etcd_is_reported() {
    let etcd = EtcdCluster::single();
    let reply = serve(&etcd, UNUSED_ADDRESS, "nowhere", &[]);
    assert_refused(&etcd, "nowhere", &reply, UNAVAILABLE, "UNAVAILABLE", "");
    assert!(reply.err.contains("127.0.0.1:1"), "{reply:?}");
    // A stopped etcd accepts connections but does not respond.
    etcd.process(0).stop();
    let reply = serve(&etcd, etcd.members[0].client, "silent", &[]);
    etcd.process(0).resume();
    assert_refused(&etcd, "silent", &reply, UNAVAILABLE, "UNAVAILABLE", "");
}

#[test]
fn a_prefix_with_foreign_keys_is_refused_and_not_modified() {
    let etcd = EtcdCluster::single();
    etcd.ctl_ok(&["put", "/taken/by", "somebody"]);
    let reply = serve(&etcd, etcd.members[0].client, "taken", &[]);
    assert_refused(&etcd, "taken", &reply, USAGE, "WRONG_CLUSTER", "/taken/by");
    etcd.ctl_ok(&["put", "/newer/meta", "leasehold-journal 9\nid x\n"]);
    let reply = serve(&etcd, etcd.members[0].client, "newer", &[]);
    assert_refused(&etcd, "newer", &reply, USAGE, "UNSUPPORTED_VERSION", "/newer/meta");
}

#[test]
fn missing_credentials_and_permissions_are_reported() {
    let etcd = EtcdCluster::single();
    etcd.enable_auth("/kept/", &[("reader", "read")]);
    let at = etcd.members[0].client;
    let password = |name: &str, text: &str| {
        let path = etcd.dir().join(name);
        std::fs::write(&path, text).expect("the file is writable");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("the mode is set");
        path.to_str().expect("a UTF-8 path").to_owned()
    };
    let (right, wrong) = (password("right", "secret\n"), password("wrong", "geheim\n"));
    let anonymous = serve(&etcd, at, "kept", &[]);
    let unknown = serve(&etcd, at, "kept", &["--etcd-user", "reader", "--etcd-password-file", &wrong]);
    let reader =
        serve(&etcd, at, "kept", &["--etcd-user", "reader", "--etcd-password-file", &right, "--insecure-etcd"]);
    etcd.disable_auth();
    assert_refused(&etcd, "kept", &anonymous, CONFIG, "--etcd-user", "");
    assert_refused(&etcd, "kept", &unknown, CONFIG, "--etcd-user", "");
    assert_refused(&etcd, "kept", &reader, CONFIG, "readwrite", "");
    for reply in [anonymous, unknown, reader] {
        assert!(
            !reply.err.contains("secret") && !reply.err.contains("geheim"),
            "a password is never printed: {reply:?}"
        );
    }
}

#[test]
fn a_full_etcd_is_reported() {
    let flags = ["--quota-backend-bytes", "1000000"].map(str::to_owned).to_vec();
    let etcd = EtcdCluster::start(EtcdOptions { flags, ..EtcdOptions::default() });
    let put = || {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoints()[0], "put", "other"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("etcdctl is installed");
        // etcdctl may fail before it has read everything.
        let _ = child.stdin.take().expect("the stream is piped").write_all(&[b'x'; 400_000]);
        child.wait().expect("the process ends").success()
    };
    for tries in 0.. {
        assert!(tries < 1_000, "the quota of one megabyte is not reached");
        if !put() {
            break;
        }
    }
    let reply = serve(&etcd, etcd.members[0].client, "full", &[]);
    assert_refused(&etcd, "full", &reply, LIMIT, "STORAGE_FULL", "");
}
