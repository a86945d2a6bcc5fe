//! The name of the cluster in the certificates of its servers: `spiffe://TRUST-DOMAIN/leasehold/CLUSTER` (A17).
//!
//! A client learns it from the servers of its own list. A server that only another server named must show the same name before
//! anything is sent to it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Most names that are kept; the servers of one cluster have one.
const MAX_NAMES: usize = 16;

/// Names of the cluster, as the servers of a client's own list showed them.
#[derive(Debug, Default)]
pub(crate) struct ClusterNames(Mutex<BTreeSet<String>>);

impl ClusterNames {
    /// Remembers the names in the certificate of a server of the client's own list.
    pub(crate) fn learn(&self, certificate: &CertificateDer<'_>) {
        let mut names = self.names();
        for name in cluster_names(certificate) {
            if names.len() < MAX_NAMES {
                names.insert(name);
            }
        }
    }

    /// Fails unless the certificate of another server shows one of the names.
    pub(crate) fn require(&self, certificate: &CertificateDer<'_>) -> io::Result<()> {
        let names = self.names();
        match cluster_names(certificate).iter().any(|name| names.contains(name)) {
            true => Ok(()),
            false => {
                Err(io::Error::other("its certificate does not carry the name of the cluster, so nothing was sent"))
            }
        }
    }

    /// Whether no server has shown a name.
    pub(crate) fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of clusters in a certificate that was verified.
fn cluster_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    certificate.valid_uri_names().filter(|uri| is_cluster_name(uri)).map(str::to_owned).collect()
}

fn is_cluster_name(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("spiffe://") else { return false };
    match *rest.split('/').collect::<Vec<_>>() {
        [domain, "leasehold", cluster] => !domain.is_empty() && !cluster.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_a_server_is_the_name_of_a_cluster() {
        assert!(is_cluster_name("spiffe://example.com/leasehold/main"));
        for other in [
            "spiffe://example.com/leasehold",
            "spiffe://example.com/leasehold/",
            "spiffe://example.com/leasehold/main/a",
            "spiffe://example.com/jobs/leasehold",
            "spiffe:///leasehold/main",
            "https://example.com/leasehold/main",
            "",
        ] {
            assert!(!is_cluster_name(other), "{other}");
        }
        assert!(cluster_names(&CertificateDer::from(&b"no certificate"[..])).is_empty());
    }
}
