//! The files of a TLS configuration, as an operator names them.

use std::path::PathBuf;

use crate::credential_file::FileFingerprint;

/// The files of a TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificate chain of the server, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Bundles that verify client certificates, one for each trust domain.
    pub client_ca: Vec<ClientCa>,
    /// Whether a client may connect without a certificate, because its requests may present bearer tokens.
    pub certificate_optional: bool,
    /// Certificate revocation lists, in PEM.
    pub client_crl: Vec<PathBuf>,
}

/// A bundle of certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCa {
    /// The trust domain whose SPIFFE ids it verifies; none for DNS names.
    pub domain: Option<String>,
    /// The certificates, in PEM.
    pub file: PathBuf,
}

impl TlsSettings {
    /// Changes whenever one of the files does.
    pub fn stamps(&self) -> Vec<FileFingerprint> {
        let bundles = self.client_ca.iter().map(|bundle| &bundle.file);
        [&self.cert, &self.key]
            .into_iter()
            .chain(bundles)
            .chain(&self.client_crl)
            .map(|path| FileFingerprint::of(path))
            .collect()
    }
}
