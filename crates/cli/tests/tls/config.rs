//! Settings of TLS: each mistake is a typed error that names the setting and the next step.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use leasehold_testkit::certificates::{CertificateSpec, TestAuthority};

use crate::harness::write_access;
use crate::support::{leasehold, run};

/// Valid files, and a configuration file of them.
struct ConfigDir {
    directory: tempfile::TempDir,
    servers: TestAuthority,
}

impl ConfigDir {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let servers = TestAuthority::new(directory.path(), "servers");
        servers.issue("server", &CertificateSpec::server(&["DNS:localhost"]));
        write_access(&directory.path().join("access.toml"), &["uid:0"]);
        Self { directory, servers }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    /// The valid settings, with some replaced. An empty value removes a setting.
    fn write(&self, replaced: &[(&str, &str)]) -> String {
        let valid = [
            ("listen", "\"127.0.0.1:0\"".to_owned()),
            ("journal", "\"memory\"".to_owned()),
            ("tls_cert", format!("{:?}", self.path("servers/server.pem"))),
            ("tls_key", format!("{:?}", self.path("servers/server.key"))),
            ("client_ca", format!("[\"example.com={}\"]", self.path("servers/ca.pem"))),
            ("access", format!("{:?}", self.path("access.toml"))),
        ];
        let mut text = String::new();
        for (key, value) in &valid {
            let value = replaced.iter().find(|(other, _)| other == key).map_or(value.as_str(), |(_, value)| value);
            if !value.is_empty() {
                text += &format!("{key} = {value}\n");
            }
        }
        for (key, value) in replaced.iter().filter(|(key, _)| valid.iter().all(|(other, _)| other != key)) {
            text += &format!("{key} = {value}\n");
        }
        let path = self.path("leasehold.toml");
        std::fs::write(&path, text).expect("the file is writable");
        path
    }

    /// The error of both the check and a start.
    #[track_caller]
    fn refused(&self, replaced: &[(&str, &str)], setting: &str, message: &str) {
        let config = self.write(replaced);
        for args in [&["config", "check", &config][..], &["serve", "--config", &config]] {
            let result = run(&mut leasehold(args)).fails(78, "leasehold: CONFIG{");
            assert!(result.err.contains(&format!("{setting}}}: ")), "{setting}: {result:?}");
            assert!(result.err.contains(message), "{setting}: {result:?}");
            assert_eq!(result.err.lines().count(), 1, "{result:?}");
        }
    }
}

fn set_mode(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the mode is set");
}

#[test]
fn valid_settings_are_accepted_and_printed() {
    let dir = ConfigDir::new();
    let config = dir.write(&[("socket", "\"\"")]);
    let body = run(&mut leasehold(&["config", "check", &config, "--json"])).ok().json();
    assert_eq!(body["client_ca"], format!("example.com={}", dir.path("servers/ca.pem")));
    assert_eq!((&body["client_crl"], &body["socket"]), (&"none".into(), &"none".into()));
    assert_eq!(body["tls_cert"], dir.path("servers/server.pem"));
}

#[test]
fn incomplete_settings_are_refused() {
    let dir = ConfigDir::new();
    dir.refused(&[("tls_cert", "")], "tls_cert", "tls_cert is required with tls_key");
    dir.refused(&[("tls_key", "")], "tls_key", "tls_key is required with tls_cert");
    dir.refused(&[("client_ca", "")], "client_ca", "client_ca is required with tls_cert");
    dir.refused(&[("client_ca", "[]")], "client_ca", "client_ca is required with tls_cert");
    dir.refused(&[("access", "")], "access", "access is required with tls_cert");
    dir.refused(&[("tls_cert", ""), ("tls_key", "")], "tls_cert", "client_ca requires TLS");
    dir.refused(&[("client_ca", "[\"Example=x.pem\"]")], "client_ca", "is not a trust domain");
    dir.refused(&[("client_ca", "[\"example=\"]")], "client_ca", "names no file");
    dir.refused(&[("client_ca", "\"x.pem\"")], "client_ca", "invalid type");
    let twice = format!("[\"a={0}\", \"a={0}\"]", dir.path("servers/ca.pem"));
    dir.refused(&[("client_ca", &twice)], "client_ca", "two bundles for the trust domain a");
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let dir = ConfigDir::new();
    let quoted = |name: &str| format!("{:?}", dir.path(name));
    std::fs::write(dir.path("text"), "no certificate").expect("the file is writable");
    let list = |name: &str| format!("[\"{}\"]", dir.path(name));
    dir.refused(&[("tls_cert", &quoted("missing"))], "tls_cert", "does not exist; check the path");
    dir.refused(&[("tls_cert", &quoted("servers"))], "tls_cert", "is not a regular file");
    dir.refused(&[("tls_cert", &quoted("text"))], "tls_cert", "contains no certificate in PEM");
    dir.refused(&[("tls_key", &quoted("missing"))], "tls_key", "does not exist");
    dir.refused(&[("client_ca", &list("missing"))], "client_ca", "does not exist");
    dir.refused(&[("client_ca", &list("text"))], "client_ca", "contains no certificate in PEM");
    dir.refused(&[("client_ca", &list("servers/server.pem"))], "client_ca", "not of an authority");
    dir.refused(&[("client_crl", &list("missing"))], "client_crl", "does not exist");
    dir.refused(&[("client_crl", &list("text"))], "client_crl", "contains no certificate revocation list");
    let key = dir.path("servers/server.key");
    set_mode(&dir.path("text"), 0o600);
    dir.refused(&[("tls_key", &quoted("text"))], "tls_key", "contains no private key in PEM");
    for mode in [0o644, 0o640, 0o660] {
        set_mode(&key, mode);
        dir.refused(&[], "tls_key", "run chmod 0600");
    }
    set_mode(&key, 0o600);
    let other = dir.servers.issue("other", &CertificateSpec::server(&["DNS:localhost"]));
    dir.refused(&[("tls_key", &format!("{:?}", other.key))], "tls_key", "is not the key of the certificate");
    let expired =
        CertificateSpec { validity: Some(("20200101000000Z", "20200201000000Z")), ..CertificateSpec::server(&[]) };
    let expired = dir.servers.issue("expired", &expired);
    let pair = |cert: &Path, key: &Path| [("tls_cert", format!("{cert:?}")), ("tls_key", format!("{key:?}"))];
    let [cert, key] = pair(&expired.cert, &expired.key);
    dir.refused(&[(cert.0, &cert.1), (key.0, &key.1)], "tls_cert", "expired ");
    let later =
        CertificateSpec { validity: Some(("20990101000000Z", "20990201000000Z")), ..CertificateSpec::server(&[]) };
    let later = dir.servers.issue("later", &later);
    let [cert, key] = pair(&later.cert, &later.key);
    dir.refused(&[(cert.0, &cert.1), (key.0, &key.1)], "tls_cert", "is valid only in ");
    chown(dir.path("servers/server.key"), Some(4321), None).expect("the test runs as root");
    dir.refused(&[], "tls_key", "belongs to uid 4321");
}

#[test]
fn a_server_listens_beyond_loopback_with_tls_and_not_without() {
    let dir = ConfigDir::new();
    let config = dir.write(&[("listen", "\"0.0.0.0:0\"")]);
    run(&mut leasehold(&["config", "check", &config])).ok();
    let server = crate::support::Server::with_flags(&["--config", &config]);
    assert!(server.startup_log.iter().all(|line| !line.contains("without TLS")), "{:?}", server.startup_log);
    let plain = run(&mut leasehold(&["serve", "--ephemeral", "--listen", "0.0.0.0:0"]));
    plain.fails(78, "leasehold: CONFIG: refusing to listen on 0.0.0.0:0 without TLS; set tls_cert and tls_key");
}
