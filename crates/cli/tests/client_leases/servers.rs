//! The server under test: a single server, or with `LEASEHOLD_TEST_SERVERS=3` the leader of three servers on etcd.

use leasehold_testkit::etcd::EtcdCluster;

use crate::harness::ThreeServers;
use crate::support;

/// One server, or a cluster of three.
pub struct Server {
    /// Address of the leader.
    pub address: String,
    /// Addresses of all servers; clients follow redirects to the leader.
    pub addresses: String,
    deployment: Deployment,
}

enum Deployment {
    One(Box<support::Server>),
    Three(Box<ThreeServers>, usize),
}

impl Server {
    pub fn start() -> Self {
        match std::env::var("LEASEHOLD_TEST_SERVERS").as_deref() {
            Ok("3") => Self::leading(Box::new(ThreeServers::with_leader_lease(EtcdCluster::single(), "5"))),
            Ok(other) => panic!("LEASEHOLD_TEST_SERVERS={other}: expected 3 or unset"),
            Err(_) => Self::one(support::Server::start()),
        }
    }

    fn one(server: support::Server) -> Self {
        let (address, addresses) = (server.address.clone(), server.address.clone());
        Self { address, addresses, deployment: Deployment::One(Box::new(server)) }
    }

    fn leading(cluster: Box<ThreeServers>) -> Self {
        let leader = cluster.leader();
        let all = [leader + 1, leader + 2, leader].map(|at| cluster.server(at % 3).address.clone());
        Self { address: all[2].clone(), addresses: all.join(","), deployment: Deployment::Three(cluster, leader) }
    }

    pub fn signal(&self, name: &str) {
        match &self.deployment {
            Deployment::One(server) => server.signal(name),
            Deployment::Three(cluster, leader) => cluster.server(*leader).signal(name),
        }
    }

    /// Runs a command against the leader.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> support::CommandRun {
        support::run(support::leasehold(args).env("LEASEHOLD_ADDR", &self.addresses))
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) {
        match &mut self.deployment {
            Deployment::One(server) => drop(server.wait()),
            Deployment::Three(cluster, leader) => cluster.kill(*leader),
        }
    }

    /// Serves again at another address: the same server restarted, or a new leader.
    pub fn crash_and_restart(self) -> Self {
        match self.deployment {
            Deployment::One(server) => Self::one(server.crash_and_restart()),
            Deployment::Three(mut cluster, old) => {
                cluster.start(old);
                Self::leading(cluster)
            }
        }
    }
}
