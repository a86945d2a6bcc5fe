//! A local cluster: several servers that share a journal in a local etcd cluster.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::json::ClusterBody;
use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use super::child::ChildProcess;
use super::etcd::{LocalEtcd, is_installed, not_installed};
use super::temp_dir::TempDir;
use super::{START_TIMEOUT, failed};
use crate::output::{CommandError, error_with_code};

/// Several servers over one etcd cluster.
pub struct LocalServers {
    command: &'static str,
    servers: Vec<ClusterServer>,
    etcd: LocalEtcd,
    /// Declared after the processes, so that they end first.
    directory: ClusterDir,
}

/// One server of the cluster.
struct ClusterServer {
    process: ChildProcess,
    listening: oneshot::Receiver<String>,
    address: String,
}

/// The cluster's directory: removed at the end, or one that the user named.
pub enum ClusterDir {
    Temporary(TempDir),
    Persistent(PathBuf),
}

impl ClusterDir {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Persistent(path) => path,
        }
    }
}

impl LocalServers {
    /// Starts etcd and `servers` servers in a new temporary directory in `parent`. The first server leads.
    pub async fn start(command: &'static str, parent: &Path, servers: usize) -> Result<Self, CommandError> {
        if !is_installed() {
            return Err(error_with_code("CONFIG", &not_installed(command)));
        }
        let dir = TempDir::create(command, parent).map_err(|error| failed(command, &error))?;
        Self::start_with_dir(command, ClusterDir::Temporary(dir), servers).await
    }

    /// Starts etcd and `servers` servers in a directory that is kept.
    pub async fn start_in(command: &'static str, directory: &Path, servers: usize) -> Result<Self, CommandError> {
        if !is_installed() {
            return Err(error_with_code("CONFIG", &not_installed(command)));
        }
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(command, &format!("{}: {error}", directory.display())))?;
        let directory = directory.canonicalize();
        let directory = directory.map_err(|error| failed(command, &error.to_string()))?;
        ensure_private(&directory).map_err(|error| error_with_code("CONFIG", &format!("{command}: {error}")))?;
        Self::start_with_dir(command, ClusterDir::Persistent(directory), servers).await
    }

    async fn start_with_dir(
        command: &'static str,
        directory: ClusterDir,
        servers: usize,
    ) -> Result<Self, CommandError> {
        let etcd = LocalEtcd::start(directory.path()).await.map_err(|error| failed(command, &error))?;
        let mut all = Self { command, servers: Vec::new(), etcd, directory };
        for at in 0..servers {
            let serving = all.spawn_server(at)?;
            all.servers.push(serving);
            all.wait_listening(at).await?;
            if at == 0 {
                // The first server leads before the next one starts.
                all.wait_leader().await?;
            }
        }
        Ok(all)
    }

    fn spawn_server(&self, at: usize) -> Result<ClusterServer, CommandError> {
        let dir = self.directory.path();
        let data = dir.join(format!("server-{}", at + 1));
        let data = data.to_str().ok_or_else(|| failed(self.command, "the directory's path is not valid UTF-8"))?;
        let journal = format!("etcd://{}/leasehold", self.etcd.endpoints().join(","));
        let flags = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data];
        let (process, listening) = ChildProcess::server(dir, flags).map_err(|error| failed(self.command, &error))?;
        Ok(ClusterServer { process, listening, address: String::new() })
    }

    /// Waits until a server leads or is a standby, and stores its address.
    async fn wait_listening(&mut self, at: usize) -> Result<(), CommandError> {
        let command = self.command;
        let address = tokio::time::timeout(START_TIMEOUT, &mut self.servers[at].listening).await;
        let address = address.map_err(|_| failed(command, "a server did not start in time"))?;
        self.servers[at].address = address.map_err(|_| failed(command, "a server exited before it served"))?;
        Ok(())
    }

    /// The cluster's directory, which the caller may use too.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    pub const fn etcd(&self) -> &LocalEtcd {
        &self.etcd
    }

    /// Endpoints of all servers.
    pub fn endpoints(&self) -> Result<Endpoints, CommandError> {
        Ok(Endpoints::parse(&self.addresses().join(","))?)
    }

    pub fn addresses(&self) -> Vec<&str> {
        self.servers.iter().map(|server| server.address.as_str()).collect()
    }

    /// Process ids of the servers.
    pub fn ids(&self) -> Vec<u32> {
        self.servers.iter().map(|server| server.process.id()).collect()
    }

    /// A server's view of the cluster, if it replies.
    pub async fn cluster_view(&self, at: usize) -> Option<ClusterBody> {
        Client::from(Endpoints::parse(&self.servers[at].address).ok()?).cluster().await.ok()
    }

    /// Waits until one server reports that it leads. Returns its index.
    pub async fn wait_leader(&self) -> Result<usize, CommandError> {
        let began = Instant::now();
        loop {
            for at in 0..self.servers.len() {
                if self.cluster_view(at).await.is_some_and(|view| view.role == "leader") {
                    return Ok(at);
                }
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(failed(self.command, "no server leads"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every standby has caught up with the leader and is a candidate. Returns the leader's index.
    pub async fn wait_caught_up(&self) -> Result<usize, CommandError> {
        let leader = self.wait_leader().await?;
        let began = Instant::now();
        for at in (0..self.servers.len()).filter(|at| *at != leader) {
            loop {
                let (view, leader_view) = (self.cluster_view(at).await, self.cluster_view(leader).await);
                let caught_up = |view: &ClusterBody, leader: &ClusterBody| {
                    view.role == "standby"
                        && view.position + 1 >= leader.position
                        && view.servers.contains(&view.address)
                };
                if view.zip(leader_view).is_some_and(|(view, leader)| caught_up(&view, &leader)) {
                    break;
                }
                if began.elapsed() > START_TIMEOUT {
                    return Err(failed(self.command, "a standby does not catch up"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(leader)
    }

    /// Kills a server with SIGKILL, as a crash would.
    pub fn kill(&mut self, at: usize) {
        self.servers[at].process.kill();
    }

    /// Starts a killed server again.
    pub async fn restart(&mut self, at: usize) -> Result<(), CommandError> {
        self.servers[at] = self.spawn_server(at)?;
        self.wait_listening(at).await
    }

    pub fn process(&self, at: usize) -> &ChildProcess {
        &self.servers[at].process
    }

    /// Sends SIGTERM to all servers, and waits up to 10 s until they have exited.
    pub async fn stop(&mut self) {
        for server in &self.servers {
            server.process.terminate();
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if self.servers.iter_mut().all(|server| server.process.has_exited()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Fails if another user could plant files in a directory.
fn ensure_private(directory: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let at = directory.display();
    let metadata = directory.metadata().map_err(|error| format!("{at}: {error}"))?;
    let writable_by_others = metadata.mode() & 0o002 != 0;
    if metadata.uid() != rustix::process::geteuid().as_raw() || writable_by_others {
        return Err(format!("{at}: other users own it or can write to it; use a directory of your own"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(ensure_private(dir.path()), Ok(()));
        for mode in [0o777, 0o1777, 0o702] {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).expect("own directory");
            let refused = ensure_private(dir.path()).expect_err("others can write");
            assert!(refused.contains("use a directory of your own"), "{refused}");
        }
    }
}
