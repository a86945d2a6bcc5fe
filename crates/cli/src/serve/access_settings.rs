//! Settings that decide who may connect and act: TLS files, the access file, the key directory and the unix socket.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use leasehold::Error;
use leasehold_server::keys::{KeyError, KeySource};
use leasehold_server::sealing::TokenSealer;
use leasehold_server::server::SocketConfig;
use leasehold_server::transport::tls::{ClientCa, TlsError, TlsHandle, TlsSettings};
use leasehold_server::transport::unix_socket;

use super::access_rules;
use super::journal_url::JournalUrl;

/// Name of the key directory in the data directory.
const DEFAULT_KEYS: &str = "keys";
/// Name of the unix socket in the data directory.
const DEFAULT_SOCKET: &str = "leasehold.sock";

/// Path of the unix socket; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath(pub PathBuf);

impl FromStr for SocketPath {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.into()))
    }
}

/// Settings of access as written by the user.
pub struct GivenAccess {
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub client_ca: Vec<ClientCa>,
    pub client_crl: Vec<PathBuf>,
    pub access: Option<PathBuf>,
    pub keys: Option<PathBuf>,
    pub socket: Option<SocketPath>,
}

/// Resolved settings of access.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessSettings {
    pub tls: Option<TlsSettings>,
    /// The access file.
    pub access: Option<PathBuf>,
    pub keys: KeySource,
    pub socket: Option<SocketConfig>,
}

impl AccessSettings {
    /// Resolves the settings, and rejects incomplete combinations.
    pub fn resolve(given: GivenAccess, journal: &JournalUrl, data: &Path) -> Result<Self, Error> {
        let GivenAccess { tls_cert, tls_key, client_ca, client_crl, access, keys, socket } = given;
        let tls = match (tls_cert, tls_key) {
            (Some(cert), Some(key)) => Some(TlsSettings { cert, key, client_ca, client_crl }),
            (None, None) => {
                let lists = [("client_ca", !client_ca.is_empty()), ("client_crl", !client_crl.is_empty())];
                if let Some((key, _)) = lists.into_iter().find(|(_, given)| *given) {
                    let message = format!("{key} requires TLS; set tls_cert and tls_key");
                    return Err(Error::config("tls_cert", message));
                }
                None
            }
            (Some(_), None) => return Err(Error::config("tls_key", "tls_key is required with tls_cert; set both")),
            (None, Some(_)) => return Err(Error::config("tls_cert", "tls_cert is required with tls_key; set both")),
        };
        if tls.as_ref().is_some_and(|tls| tls.client_ca.is_empty()) {
            let message = "client_ca is required with tls_cert; set it to the CA certificates of the clients";
            return Err(Error::config("client_ca", message));
        }
        if tls.is_some() && access.is_none() {
            let message = "access is required with tls_cert; set it to the file that grants rights to clients";
            return Err(Error::config("access", message));
        }
        let keys = key_source(keys, access.is_some(), journal, data)?;
        Ok(Self { tls, access, keys, socket: socket_config(socket.as_ref(), journal, data)? })
    }

    /// Reads every file, as a start does.
    pub fn check_files(&self) -> Result<(), Error> {
        if let Some(tls) = &self.tls {
            TlsHandle::load(tls.clone()).map_err(|error| tls_error(&error))?;
        }
        if let Some(access) = &self.access {
            access_rules::read(access)?;
        }
        // A directory that the first start creates is not there yet.
        if self.keys.directory().is_some_and(|directory| directory.exists()) {
            self.keys.check().map_err(|error| key_error(&error))?;
        }
        self.sealer().map(drop)
    }

    /// Loads the seal keys of the key directory.
    pub fn sealer(&self) -> Result<TokenSealer, Error> {
        let Some(directory) = self.keys.directory() else { return Ok(TokenSealer::default()) };
        TokenSealer::open(directory.to_owned()).map_err(|error| Error::config("keys", error.to_string()))
    }

    /// Every setting by its key, as text.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let none = || "none".to_owned();
        let path = |path: Option<&PathBuf>| path.map_or_else(none, |path| path.display().to_string());
        let list = |items: Vec<String>| if items.is_empty() { none() } else { items.join(",") };
        let bundle = |ca: &ClientCa| match &ca.domain {
            Some(domain) => format!("{domain}={}", ca.file.display()),
            None => ca.file.display().to_string(),
        };
        let tls = self.tls.as_ref();
        vec![
            ("tls_cert", path(tls.map(|tls| &tls.cert))),
            ("tls_key", path(tls.map(|tls| &tls.key))),
            ("client_ca", list(tls.iter().flat_map(|tls| &tls.client_ca).map(bundle).collect())),
            (
                "client_crl",
                list(tls.iter().flat_map(|tls| &tls.client_crl).map(|crl| crl.display().to_string()).collect()),
            ),
            ("access", path(self.access.as_ref())),
            ("keys", self.keys.directory().map_or_else(none, |directory| directory.display().to_string())),
            ("socket", path(self.socket.as_ref().map(|socket| &socket.path))),
        ]
    }
}

/// The error of a TLS file, with its setting.
pub fn tls_error(error: &TlsError) -> Error {
    Error::config(error.setting, error.to_string())
}

/// The error of a key, with its setting.
pub fn key_error(error: &KeyError) -> Error {
    Error::config("keys", error.to_string())
}

/// Where the keys are. Servers on etcd share them, so none of them creates any.
fn key_source(
    given: Option<PathBuf>,
    is_restricted: bool,
    journal: &JournalUrl,
    data: &Path,
) -> Result<KeySource, Error> {
    match (journal, given) {
        (JournalUrl::File, given) => Ok(KeySource::CreatedIn(given.unwrap_or_else(|| data.join(DEFAULT_KEYS)))),
        (JournalUrl::Memory, given) => Ok(given.map_or(KeySource::Process, KeySource::CreatedIn)),
        (JournalUrl::Etcd { .. }, Some(directory)) => Ok(KeySource::SharedIn(directory)),
        (JournalUrl::Etcd { .. }, None) if is_restricted => {
            let message = "keys is required with access on etcd; set it to a directory with the same cluster.key on every \
                           server of the cluster";
            Err(Error::config("keys", message))
        }
        // No secret is required without access rules.
        (JournalUrl::Etcd { .. }, None) => Ok(KeySource::Process),
    }
}

fn socket_config(given: Option<&SocketPath>, journal: &JournalUrl, data: &Path) -> Result<Option<SocketConfig>, Error> {
    match given {
        Some(SocketPath(path)) if path.as_os_str().is_empty() => Ok(None),
        Some(SocketPath(path)) => {
            unix_socket::check_path(path).map_err(|error| Error::config("socket", error.to_string()))?;
            Ok(Some(SocketConfig { path: path.clone(), required: true }))
        }
        None if *journal == JournalUrl::File => {
            Ok(Some(SocketConfig { path: data.join(DEFAULT_SOCKET), required: false }))
        }
        None => Ok(None),
    }
}
