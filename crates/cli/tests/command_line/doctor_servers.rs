//! `leasehold doctor` about servers: connections, TLS, leader, versions, clocks, fences and backups.

use leasehold_testkit::certificates::CertificateSpec;
use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::cluster::ThreeServers;
use crate::doctor::Findings;
use crate::support::{Server, leasehold, run};
use crate::tls::{ADMIN, TlsServer};

fn doctor(server: &Server) -> Findings {
    Findings::of(&mut server.command(&["doctor"]))
}

#[test]
fn a_server_in_order_has_no_error() {
    let server = Server::start();
    let found = doctor(&server);
    for check in ["connection", "health", "clock_difference", "api", "version", "leader", "journal", "coverage"] {
        assert_eq!(found.status(check), "ok", "{}", found.one(check));
    }
    assert!(found.one("leader").contains(&server.address));
    assert!(found.one("version").contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(found.run.exit, 0, "a warning is no error: {:?}", found.run);
}

#[test]
fn a_stopped_server_and_a_missing_one_have_different_findings() {
    let server = Server::start();
    server.signal("STOP");
    let stopped = Findings::of(&mut server.command(&["doctor", "--timeout", "300ms"]));
    assert_eq!(stopped.status("connection"), "ok", "the kernel accepts connections");
    assert!(
        stopped.one("health").starts_with("error: no answer from /readyz: no reply within 300 ms"),
        "{}",
        stopped.one("health")
    );
    assert_eq!(
        (stopped.status("api"), stopped.status("leader"), stopped.run.exit),
        ("not_checked".into(), "not_checked".into(), 8)
    );
    server.signal("CONT");
    assert_eq!(doctor(&server).status("health"), "ok");
    server.signal("KILL");
    let missing = doctor(&server);
    assert!(
        missing.one("connection").starts_with("error: cannot connect: ") && missing.run.exit == 8,
        "{:?}",
        missing.run
    );
    let unknown = Findings::of(&mut leasehold(&["doctor", "--addr", "no-such-host.invalid:1", "--timeout", "20s"]));
    assert!(
        unknown.one("connection").starts_with("error: the name cannot be resolved: "),
        "{}",
        unknown.one("connection")
    );
    let wrong = Findings::of(&mut leasehold(&["doctor", "--addr", "nonsense"]));
    assert!(wrong.one("connection").starts_with("error: addr: "), "{}", wrong.one("connection"));
}

#[test]
fn each_failure_of_tls_has_its_own_next_step() {
    let server = TlsServer::start();
    let admin = server.client("admin", ADMIN);
    let doctor = |args: &[&str]| Findings::of(&mut server.command(&admin, &[&["doctor"], args].concat()));
    let good = doctor(&[]);
    for check in ["connection", "tls", "health", "api", "version", "leader"] {
        assert_eq!(good.status(check), "ok", "{}", good.one(check));
    }
    assert!(
        good.all("certificate").len() >= 3,
        "of the server, of the client and of the CA: {:?}",
        good.all("certificate")
    );

    let wrong_ca = doctor(&["--tls-ca", server.hosts.cert.to_str().expect("a UTF-8 path")]);
    assert!(
        wrong_ca.one("tls").starts_with("error: ") && wrong_ca.one("tls").contains("pass --tls-ca with the CA"),
        "{}",
        wrong_ca.one("tls")
    );
    assert_eq!(wrong_ca.status("leader"), "not_checked");

    let stranger = server.hosts.issue("stranger", &CertificateSpec::client(&["URI:spiffe://example.com/x"]));
    let refused = Findings::of(&mut server.command(&stranger, &["doctor"]));
    let health = refused.one("health");
    assert!(health.starts_with("error: ") && health.contains("leasehold ca issue"), "{health}");

    let nobody = server.client("nobody", "spiffe://example.com/nobody");
    let denied = Findings::of(&mut server.command(&nobody, &["doctor"]));
    assert!(
        denied.one("api").starts_with("error: ") && denied.one("api").contains("--as PROFILE"),
        "{}",
        denied.one("api")
    );

    let mut plain = leasehold(&["doctor", "--addr", &server.server.address]);
    let plain = Findings::of(&mut plain).one("health");
    assert!(plain.contains("write https:// in --addr and pass --tls-ca"), "{plain}");
    let mut bare = leasehold(&["doctor", "--addr", &format!("https://{}", server.server.address)]);
    assert!(Findings::of(&mut bare).one("tls").contains("no CA certificate is given"));
    let other = Server::start();
    let mut to_plain = server.command(&admin, &["doctor"]);
    let to_plain = Findings::of(to_plain.env("LEASEHOLD_ADDR", format!("https://{}", other.address))).one("tls");
    assert!(to_plain.starts_with("error: ") && to_plain.contains("may not use TLS"), "{to_plain}");
    let name = format!("https://127.0.0.2:{}", server.port());
    let mut other_name = server.command(&admin, &["doctor"]);
    let _ = Findings::of(other_name.env("LEASEHOLD_ADDR", name));

    let ending = server.clients.issue(
        "ending",
        &CertificateSpec { seconds: Some(3 * 86_400), ..CertificateSpec::client(&[&format!("URI:{ADMIN}")]) },
    );
    let ending = Findings::of(&mut server.command(&ending, &["doctor"]));
    assert!(
        ending.all("certificate").iter().any(|found| found.starts_with("warning: it ends on ")),
        "{:?}",
        ending.all("certificate")
    );
}

/// Replaces text in replies, `skip` bytes after each `from`.
fn rewriting(server: &Server, from: &'static str, skip: usize, to: &'static str) -> TcpProxy {
    TcpProxy::rewriting(&server.address, move |bytes: &mut [u8]| {
        let starts = |at: &usize| bytes[*at..].starts_with(from.as_bytes());
        let found: Vec<_> = (0..bytes.len()).filter(starts).collect();
        for at in found {
            let at = at + from.len() + skip;
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    })
}

#[test]
fn another_clock_and_another_version_are_reported() {
    let server = Server::start();
    let through = |proxy: &TcpProxy| {
        let mut command = leasehold(&["doctor"]);
        Findings::of(command.env("LEASEHOLD_ADDR", proxy.address().to_string()))
    };
    let unknown = through(&rewriting(&server, "\r\ndate: ", 26, "CET"));
    let found = unknown.one("clock_difference");
    assert!(found.starts_with("not_checked: the reply has no date"), "{found}");
    // `Thu, 19 Nov 2026`: the year follows twelve bytes.
    for (year, direction) in [("2000", "behind"), ("2126", "ahead")] {
        let other = through(&rewriting(&server, "\r\ndate: ", 12, year)).one("clock_difference");
        assert!(
            other.starts_with("error: the clock of the server is ")
                && other.contains(&format!(" s {direction}; synchronize")),
            "{other}"
        );
    }
    let newer = through(&rewriting(&server, "version=\"", 0, "9"));
    assert!(newer.one("version").starts_with("warning: the server is 9."), "{}", newer.one("version"));
}

#[test]
fn holes_and_the_age_of_the_backup_are_reported() {
    let server = Server::start();
    assert!(doctor(&server).one("coverage").starts_with("ok: no resource has a lease"));
    assert!(doctor(&server).one("backup").starts_with("warning: the leader has sent no backup since its start"));
    server.acquire("jobs/settle", "w1");
    let undeclared = doctor(&server);
    assert!(
        undeclared
            .one("coverage")
            .starts_with("warning: holes among 1 resources: 1 no_target; run leasehold coverage jobs/settle"),
        "{}",
        undeclared.one("coverage")
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("charter.toml");
    let charter =
        "prefix = \"jobs\"\n[[charter.targets]]\nname = \"ledger\"\nat = \"sqlite:/x\"\nmode = \"cooperative\"\n";
    std::fs::write(&file, charter).expect("a file");
    server.run(&["charter", "apply", file.to_str().expect("a UTF-8 path"), "--comment", "x"]).ok();
    let hole = doctor(&server);
    assert!(
        hole.one("coverage")
            .starts_with("error: holes among 1 resources: 1 never_reported; run leasehold coverage jobs/settle"),
        "{}",
        hole.one("coverage")
    );
    assert_eq!(hole.run.exit, 8);

    let backup = directory.path().join("a.backup");
    server.run(&["backup", backup.to_str().expect("a UTF-8 path")]).ok();
    assert!(doctor(&server).one("backup").starts_with("ok: the last backup is "), "{}", doctor(&server).one("backup"));
    let data = directory.path().join("restored");
    let data = data.to_str().expect("a UTF-8 path");
    run(&mut leasehold(&["restore", backup.to_str().expect("a UTF-8 path"), "--data", data])).ok();
    let restored = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", data]);
    assert!(doctor(&restored).one("quarantine").starts_with("warning: nothing is granted for another "));
}

#[test]
fn standbys_without_their_leader_and_missing_servers_are_reported() {
    let mut cluster = ThreeServers::on(EtcdCluster::three());
    let leader = cluster.leader();
    let others: Vec<_> = (0..3).filter(|at| *at != leader).collect();
    cluster.wait_for_followers();
    let at = |addresses: &[&str]| {
        let mut command = leasehold(&["doctor", "--timeout", "10s"]);
        Findings::of(command.env("LEASEHOLD_ADDR", addresses.join(",")))
    };
    let all = at(&[&cluster.server(0).address, &cluster.server(1).address, &cluster.server(2).address]);
    assert_eq!((all.status("leader"), all.status("etcd"), all.all("addresses").len()), ("ok".into(), "ok".into(), 0));
    assert_eq!(all.all("health").iter().filter(|found| *found == "ok: the server stands by").count(), 2);
    let one = at(&[&cluster.server(leader).address]);
    assert_eq!(one.status("leader"), "ok");
    assert!(
        one.one("addresses").starts_with("warning: --addr lacks servers of the cluster: "),
        "{}",
        one.one("addresses")
    );
    let standby = at(&[&cluster.server(others[0]).address]);
    let found = standby.one("leader");
    assert!(
        found.starts_with("error: ")
            && found.contains("leads, and is none of the servers that answered; add it to --addr"),
        "{found}"
    );
    assert_eq!((standby.status("coverage"), standby.run.exit), ("not_checked".into(), 8));
    let member = (0..3).find(|member| *member != cluster.etcd.leader()).expect("a follower");
    cluster.etcd.kill(member);
    let leader = cluster.leader();
    let failing = at(&[&cluster.server(leader).address]);
    assert!(failing.one("etcd").starts_with("warning: members of etcd do not respond"), "{}", failing.one("etcd"));
}
