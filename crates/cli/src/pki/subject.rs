//! What a certificate vouches for, and what it is for.

use std::net::IpAddr;

use super::names::ServerName;
use super::spiffe_id::SpiffeId;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUsage {
    Server,
    Client,
}

impl CertificateUsage {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// What a certificate vouches for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectNames {
    pub id: Option<SpiffeId>,
    /// Hosts of a server; empty for a client.
    pub hosts: Vec<ServerName>,
}

impl SubjectNames {
    /// Names of a server: its hosts, and the id of its cluster. Every server can also be reached from its own machine.
    pub fn server(id: SpiffeId, hosts: &[ServerName]) -> Self {
        let local = [
            ServerName::Dns("localhost".into()),
            ServerName::Ip(IpAddr::from([127, 0, 0, 1])),
            ServerName::Ip(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])),
        ];
        let mut all: Vec<ServerName> = Vec::new();
        for host in hosts.iter().chain(&local) {
            if !all.contains(host) {
                all.push(host.clone());
            }
        }
        Self { id: Some(id), hosts: all }
    }

    pub fn client(id: SpiffeId) -> Self {
        Self { id: Some(id), hosts: Vec::new() }
    }

    /// All names, for messages.
    pub fn host_text(&self) -> String {
        self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}
