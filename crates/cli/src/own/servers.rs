//! Servers of our own over an etcd of our own, for a try-out or to be measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::json::ClusterBody;
use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use super::etcd::{Etcd, is_installed, not_installed};
use super::place::Place;
use super::process::Process;
use super::{PATIENCE, failed};
use crate::told::{Failure, coded};

/// Servers over one etcd.
pub struct Servers {
    who: &'static str,
    servers: Vec<Serving>,
    etcd: Etcd,
    /// Where everything is; after the processes, so that they end first.
    directory: Directory,
}

/// One of them.
struct Serving {
    process: Process,
    says: oneshot::Receiver<String>,
    address: String,
}

/// A directory that goes with us, or one that somebody named and keeps.
pub enum Directory {
    Ours(Place),
    Given(PathBuf),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Ours(place) => place.path(),
            Self::Given(path) => path,
        }
    }
}

impl Servers {
    /// Starts an etcd and so many servers in a fresh place inside of this directory. The first of them leads.
    pub async fn start(who: &'static str, beside: &Path, servers: usize) -> Result<Self, Failure> {
        if !is_installed() {
            return Err(coded("CONFIG", &not_installed(who)));
        }
        let place = Place::make(who, beside).map_err(|why| failed(who, &why))?;
        Self::within(who, Directory::Ours(place), servers).await
    }

    /// The same in a directory that stays.
    pub async fn start_in(who: &'static str, directory: &Path, servers: usize) -> Result<Self, Failure> {
        if !is_installed() {
            return Err(coded("CONFIG", &not_installed(who)));
        }
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(who, &format!("{}: {error}", directory.display())))?;
        let directory = directory.canonicalize();
        let directory = directory.map_err(|error| failed(who, &error.to_string()))?;
        Self::within(who, Directory::Given(directory), servers).await
    }

    async fn within(who: &'static str, directory: Directory, servers: usize) -> Result<Self, Failure> {
        let etcd = Etcd::start(directory.path()).await.map_err(|why| failed(who, &why))?;
        let mut all = Self { who, servers: Vec::new(), etcd, directory };
        for at in 0..servers {
            let serving = all.begin(at)?;
            all.servers.push(serving);
            all.wait_for(at).await?;
            if at == 0 {
                // It leads before there is another, so that it is known who does.
                all.leader().await?;
            }
        }
        Ok(all)
    }

    fn begin(&self, at: usize) -> Result<Serving, Failure> {
        let place = self.directory.path();
        let data = place.join(format!("server-{}", at + 1));
        let data = data.to_str().ok_or_else(|| failed(self.who, "a directory whose name is no text"))?;
        let journal = format!("etcd://{}/leasehold", self.etcd.endpoints().join(","));
        let flags = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data];
        let (process, says) = Process::server(place, flags).map_err(|why| failed(self.who, &why))?;
        Ok(Serving { process, says, address: String::new() })
    }

    /// Waits until a server leads or stands by.
    async fn wait_for(&mut self, at: usize) -> Result<(), Failure> {
        let who = self.who;
        let said = tokio::time::timeout(PATIENCE, &mut self.servers[at].says).await;
        let said = said.map_err(|_| failed(who, "a server takes too long to start"))?;
        self.servers[at].address = said.map_err(|_| failed(who, "a server ended before it served"))?;
        Ok(())
    }

    /// Where everything is; there is room for other things too.
    pub fn place(&self) -> &Path {
        self.directory.path()
    }

    /// The etcd below them.
    pub const fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Where they all are.
    pub fn endpoints(&self) -> Result<Endpoints, Failure> {
        Ok(Endpoints::parse(&self.addresses().join(","))?)
    }

    /// The same, one by one.
    pub fn addresses(&self) -> Vec<&str> {
        self.servers.iter().map(|server| server.address.as_str()).collect()
    }

    /// Their processes.
    pub fn ids(&self) -> Vec<u32> {
        self.servers.iter().map(|server| server.process.id()).collect()
    }

    /// What a server says about itself and the others, if it answers.
    pub async fn view(&self, at: usize) -> Option<ClusterBody> {
        Client::connect(Endpoints::parse(&self.servers[at].address).ok()?).cluster().await.ok()
    }

    /// Waits until one leads and says so itself. Returns which.
    pub async fn leader(&self) -> Result<usize, Failure> {
        let began = Instant::now();
        loop {
            for at in 0..self.servers.len() {
                if self.view(at).await.is_some_and(|view| view.role == "leads") {
                    return Ok(at);
                }
            }
            if began.elapsed() > PATIENCE {
                return Err(failed(self.who, "nobody leads"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until everybody knows what the leader knows and is among those who may lead, so that whoever leads next is
    /// warm.
    pub async fn warm(&self) -> Result<usize, Failure> {
        let leader = self.leader().await?;
        let began = Instant::now();
        for at in (0..self.servers.len()).filter(|at| *at != leader) {
            loop {
                let (view, goal) = (self.view(at).await, self.view(leader).await);
                let follows = |view: &ClusterBody, goal: &ClusterBody| {
                    view.role == "stands_by"
                        && view.position + 1 >= goal.position
                        && view.servers.contains(&view.address)
                };
                if view.zip(goal).is_some_and(|(view, goal)| follows(&view, &goal)) {
                    break;
                }
                if began.elapsed() > PATIENCE {
                    return Err(failed(self.who, "a standby does not catch up"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(leader)
    }

    /// Ends a server as a crash would.
    pub fn kill(&mut self, at: usize) {
        self.servers[at].process.kill();
    }

    /// Starts a server again that was killed.
    pub async fn again(&mut self, at: usize) -> Result<(), Failure> {
        self.servers[at] = self.begin(at)?;
        self.wait_for(at).await
    }

    /// A server's process.
    pub fn process(&self, at: usize) -> &Process {
        &self.servers[at].process
    }

    /// Asks all servers to end, and waits until they have, or for as long as that may take.
    pub async fn stop(&mut self) {
        for server in &self.servers {
            server.process.ask_to_stop();
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if self.servers.iter_mut().all(|server| server.process.is_over()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
