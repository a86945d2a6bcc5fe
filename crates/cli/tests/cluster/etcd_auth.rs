//! etcd with TLS, client certificates and users: a server with all credentials serves; without one of them it exits.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::is_healthy;
use leasehold_testkit::ports::unused_address;
use leasehold_testkit::process::{TestProcess, tied_command};
use tempfile::TempDir;

use crate::harness::{TEST_TIMEOUT, wait_for_leadership};
use crate::support::{CommandRun, Server, leasehold, run, spawn_piped, wait_for_output};

/// An etcd with TLS, and the certificates for it.
struct AuthEtcd {
    address: SocketAddr,
    process: TestProcess,
    dir: TempDir,
}

fn run_ok(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates a key and a certificate, signed by the CA `by` or by itself.
fn certify(dir: &Path, name: &str, ip: IpAddr, by: Option<&str>) {
    let file = |ending: &str| dir.join(format!("{name}.{ending}"));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
    ]);
    command.args(["-subj", &format!("/CN={name}")]).arg("-keyout").arg(file("key")).arg("-out").arg(file("pem"));
    if let Some(by) = by {
        command.arg("-CA").arg(dir.join(format!("{by}.pem"))).arg("-CAkey").arg(dir.join(format!("{by}.key")));
        let name = format!("subjectAltName=IP:{ip}");
        command.args(["-addext", &name, "-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    run_ok(&mut command);
}

impl AuthEtcd {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let [address, peer, metrics] = std::array::from_fn(|_| unused_address());
        certify(dir.path(), "ca", address.ip(), None);
        certify(dir.path(), "other", address.ip(), None);
        for name in ["etcd", "leasehold"] {
            certify(dir.path(), name, address.ip(), Some("ca"));
        }
        let mut etcd = Self { address, process: Self::spawn(dir.path(), address, peer, metrics), dir };
        etcd.wait_until_healthy(metrics);
        etcd
    }

    fn spawn(dir: &Path, address: SocketAddr, peer: SocketAddr, metrics: SocketAddr) -> TestProcess {
        let file = |name: &str| dir.join(name);
        let (client, peer) = (format!("https://{address}"), format!("http://{peer}"));
        let mut command = tied_command("KILL", &["etcd", "--name", "m", "--data-dir"]);
        command.arg(file("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("m={peer}")]);
        command.args(["--listen-metrics-urls", &format!("http://{metrics}"), "--client-cert-auth"]);
        command.arg("--cert-file").arg(file("etcd.pem")).arg("--key-file").arg(file("etcd.key"));
        command.arg("--trusted-ca-file").arg(file("ca.pem")).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        command.stderr(Stdio::null());
        TestProcess::spawn_tied(command).expect("etcd is installed")
    }

    fn wait_until_healthy(&mut self, metrics: SocketAddr) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !is_healthy(metrics) {
            assert!(self.process.try_wait().is_none(), "etcd ended");
            assert!(Instant::now() < deadline, "etcd has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn ctl_ok(&self, args: &[&str]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &format!("https://{}", self.address)]);
        command.args(["--cacert", &self.path("ca.pem"), "--cert", &self.path("leasehold.pem")]);
        run_ok(command.args(["--key", &self.path("leasehold.key")]).args(args));
    }

    fn flags(&self, data: &str, more: &[(&str, &str)]) -> Vec<String> {
        let journal = format!("etcd://{}/kept", self.address);
        let own = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", &self.path(data)].map(str::to_owned);
        let more = more.iter().flat_map(|(flag, name)| [(*flag).to_owned(), self.path(name)]);
        own.into_iter().chain(more).collect()
    }

    /// Runs a server that fails to start.
    fn failed_start(&self, more: &[(&str, &str)]) -> CommandRun {
        let mut command = leasehold(&["serve"]);
        let mut child = spawn_piped(command.args(self.flags("refused", more)));
        let deadline = Instant::now() + TEST_TIMEOUT;
        while child.try_wait().expect("a child").is_none() {
            if Instant::now() > deadline {
                child.kill().expect("the process runs");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let reply = wait_for_output(child);
        assert_eq!(reply.err.lines().count(), 1, "one line: {reply:?}");
        reply
    }
}

#[test]
fn a_server_authenticates_to_etcd_with_certificate_and_password() {
    let etcd = AuthEtcd::start();
    let own = [("--etcd-ca", "ca.pem"), ("--etcd-cert", "leasehold.pem"), ("--etcd-key", "leasehold.key")];
    // Without TLS, with another CA, and without a client certificate.
    for wrong in [&[][..], &[("--etcd-ca", "other.pem"), own[1], own[2]], &own[..1]] {
        let reply = etcd.failed_start(wrong);
        assert_eq!(reply.exit, 5, "{wrong:?}: {reply:?}");
        assert!(reply.err.contains("UNAVAILABLE"), "{wrong:?}: {reply:?}");
    }
    let reply = etcd.failed_start(&[("--etcd-ca", "etcd.key"), own[1], own[2]]);
    assert_ne!(reply.exit, 0, "{reply:?}");
    let flags = etcd.flags("first", &own);
    let first = Server::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for_leadership(&first);
    let grant = first.json(&["acquire", "a", "--holder", "h", "--ttl", "60s"]);
    assert_eq!(grant["validity"], "quorum");
    drop(first);
    std::fs::write(etcd.dir.path().join("password"), "secret\n").expect("the file is writable");
    let set_mode = |file: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(etcd.dir.path().join(file), permissions).expect("the mode is set");
    };
    set_mode("password", 0o600);
    for args in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "writer"],
        &["role", "grant-permission", "writer", "readwrite", "--prefix=true", "/kept/"],
        &["user", "add", "writer:secret"],
        &["user", "grant-role", "writer", "writer"],
        &["auth", "enable"],
    ] {
        etcd.ctl_ok(args);
    }
    let flags = etcd.flags("second", &[&own[..], &[("--etcd-password-file", "password")]].concat());
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(["--etcd-user", "writer"]).collect();
    for (file, setting) in [("password", "etcd_password_file"), ("leasehold.key", "leasehold.key")] {
        set_mode(file, 0o640);
        let refused = run(leasehold(&["serve"]).args(&flags));
        assert_eq!(refused.exit, 78, "{refused:?}");
        assert!(refused.err.contains("run chmod 0600") && refused.err.contains(setting), "{refused:?}");
        set_mode(file, 0o600);
    }
    // The installed etcd lets others bypass its authentication.
    let refused = run(leasehold(&["serve"]).args(&flags));
    assert_eq!((refused.exit, refused.err.lines().count()), (78, 1), "{refused:?}");
    assert!(refused.err.contains("end the leader's lease") && refused.err.contains("--insecure-etcd"), "{refused:?}");
    let second = Server::with_flags(&[&flags[..], &["--insecure-etcd"]].concat());
    wait_for_leadership(&second);
    assert_eq!(second.json(&["show", "a"])["held"], 1, "the same journal");
}
