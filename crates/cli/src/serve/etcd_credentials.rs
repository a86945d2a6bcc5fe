//! Credentials and TLS files for etcd, from the settings.

use std::net::IpAddr;
use std::path::PathBuf;

use leasehold::{Address, Error};
use leasehold_server::credential_file;
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
    /// Whether a password without TLS, and an etcd whose authentication can be bypassed, are accepted.
    pub insecure: bool,
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

    /// Rejects a password that would travel over a network in clear text.
    fn check_transport(&self, endpoints: &[Address]) -> Result<(), Error> {
        let remote = endpoints.iter().find(|endpoint| !is_loopback(endpoint));
        match remote.filter(|_| self.user.is_some() && self.ca.is_none() && !self.insecure) {
            None => Ok(()),
            Some(endpoint) => {
                let message = format!(
                    "etcd_ca is required to send the password of etcd_user to {endpoint}; set it to the CA certificate of etcd, or pass \
                     --insecure-etcd to send the password without TLS"
                );
                Err(Error::config("etcd_ca", message))
            }
        }
    }

    /// Reads the password file, checks that the key is private, and returns the connection options.
    pub fn read(&self, endpoints: &[Address]) -> Result<EtcdEndpoints, Error> {
        self.check_transport(endpoints)?;
        let password = |path: &PathBuf| {
            let refused =
                |message: String| Error::config("etcd_password_file", format!("etcd_password_file: {message}"));
            let bytes = credential_file::read_private(path).map_err(|error| refused(error.to_string()))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| refused(format!("{} is not UTF-8 text; save it as UTF-8", path.display())))?;
            Ok::<_, Error>(text.trim_end_matches(['\r', '\n']).to_owned())
        };
        let login = match (&self.user, &self.password) {
            (Some(user), Some(path)) => Some((user.clone(), password(path)?)),
            _ => None,
        };
        if let Some((_, key)) = &self.client_cert {
            let refused = |error| Error::config("etcd_key", format!("etcd_key: {error}"));
            credential_file::read_private(key).map_err(refused)?;
        }
        let tls = self.ca.clone().map(|ca| EtcdTls { ca, client: self.client_cert.clone() });
        Ok(EtcdEndpoints { endpoints: endpoints.iter().map(ToString::to_string).collect(), login, tls })
    }
}

/// Whether an endpoint is on this machine.
fn is_loopback(endpoint: &Address) -> bool {
    let host = endpoint.as_str().rsplit_once(':').map_or("", |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_the_machine_only_over_tls_or_if_allowed() {
        let plain = EtcdCredentialFiles {
            user: Some("leasehold".into()),
            password: Some("password".into()),
            ca: None,
            client_cert: None,
            quota: ByteSize(0),
            insecure: false,
        };
        let endpoints =
            |text: &str| text.split(',').map(|one| Address::parse(one).expect("an address")).collect::<Vec<_>>();
        for local in ["127.0.0.1:2379", "localhost:2379", "[::1]:2379,127.0.0.2:1"] {
            assert!(plain.check_transport(&endpoints(local)).is_ok(), "{local}");
        }
        for remote in
            ["10.0.0.1:2379", "127.0.0.1:2379,etcd-2.example:2379", "localhost.example:1", "[2001:db8::1]:2379"]
        {
            let refused = plain.check_transport(&endpoints(remote)).expect_err(remote).to_string();
            assert!(refused.contains("etcd_ca") && refused.contains("--insecure-etcd"), "{refused}");
            let with_tls = EtcdCredentialFiles { ca: Some("ca.pem".into()), ..plain.clone() };
            assert!(with_tls.check_transport(&endpoints(remote)).is_ok());
            let allowed = EtcdCredentialFiles { insecure: true, ..plain.clone() };
            assert!(allowed.check_transport(&endpoints(remote)).is_ok());
            let without_user = EtcdCredentialFiles { user: None, password: None, ..plain.clone() };
            assert!(without_user.check_transport(&endpoints(remote)).is_ok());
        }
    }
}
