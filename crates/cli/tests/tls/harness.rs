//! A server with TLS, its certificate authorities, and programs that connect to it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, TlsOptions};
use leasehold_testkit::certificates::{CertificateSpec, TestAuthority, TestCertificate};
use tempfile::TempDir;

use crate::support::{CommandRun, Server, TEST_TIMEOUT, leasehold, run};

/// The identity of most clients.
pub const WORKER: &str = "spiffe://example.com/jobs/worker";
/// An identity that no test removes.
pub const ADMIN: &str = "spiffe://example.com/admin";

/// A server with TLS on a free port.
pub struct TlsServer {
    pub server: Server,
    /// Vouches for `spiffe://example.com/…`.
    pub clients: TestAuthority,
    /// Vouches for DNS names.
    pub hosts: TestAuthority,
    /// Vouches for the server.
    pub servers: TestAuthority,
    pub directory: TempDir,
    /// The bundle of `example.com`.
    pub bundle: PathBuf,
    /// The revocation list of `clients`.
    pub list: PathBuf,
    pub access: PathBuf,
    flags: Vec<String>,
}

impl TlsServer {
    pub fn start() -> Self {
        Self::with_flags(&[])
    }

    /// Starts a server with additional flags.
    pub fn with_flags(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let [clients, hosts, servers] =
            ["clients", "hosts", "servers"].map(|name| TestAuthority::new(directory.path(), name));
        let own = servers
            .issue("server", &CertificateSpec::server(&["DNS:localhost", "DNS:lease.example.com", "IP:127.0.0.1"]));
        let (bundle, list, access) = (at("bundle.pem"), at("crl.pem"), at("access.toml"));
        std::fs::copy(&clients.cert, &bundle).expect("the bundle is written");
        std::fs::copy(clients.revocation_list(), &list).expect("the list is written");
        write_access(&access, &[WORKER, ADMIN, "dns:worker.example.com", "uid:0"]);
        let text = |path: &Path| path.to_str().expect("a UTF-8 path").to_owned();
        let client_ca = format!("example.com={},{}", text(&bundle), text(&hosts.cert));
        let settings = [
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--data", text(&at("journal"))),
            ("--tls-cert", text(&own.cert)),
            ("--tls-key", text(&own.key)),
            ("--client-ca", client_ca),
            ("--client-crl", text(&list)),
            ("--access", text(&access)),
        ];
        let own = settings.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let flags: Vec<String> = own.chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        let server = Self::serve(&flags);
        Self { server, clients, hosts, servers, directory, bundle, list, access, flags }
    }

    fn serve(flags: &[String]) -> Server {
        Server::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Kills the server and starts it again on its data.
    pub fn crash_and_restart(mut self) -> Self {
        self.server.signal("KILL");
        self.server.wait();
        let server = Self::serve(&self.flags);
        Self { server, ..self }
    }

    pub fn port(&self) -> &str {
        self.server.address.rsplit_once(':').expect("an address has a port").1
    }

    /// A client certificate of the trust domain.
    pub fn client(&self, name: &str, id: &str) -> TestCertificate {
        self.clients.issue(name, &CertificateSpec::client(&[&format!("URI:{id}")]))
    }

    /// Options of a client with this certificate.
    pub fn options(&self, certificate: &TestCertificate) -> TlsOptions {
        TlsOptions::new(&self.servers.cert, &certificate.cert, &certificate.key)
    }

    /// A client of the library with this certificate.
    pub fn builder(&self, certificate: &TestCertificate) -> ClientBuilder {
        let address = format!("https://{}", self.server.address);
        Client::builder(&address).expect("a valid address").tls(self.options(certificate))
    }

    /// A command with this certificate.
    pub fn command(&self, certificate: &TestCertificate, args: &[&str]) -> Command {
        let mut command = leasehold(args);
        command.env("LEASEHOLD_ADDR", format!("https://{}", self.server.address));
        command.env("LEASEHOLD_TLS_CA", &self.servers.cert);
        command.env("LEASEHOLD_TLS_CERT", &certificate.cert).env("LEASEHOLD_TLS_KEY", &certificate.key);
        command
    }

    pub fn run(&self, certificate: &TestCertificate, args: &[&str]) -> CommandRun {
        run(&mut self.command(certificate, args))
    }

    /// Sends SIGHUP, and waits until the certificates are loaded again.
    pub fn reload(&self) -> String {
        self.server.signal("HUP");
        self.server.wait_for_log("certificates ")
    }

    /// The status of a request by curl; 0 if there is no reply.
    pub fn curl(&self, certificate: Option<&TestCertificate>, args: &[&str]) -> u16 {
        let mut command = curl();
        command
            .arg("--cacert")
            .arg(&self.servers.cert)
            .args(["--resolve", &format!("localhost:{}:127.0.0.1", self.port())]);
        if let Some(TestCertificate { cert, key }) = certificate {
            command.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        let output = command.args(args).arg(format!("https://localhost:{}/v1/leases", self.port())).output();
        let output = output.expect("curl starts");
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
    }

    /// The output of `openssl s_client`, which sends one HTTP request.
    pub fn openssl(&self, certificate: Option<&TestCertificate>, args: &[&str]) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-ign_eof", "-connect", &self.server.address, "-servername", "localhost", "-CAfile"]);
        command.arg(&self.servers.cert);
        if let Some(TestCertificate { cert, key }) = certificate {
            command.arg("-cert").arg(cert).arg("-key").arg(key);
        }
        let piped = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("openssl starts");
        let request = b"GET /v1/leases HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        // A server that refuses the handshake closes the connection before it reads.
        let _ = child.stdin.take().expect("stdin is piped").write_all(request);
        let output = child.wait_with_output().expect("openssl ends");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// The value of a metric.
    pub fn metric(&self, certificate: &TestCertificate, name: &str) -> f64 {
        let text = self.metrics(certificate);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}: {text}")).parse().expect("a number")
    }

    /// The sum of a metric over all labels.
    pub fn metric_sum(&self, certificate: &TestCertificate, name: &str) -> f64 {
        let text = self.metrics(certificate);
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
        let values: Vec<f64> = lines.map(|(_, value)| value.parse().expect("a number")).collect();
        assert!(!values.is_empty(), "no metric {name}: {text}");
        values.iter().sum()
    }

    fn metrics(&self, certificate: &TestCertificate) -> String {
        let mut command = Command::new("curl");
        command.args(["-sS", "-m", "60", "--cacert"]).arg(&self.servers.cert);
        command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key);
        command.arg(format!("https://{}/metrics", self.server.address));
        let output = command.output().expect("curl starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// curl that prints only the status.
pub fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}"]);
    command
}

/// Writes an access file that lets these identities do everything.
pub fn write_access(path: &Path, admins: &[&str]) {
    let grant =
        |principal: &&str| format!("[[grant]]\nprincipal = \"{principal}\"\nrole = \"admin\"\nprefix = \"\"\n\n");
    let text: String = admins.iter().map(grant).collect();
    replace(path, text.as_bytes());
}

/// Replaces a file in one step.
pub fn replace(path: &Path, bytes: &[u8]) {
    let next = path.with_extension("next");
    std::fs::write(&next, bytes).expect("the file is writable");
    std::fs::rename(&next, path).expect("the file is replaced");
}

/// Polls until the condition holds, with a generous timeout.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
