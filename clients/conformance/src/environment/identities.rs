//! Certificates, bearer tokens and the access file of servers with TLS.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use leasehold_testkit::certificates::{CertificateSpec, TestAuthority, TestCertificate};
use leasehold_testkit::ports::unused_address;
use tempfile::TempDir;

use super::{LeaseServer, ServerGroup};
use crate::variables::Variables;

/// May hold every resource.
const WORKER: &str = "spiffe://example.com/worker";
/// May hold only resources below `elsewhere`.
const LIMITED: &str = "spiffe://example.com/limited";

/// Who exists, who vouches for them, and what they may do.
pub struct TestIdentities {
    directory: TempDir,
    servers: TestAuthority,
    clients: TestAuthority,
    /// Vouches for no one that a server knows.
    others: TestAuthority,
    server: TestCertificate,
    worker: TestCertificate,
    limited: TestCertificate,
    stranger: TestCertificate,
    bearer: PathBuf,
    wrong_bearer: PathBuf,
}

impl TestIdentities {
    /// Creates everything.
    pub fn create(binary: &Path) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let authority = |name: &str| TestAuthority::new(directory.path(), name);
        let (servers, clients, others) = (authority("servers"), authority("clients"), authority("others"));
        // All servers of this process have the same address, with different ports.
        let ip: IpAddr = unused_address().ip();
        let names = ["DNS:localhost".to_owned(), "IP:127.0.0.1".to_owned(), format!("IP:{ip}")];
        let server = servers.issue("server", &CertificateSpec::server(&names.each_ref().map(String::as_str)));
        let client = |authority: &TestAuthority, name: &str, id: &str| {
            authority.issue(name, &CertificateSpec::client(&[&format!("URI:{id}")]))
        };
        let worker = client(&clients, "worker", WORKER);
        let limited = client(&clients, "limited", LIMITED);
        let stranger = client(&others, "stranger", WORKER);
        let (bearer, wrong_bearer) = (directory.path().join("ci.token"), directory.path().join("wrong.token"));
        let uid = rustix::process::getuid().as_raw();
        let grant = |principal: &str, role: &str, prefix: &str| {
            format!("[[grant]]\nprincipal = \"{principal}\"\nrole = \"{role}\"\nprefix = \"{prefix}\"\n\n")
        };
        let access = [
            grant(&format!("uid:{uid}"), "admin", ""),
            grant(WORKER, "holder", ""),
            grant(LIMITED, "holder", "elsewhere"),
        ];
        std::fs::write(directory.path().join("access.toml"), access.concat())?;
        let at = |path: &Path| path.to_string_lossy().into_owned();
        let create = |name: &str, out: &Path, more: &[&str]| {
            let dir = at(directory.path());
            let words = ["bearer", "create", name, "--dir", &dir, "--out", &at(out)].map(str::to_owned);
            let more = more.iter().map(|word| (*word).to_owned());
            LeaseServer::run_cli(binary, "", &words.into_iter().chain(more).collect::<Vec<_>>())
        };
        create("ci", &bearer, &["--role", "holder", "--prefix", ""])?;
        let token = std::fs::read_to_string(&bearer)?;
        // The same shape, and no token that the server knows.
        let other: String = token.trim().chars().rev().collect();
        std::fs::write(&wrong_bearer, other)?;
        #[cfg(unix)]
        std::fs::set_permissions(&wrong_bearer, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(Self { directory, servers, clients, others, server, worker, limited, stranger, bearer, wrong_bearer })
    }

    /// Starts a server with TLS that knows these identities.
    pub fn serve(&self, binary: &Path) -> io::Result<ServerGroup> {
        let at = |path: &Path| path.to_string_lossy().into_owned();
        let file = |name: &str| at(&self.directory.path().join(name));
        let flags = [
            ("--tls-cert", at(&self.server.cert)),
            ("--tls-key", at(&self.server.key)),
            ("--client-ca", format!("example.com={}", at(&self.clients.cert))),
            ("--access", file("access.toml")),
            ("--bearers", file("bearers.toml")),
        ];
        let flags: Vec<_> = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        ServerGroup::with_flags(binary, &flags)
    }

    /// Sets the paths as variables of a scenario.
    pub fn set_variables(&self, variables: &mut Variables) {
        let files = [
            ("ca", &self.servers.cert),
            ("wrong_ca", &self.others.cert),
            ("worker_cert", &self.worker.cert),
            ("worker_key", &self.worker.key),
            ("limited_cert", &self.limited.cert),
            ("limited_key", &self.limited.key),
            ("stranger_cert", &self.stranger.cert),
            ("stranger_key", &self.stranger.key),
            ("bearer", &self.bearer),
            ("wrong_bearer", &self.wrong_bearer),
        ];
        for (name, path) in files {
            variables.set(name, path.to_string_lossy().into_owned());
        }
    }
}
