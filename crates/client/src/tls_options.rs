//! The certificates with which a client connects to servers with TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};

use crate::Error;

/// Files of a client with TLS 1.3. They are read whenever a connection is made, so that replaced certificates are used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsOptions {
    /// CA certificates that verify the servers, in PEM. No other authority is trusted.
    pub ca: PathBuf,
    /// Certificate of this client, in PEM, with its intermediate certificates; none if it presents a bearer token instead.
    pub cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM.
    pub key: Option<PathBuf>,
}

/// A file cannot be used.
#[derive(Debug)]
struct TlsFileError {
    setting: &'static str,
    message: String,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)
    }
}

impl std::error::Error for TlsFileError {}

impl TlsOptions {
    /// Options of a client with a certificate.
    pub fn new(ca: impl Into<PathBuf>, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), cert: Some(cert.into()), key: Some(key.into()) }
    }

    /// Options of a client without a certificate, which presents a bearer token
    /// ([`ClientBuilder::bearer_file`](crate::ClientBuilder::bearer_file)).
    pub fn without_certificate(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), cert: None, key: None }
    }

    /// Reads the files, and fails if they cannot be used. A client without this check fails when it connects.
    pub fn check(&self) -> Result<(), Error> {
        self.load().map(drop).map_err(|error| Error::config(error.setting, error.to_string()))
    }

    /// The configuration for one connection: TLS 1.3, the configured authorities alone, and no resumption.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, std::io::Error> {
        self.load().map(Arc::new).map_err(std::io::Error::other)
    }

    /// Connects over `stream` as an HTTP/1.1 client, and returns the certificates of the server. For a diagnosis that reports each step
    /// of a connection by itself; requests of this crate use HTTP/2.
    #[doc(hidden)]
    pub async fn connect_http1(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<(impl AsyncRead + AsyncWrite + Unpin + use<>, Vec<Vec<u8>>)> {
        let mut config = self.load().map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        Ok((stream, certificates))
    }

    fn load(&self) -> Result<ClientConfig, TlsFileError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates("tls_ca", &self.ca)? {
            roots.add(authority).map_err(|error| invalid("tls_ca", &self.ca, error))?;
        }
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![
            aws_lc_rs::kx_group::X25519MLKEM768,
            aws_lc_rs::kx_group::X25519,
            aws_lc_rs::kx_group::SECP256R1,
            aws_lc_rs::kx_group::SECP384R1,
        ];
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| invalid("tls_ca", &self.ca, error))?
            .with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (None, None) => config.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("tls_cert", cert)?;
                let private_key = PrivateKeyDer::from_pem_slice(&read("tls_key", key)?)
                    .map_err(|_| not_pem("tls_key", key, "private key"))?;
                config.with_client_auth_cert(chain, private_key).map_err(|error| invalid("tls_key", key, error))?
            }
            (cert, _) => {
                let setting = if cert.is_none() { "tls_cert" } else { "tls_key" };
                let message = "a certificate and its key belong together; set both".to_owned();
                return Err(TlsFileError { setting, message });
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

fn read(setting: &'static str, file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let message = |error| format!("cannot read {}: {error}; check the path", file.display());
    std::fs::read(file).map_err(|error| TlsFileError { setting, message: message(error) })
}

/// The certificates of a PEM file; at least one.
fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    match CertificateDer::pem_slice_iter(&read(setting, file)?).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(not_pem(setting, file, "certificate")),
    }
}

fn not_pem(setting: &'static str, file: &Path, expected: &str) -> TlsFileError {
    TlsFileError { setting, message: format!("{} contains no {expected} in PEM; name a PEM file", file.display()) }
}

fn invalid(setting: &'static str, file: &Path, error: impl fmt::Display) -> TlsFileError {
    TlsFileError { setting, message: format!("{} cannot be used: {error}", file.display()) }
}
