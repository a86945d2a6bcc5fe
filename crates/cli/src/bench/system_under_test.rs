//! The measured system: a remote server, a local server with a file journal, or a local cluster over etcd.

use leasehold::Endpoints;

use crate::local_cluster::servers::LocalServers;
use crate::local_cluster::{ChildProcess, LocalServer};
use crate::output::CommandError;

/// The system that a benchmark measures.
pub enum SystemUnderTest {
    /// Servers at --addr.
    Remote,
    Single(LocalServer),
    /// A local cluster, with the index of its leader.
    Cluster(LocalServers, usize),
}

impl SystemUnderTest {
    /// The local server process that decides, if any.
    pub fn process(&self) -> Option<&ChildProcess> {
        match self {
            Self::Remote => None,
            Self::Single(server) => Some(server.process()),
            Self::Cluster(servers, leader) => Some(servers.process(*leader)),
        }
    }

    /// The local cluster and the index of its leader.
    pub fn cluster_mut(&mut self) -> Option<(&mut LocalServers, &mut usize)> {
        match self {
            Self::Cluster(servers, leader) => Some((servers, leader)),
            Self::Remote | Self::Single(_) => None,
        }
    }
}

/// The endpoint of the leader.
pub fn leader_endpoint(servers: &LocalServers, leader: usize) -> Result<Endpoints, CommandError> {
    Ok(Endpoints::parse(servers.addresses()[leader])?)
}
