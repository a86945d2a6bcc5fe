//! Certificates and access rules of a local server with TLS, in its temporary directory: a CA, the server and one client that may do
//! everything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use leasehold::{Endpoints, TlsOptions};
use leasehold_core::access::{AccessGrant, Role};
use leasehold_server::access::PrincipalGrant;
use time::OffsetDateTime;

use crate::file_set::{FileAccess, FileSet};
use crate::output::CommandError;
use crate::pki::{
    ACCESS, CA_CERTIFICATE, CertificateAuthority, CertificateUsage, SubjectNames, TrustDomain, grant_text,
};

const SERVER: &str = "server";
const CLIENT: &str = "client";
/// Limits of the one client, which must not end what it measures.
const LIMITS: &str = "\n[limits]\nrequests_per_second = 10000000\nleases = 134217728\nsessions = 1048576\n";

/// Name of the cluster in the identity of the server.
const CLUSTER: &str = "main";
/// Days until the certificates end.
const DAYS: i64 = 2;

/// The files that a local server and its client use.
pub struct LocalCertificates {
    directory: PathBuf,
    trust_domain: TrustDomain,
}

impl LocalCertificates {
    /// Creates the files in an existing directory. The key of the CA is dropped.
    pub fn create(directory: &Path) -> Result<Self, CommandError> {
        let now = OffsetDateTime::now_utc();
        let trust_domain: TrustDomain = TrustDomain::DEFAULT.parse().map_err(CommandError::Other)?;
        let (authority, ca) = CertificateAuthority::create(&trust_domain, now)?;
        let id = trust_domain.client(CLIENT);
        let grant = AccessGrant { role: Role::Admin, prefix: "".into() };
        let grant = PrincipalGrant { principal: id.to_string().into(), grant };
        let server = SubjectNames::server(trust_domain.server(CLUSTER), &[]);
        let certificates =
            [(SERVER, server, CertificateUsage::Server), (CLIENT, SubjectNames::client(id), CertificateUsage::Client)];
        let mut files = FileSet::default();
        files.create(directory.join(CA_CERTIFICATE), FileAccess::Public, ca.certificate)?;
        for (name, names, usage) in certificates {
            let issued = authority.issue(name, &names, usage, (now, DAYS))?;
            files.create(certificate_file(directory, name), FileAccess::Public, issued.certificate)?;
            files.create(key_file(directory, name), FileAccess::Private, issued.key)?;
        }
        files.create(directory.join(ACCESS), FileAccess::Public, grant_text(&grant) + LIMITS)?;
        files.commit()?;
        Ok(Self { directory: directory.to_owned(), trust_domain })
    }

    /// Flags of `leasehold serve`.
    pub fn flags(&self) -> [OsString; 8] {
        let directory = &self.directory;
        let mut authority = OsString::from(format!("{}=", self.trust_domain));
        authority.push(directory.join(CA_CERTIFICATE));
        [
            "--tls-cert".into(),
            certificate_file(directory, SERVER).into(),
            "--tls-key".into(),
            key_file(directory, SERVER).into(),
            "--client-ca".into(),
            authority,
            "--access".into(),
            directory.join(ACCESS).into(),
        ]
    }

    /// The endpoints with the certificate of the client.
    pub fn with_client(&self, endpoints: Endpoints) -> Endpoints {
        let directory = &self.directory;
        let (cert, key) = (certificate_file(directory, CLIENT), key_file(directory, CLIENT));
        endpoints.with_tls(TlsOptions::new(directory.join(CA_CERTIFICATE), cert, key))
    }
}

fn certificate_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pem"))
}

fn key_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.key"))
}
