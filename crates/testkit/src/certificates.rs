//! Certificate authorities and certificates, made by the `openssl` program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Extended key usage of a client.
pub const CLIENT_AUTH: &str = "clientAuth";
/// Extended key usage of a server.
pub const SERVER_AUTH: &str = "serverAuth";

/// What a certificate contains.
#[derive(Clone, Debug)]
pub struct CertificateSpec<'a> {
    /// Common name of the subject.
    pub common_name: &'a str,
    /// Subject alternative names, as `openssl` spells them: `URI:…`, `DNS:…`, `IP:…`.
    pub names: &'a [&'a str],
    /// Extended key usages; no extension if there is none.
    pub usages: &'a [&'a str],
    /// Begin and end, as `YYYYMMDDHHMMSSZ`; valid for 30 days from a day ago if there are none.
    pub validity: Option<(&'a str, &'a str)>,
    /// Seconds from now until it ends, instead of `validity`.
    pub seconds: Option<i64>,
}

impl<'a> CertificateSpec<'a> {
    /// A client with these names.
    pub const fn client(names: &'a [&'a str]) -> Self {
        Self { common_name: "client", names, usages: &[CLIENT_AUTH], validity: None, seconds: None }
    }

    /// A server with these names.
    pub const fn server(names: &'a [&'a str]) -> Self {
        Self { common_name: "server", names, usages: &[SERVER_AUTH], validity: None, seconds: None }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct TestCertificate {
    /// The certificate, in PEM.
    pub cert: PathBuf,
    /// The key, in PEM, with mode 0600.
    pub key: PathBuf,
}

/// A certificate authority in a directory of its own.
#[derive(Debug)]
pub struct TestAuthority {
    directory: PathBuf,
    /// Its certificate, in PEM.
    pub cert: PathBuf,
}

impl TestAuthority {
    /// A new authority in a new directory.
    pub fn new(parent: &Path, name: &str) -> Self {
        let directory = parent.join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        let cert = directory.join("ca.pem");
        for (file, text) in [("index.txt", ""), ("serial", "1000\n"), ("crlnumber", "01\n"), ("ca.cnf", CONFIG)] {
            std::fs::write(directory.join(file), text).expect("the file is writable");
        }
        let authority = Self { directory, cert };
        let subject = format!("/CN={name}");
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            &subject,
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ]);
        authority
    }

    /// Issues a certificate. A later one of the same name replaces the files, each in one step.
    pub fn issue(&self, name: &str, spec: &CertificateSpec<'_>) -> TestCertificate {
        let mut extensions = String::from("basicConstraints=critical,CA:FALSE\n");
        if !spec.names.is_empty() {
            extensions += &format!("subjectAltName={}\n", spec.names.join(","));
        }
        if !spec.usages.is_empty() {
            extensions += &format!("extendedKeyUsage={}\n", spec.usages.join(","));
        }
        std::fs::write(self.directory.join("extensions"), extensions).expect("the file is writable");
        let subject = format!("/CN={}", spec.common_name);
        self.openssl(&[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "new.key",
            "-out",
            "new.csr",
            "-subj",
            &subject,
        ]);
        let (begin, end) = match (spec.validity, spec.seconds) {
            (Some((begin, end)), _) => (begin.to_owned(), end.to_owned()),
            (None, seconds) => (utc(-86_400), utc(seconds.unwrap_or(30 * 86_400))),
        };
        self.openssl(&[
            "ca",
            "-config",
            "ca.cnf",
            "-batch",
            "-notext",
            "-in",
            "new.csr",
            "-out",
            "new.pem",
            "-extfile",
            "extensions",
            "-startdate",
            &begin,
            "-enddate",
            &end,
        ]);
        let at = |file: String| self.directory.join(file);
        let issued = TestCertificate { cert: at(format!("{name}.pem")), key: at(format!("{name}.key")) };
        std::fs::rename(at("new.pem".into()), &issued.cert).expect("the file is replaced");
        std::fs::rename(at("new.key".into()), &issued.key).expect("the file is replaced");
        issued
    }

    /// Revokes a certificate and returns the new revocation list, in PEM.
    pub fn revoke(&self, certificate: &TestCertificate) -> PathBuf {
        let cert = certificate.cert.to_str().expect("a UTF-8 path");
        self.openssl(&["ca", "-config", "ca.cnf", "-revoke", cert]);
        self.revocation_list()
    }

    /// The current revocation list, in PEM.
    pub fn revocation_list(&self) -> PathBuf {
        self.openssl(&["ca", "-config", "ca.cnf", "-gencrl", "-crldays", "30", "-out", "crl.new"]);
        let list = self.directory.join("crl.pem");
        std::fs::rename(self.directory.join("crl.new"), &list).expect("the file is replaced");
        list
    }

    #[track_caller]
    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(&self.directory).output().expect("openssl starts");
        assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The time in `seconds` from now, as `openssl` spells it.
fn utc(seconds: i64) -> String {
    let output = Command::new("date").args(["-u", "+%Y%m%d%H%M%SZ", "-d", &format!("{seconds} seconds")]).output();
    let output = output.expect("date starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

const CONFIG: &str = "\
[ca]
default_ca = own
[own]
dir = .
database = ./index.txt
serial = ./serial
crlnumber = ./crlnumber
new_certs_dir = .
certificate = ./ca.pem
private_key = ./ca.key
default_md = sha256
unique_subject = no
policy = any
copy_extensions = none
default_days = 30
default_crl_days = 30
[any]
commonName = supplied
";
