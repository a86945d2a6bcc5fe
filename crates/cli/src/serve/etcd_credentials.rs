//! Credentials and TLS files for etcd, from the settings.

use std::path::PathBuf;

use leasehold::{Address, Error};
use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdTls};

use super::byte_size::ByteSize;

/// Files and options with which a server connects to etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdCredentialFiles {
    pub user: Option<String>,
    pub password: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    /// Client certificate and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    pub quota: ByteSize,
}

impl EtcdCredentialFiles {
    /// Requires a certificate and its key together.
    pub fn pair(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<(PathBuf, PathBuf)>, Error> {
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => Err(Error::config("etcd_cert", "etcd_cert and etcd_key must be set together; set both")),
        }
    }

    /// Rejects incomplete combinations.
    pub fn validate(&self) -> Result<(), Error> {
        if self.user.is_some() != self.password.is_some() {
            let message = "etcd_user and etcd_password_file must be set together; set both";
            return Err(Error::config("etcd_user", message));
        }
        if self.client_cert.is_some() && self.ca.is_none() {
            let message = "etcd_cert requires TLS; set etcd_ca to the CA certificate of etcd";
            return Err(Error::config("etcd_ca", message));
        }
        Ok(())
    }

    /// Reads the password file and returns the connection options.
    pub fn read(&self, endpoints: &[Address]) -> Result<EtcdEndpoints, Error> {
        let password = |path: &PathBuf| {
            let read = std::fs::read_to_string(path);
            let message = |error| {
                format!("cannot read etcd_password_file {}: {error}; check the path and its mode", path.display())
            };
            read.map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| Error::config("etcd_password_file", message(error)))
        };
        let login = match (&self.user, &self.password) {
            (Some(user), Some(path)) => Some((user.clone(), password(path)?)),
            _ => None,
        };
        let tls = self.ca.clone().map(|ca| EtcdTls { ca, client: self.client_cert.clone() });
        Ok(EtcdEndpoints { endpoints: endpoints.iter().map(ToString::to_string).collect(), login, tls })
    }
}
