//! Where scenarios run: one server, three servers over etcd, or one server behind a fault proxy for each actor.
//!
//! Scenarios that change no server share them. The others get servers of their own.

mod fenced_service;
mod identities;
mod lease_server;
mod newer_server;
mod runtime;
mod server_group;
mod slow_link;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

pub use fenced_service::FencedService;
pub use identities::TestIdentities;
pub use lease_server::LeaseServer;
pub use newer_server::NewerServer;
pub use server_group::ServerGroup;
pub use slow_link::SlowLink;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentKind {
    /// One server.
    One,
    /// Three servers over etcd.
    Three,
    /// One server; each actor reaches it through a proxy of its own, which injects faults.
    Proxy,
}

impl EnvironmentKind {
    /// The name in scenarios and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Three => "three",
            Self::Proxy => "proxy",
        }
    }
}

/// Which server a scenario needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// Any server; it may be shared with other scenarios.
    #[default]
    Shared,
    /// A server that no other scenario uses.
    Own,
    /// A server with TLS, certificates, bearer tokens and an access file.
    Tls,
    /// A server that sends fields, values and codes of a later version.
    Newer,
}

/// Servers that scenarios share, started when the first one needs them.
pub struct SharedServers {
    binary: PathBuf,
    one: Mutex<Option<Arc<ServerGroup>>>,
    three: Mutex<Option<Arc<ServerGroup>>>,
    identities: Mutex<Option<Arc<TestIdentities>>>,
}

impl SharedServers {
    /// Nothing is started yet. `binary` is the `leasehold` program.
    pub fn new(binary: &Path) -> Self {
        let (one, three) = (Mutex::default(), Mutex::default());
        Self { binary: binary.to_owned(), one, three, identities: Mutex::default() }
    }

    /// The `leasehold` program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Servers that others may use too.
    pub fn shared(&self, kind: EnvironmentKind) -> io::Result<Arc<ServerGroup>> {
        let slot = if kind == EnvironmentKind::Three { &self.three } else { &self.one };
        started_once(slot, || self.own(kind))
    }

    /// New servers.
    pub fn own(&self, kind: EnvironmentKind) -> io::Result<ServerGroup> {
        match kind {
            EnvironmentKind::Three => ServerGroup::three(&self.binary),
            EnvironmentKind::One | EnvironmentKind::Proxy => ServerGroup::one(&self.binary),
        }
    }

    /// Certificates and tokens.
    pub fn identities(&self) -> io::Result<Arc<TestIdentities>> {
        started_once(&self.identities, || TestIdentities::create(&self.binary))
    }
}

fn started_once<T>(slot: &Mutex<Option<Arc<T>>>, start: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(started) = &*slot {
        return Ok(started.clone());
    }
    Ok(slot.insert(Arc::new(start()?)).clone())
}
