//! An etcd that shows a certificate, asks for one, and wants to know who asks: with all of it a server serves, and without
//! a part of it says so and ends.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Server, Told, begin, end, leasehold};
use crate::trio::{PATIENCE, until_it_leads};

/// An etcd behind TLS, and everything that opens it.
struct Guarded {
    port: u16,
    etcd: Child,
    above: TempDir,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // One that ended already has nothing left to end.
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

fn works(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A key, and a certificate that a trusted one has signed.
fn certify(above: &Path, name: &str, by: Option<&str>) {
    let file = |ending: &str| above.join(format!("{name}.{ending}"));
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
        command.arg("-CA").arg(above.join(format!("{by}.pem"))).arg("-CAkey").arg(above.join(format!("{by}.key")));
        command.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    works(&mut command);
}

impl Guarded {
    fn start() -> Self {
        let above = tempfile::tempdir().expect("a directory");
        certify(above.path(), "ca", None);
        certify(above.path(), "other", None);
        for name in ["etcd", "leasehold"] {
            certify(above.path(), name, Some("ca"));
        }
        let held: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<_> = held.iter().map(|held| held.local_addr().expect("an address").port()).collect();
        let [port, peer, figures] = ports[..] else { unreachable!("three were asked for") };
        drop(held);
        let mut guarded = Self { port, etcd: Self::spawn(above.path(), port, peer, figures), above };
        // A port that was free a moment ago may be taken: then others are.
        if guarded.is_up(figures) { guarded } else { Self::start() }
    }

    fn spawn(above: &Path, port: u16, peer: u16, figures: u16) -> Child {
        let file = |name: &str| above.join(name);
        let (client, peer) = (format!("https://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd", "--name", "m", "--data-dir"]).arg(file("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("m={peer}")]);
        command.args(["--listen-metrics-urls", &format!("http://127.0.0.1:{figures}"), "--client-cert-auth"]);
        command.arg("--cert-file").arg(file("etcd.pem")).arg("--key-file").arg(file("etcd.key"));
        command.arg("--trusted-ca-file").arg(file("ca.pem")).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().expect("etcd is installed")
    }

    /// Waits until it leads. False if it ended.
    fn is_up(&mut self, figures: u16) -> bool {
        let over = Instant::now() + PATIENCE;
        while self.etcd.try_wait().expect("a child").is_none() {
            if crate::etcd_support::healthy(figures) {
                return true;
            }
            assert!(Instant::now() < over, "etcd has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    fn path(&self, name: &str) -> String {
        self.above.path().join(name).to_str().expect("a path of text").to_owned()
    }

    fn ctl_ok(&self, args: &[&str]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &format!("https://127.0.0.1:{}", self.port)]);
        command.args(["--cacert", &self.path("ca.pem"), "--cert", &self.path("leasehold.pem")]);
        works(command.args(["--key", &self.path("leasehold.key")]).args(args));
    }

    fn flags(&self, data: &str, more: &[(&str, &str)]) -> Vec<String> {
        let journal = format!("etcd://127.0.0.1:{}/kept", self.port);
        let own = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", &self.path(data)].map(str::to_owned);
        let more = more.iter().flat_map(|(flag, name)| [(*flag).to_owned(), self.path(name)]);
        own.into_iter().chain(more).collect()
    }

    /// A server that does not come to serve.
    fn refuses(&self, more: &[(&str, &str)]) -> Told {
        let mut command = leasehold(&["serve"]);
        let mut child = begin(command.args(self.flags("refused", more)));
        let over = Instant::now() + PATIENCE;
        while child.try_wait().expect("a child").is_none() {
            if Instant::now() > over {
                child.kill().expect("it runs");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = end(child);
        assert_eq!(told.err.lines().count(), 1, "one line: {told:?}");
        told
    }
}

#[test]
fn a_server_shows_its_certificate_and_its_password_to_an_etcd_that_asks() {
    let etcd = Guarded::start();
    let own = [("--etcd-ca", "ca.pem"), ("--etcd-cert", "leasehold.pem"), ("--etcd-key", "leasehold.key")];
    // In the clear, trusting somebody else, without a certificate of its own, with a file that is none.
    for wrong in [&[][..], &[("--etcd-ca", "other.pem"), own[1], own[2]], &own[..1]] {
        let told = etcd.refuses(wrong);
        assert_eq!(told.exit, 5, "{wrong:?}: {told:?}");
        assert!(told.err.contains("UNAVAILABLE"), "{wrong:?}: {told:?}");
    }
    let told = etcd.refuses(&[("--etcd-ca", "etcd.key"), own[1], own[2]]);
    assert_ne!(told.exit, 0, "{told:?}");
    let flags = etcd.flags("first", &own);
    let first = Server::with(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    until_it_leads(&first);
    let grant = first.json(&["acquire", "a", "--holder", "h", "--ttl", "60s"]);
    assert_eq!(grant["rung"], "quorum");
    drop(first);
    std::fs::write(etcd.above.path().join("password"), "secret\n").expect("written");
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
    let second = Server::with(&flags);
    until_it_leads(&second);
    assert_eq!(second.json(&["show", "a"])["held"], 1, "the same journal");
}
