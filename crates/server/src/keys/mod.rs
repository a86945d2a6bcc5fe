//! Keys of a cluster: secret files that every server of the cluster has in its key directory.
//!
//! `cluster.key` makes and verifies the secrets of leases (A6). It is created with the first start over a file journal. Servers over
//! etcd share one, so that a secret stays valid after a failover.

mod cluster_key;
mod directory;

use std::path::{Path, PathBuf};

pub use cluster_key::ClusterKey;
pub use directory::{CLUSTER_KEY, KeyDirectory, KeyError, KeyProblem, new_cluster_key};

/// Where a server finds its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// Random keys of this process: secrets are valid until it ends.
    #[default]
    Process,
    /// A directory. Its cluster key is created if it is missing.
    CreatedIn(PathBuf),
    /// A directory whose files exist already, because other servers have the same ones.
    SharedIn(PathBuf),
}

impl KeySource {
    /// The directory, if there is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Process => None,
            Self::CreatedIn(path) | Self::SharedIn(path) => Some(path),
        }
    }

    /// Reads the keys that exist, and creates nothing.
    pub fn check(&self) -> Result<(), KeyError> {
        let Some(path) = self.directory() else { return Ok(()) };
        let directory = KeyDirectory::open(path)?;
        match directory.cluster_key() {
            Err(error) if error.is_missing_file() && matches!(self, Self::CreatedIn(_)) => Ok(()),
            key => key.map(drop),
        }
    }

    /// Reads the keys, and creates what is missing.
    pub fn load(&self) -> Result<ServerKeys, KeyError> {
        match self {
            Self::Process => Ok(ServerKeys { cluster: ClusterKey::random(), created: false }),
            Self::CreatedIn(path) => {
                let directory = KeyDirectory::create(path)?;
                let (cluster, created) = directory.cluster_key_or_create()?;
                Ok(ServerKeys { cluster, created })
            }
            Self::SharedIn(path) => {
                Ok(ServerKeys { cluster: KeyDirectory::open(path)?.cluster_key()?, created: false })
            }
        }
    }
}

/// The keys of a running server.
#[derive(Debug)]
pub struct ServerKeys {
    /// Makes and verifies the secrets of leases.
    pub cluster: ClusterKey,
    /// Whether the cluster key was created now, so that secrets of earlier leases are not valid.
    pub created: bool,
}
