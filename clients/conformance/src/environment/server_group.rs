//! The servers of an environment: one, or three over etcd. Requests of the runner go to the one that leads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};
use leasehold_testkit::process::TIMEOUT;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::LeaseServer;
use crate::http_request::{self, RunnerResponse};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Servers that share one journal.
pub struct ServerGroup {
    binary: PathBuf,
    servers: Vec<Mutex<LeaseServer>>,
    /// Index of the server that led last.
    last_leader: Mutex<usize>,
    _etcd: Option<(Mutex<EtcdCluster>, TempDir)>,
}

impl ServerGroup {
    /// One server on a file journal.
    pub fn one(binary: &Path) -> io::Result<Self> {
        Self::with_flags(binary, &[])
    }

    /// One server with additional flags.
    pub fn with_flags(binary: &Path, flags: &[String]) -> io::Result<Self> {
        let servers = vec![Mutex::new(LeaseServer::start(binary, flags)?)];
        Ok(Self { binary: binary.to_owned(), servers, last_leader: Mutex::new(0), _etcd: None })
    }

    /// Three servers over one etcd.
    pub fn three(binary: &Path) -> io::Result<Self> {
        let directory = leasehold_testkit::temp_dir::in_memory()?;
        let etcd = EtcdCluster::start_in(directory.path(), EtcdOptions::default())?;
        let journal = format!("etcd://{}/conformance", etcd.endpoints().join(","));
        let flags = ["--journal", &journal, "--etcd-lease", "2"].map(str::to_owned);
        let start = |_| LeaseServer::start(binary, &flags).map(Mutex::new);
        let servers = (0..3).map(start).collect::<io::Result<_>>()?;
        let etcd = Some((Mutex::new(etcd), directory));
        let group = Self { binary: binary.to_owned(), servers, last_leader: Mutex::new(0), _etcd: etcd };
        group.leader()?;
        Ok(group)
    }

    /// Addresses of all servers, also of those that are down.
    pub fn addresses(&self) -> Vec<String> {
        (0..self.servers.len()).map(|at| self.server(at).address.clone()).collect()
    }

    /// One of the servers.
    pub fn server(&self, at: usize) -> MutexGuard<'_, LeaseServer> {
        self.servers[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a server leads, and returns its index.
    pub fn leader(&self) -> io::Result<usize> {
        let deadline = Instant::now() + TIMEOUT;
        let mut last = self.last_leader.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let count = self.servers.len();
            if let Some(at) = (0..count).map(|step| (*last + step) % count).find(|at| self.server(*at).is_ready()) {
                *last = at;
                return Ok(at);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("no server leads"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The server that `which` names: `leader`, `standby` or an index.
    pub fn find(&self, which: &Value) -> io::Result<usize> {
        match which {
            Value::String(name) if name == "leader" => self.leader(),
            Value::String(name) if name == "standby" => Ok((self.leader()? + 1) % self.servers.len()),
            Value::Number(at) => Ok(usize::try_from(at.as_u64().unwrap_or(0)).unwrap_or(0) % self.servers.len()),
            _ => Ok(0),
        }
    }

    /// Sends a request to the server that leads.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<RunnerResponse> {
        let at = *self.last_leader.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = self.server(at).endpoint();
        match http_request::send(&endpoint, method, path, body) {
            Ok(response) if response.status != 503 => Ok(response),
            _ => {
                let endpoint = self.server(self.leader()?).endpoint();
                http_request::send(&endpoint, method, path, body)
            }
        }
    }

    /// How the leader sees a resource. One without any state is free.
    pub fn view(&self, resource: &str) -> io::Result<Value> {
        let response = self.request("GET", &format!("/v1/leases/{resource}"), None)?;
        match response.status {
            200 => Ok(response.json()),
            404 => Ok(json!({ "held": 0, "waiters": 0, "leases": [], "draining": false })),
            status => Err(io::Error::other(format!("status {status}: {}", response.text))),
        }
    }

    /// Runs a command of the operator.
    pub fn run_cli(&self, words: &[String]) -> io::Result<String> {
        self.leader()?;
        LeaseServer::run_cli(&self.binary, &self.addresses().join(","), words)
    }
}
