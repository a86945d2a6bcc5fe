//! The server of a test: one, or with `LEASEHOLD_TEST_SERVERS=3` three over an etcd, of which whoever leads is meant.

use crate::etcd_support::Server as Etcd;
use crate::support;
use crate::trio::Trio;

/// A server, or three.
pub struct Server {
    /// Where the one is that decides.
    pub address: String,
    /// Where any of them is: whoever is sent on follows.
    pub everywhere: String,
    runs: Runs,
}

enum Runs {
    One(support::Server),
    Three(Box<Trio>, usize),
}

impl Server {
    pub fn start() -> Self {
        match std::env::var("LEASEHOLD_TEST_SERVERS").as_deref() {
            Ok("3") => Self::leading(Box::new(Trio::lasting(Etcd::single(), "5"))),
            Ok(other) => panic!("LEASEHOLD_TEST_SERVERS={other}: write 3, or nothing"),
            Err(_) => Self::one(support::Server::start()),
        }
    }

    fn one(server: support::Server) -> Self {
        let (address, everywhere) = (server.address.clone(), server.address.clone());
        Self { address, everywhere, runs: Runs::One(server) }
    }

    fn leading(trio: Box<Trio>) -> Self {
        let leader = trio.leader();
        let all = [leader + 1, leader + 2, leader].map(|at| trio.server(at % 3).address.clone());
        Self { address: all[2].clone(), everywhere: all.join(","), runs: Runs::Three(trio, leader) }
    }

    pub fn signal(&self, name: &str) {
        match &self.runs {
            Runs::One(server) => server.signal(name),
            Runs::Three(trio, leader) => trio.server(*leader).signal(name),
        }
    }

    /// A command for whoever decides.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> support::Told {
        support::run(support::leasehold(args).env("LEASEHOLD_ADDR", &self.everywhere))
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        match &mut self.runs {
            Runs::One(server) => drop(server.wait()),
            Runs::Three(trio, leader) => trio.kill(*leader),
        }
    }

    /// Somebody serves again, at another address: the same one, or where there are several, another.
    pub fn again(self) -> Self {
        match self.runs {
            Runs::One(server) => Self::one(server.again()),
            Runs::Three(mut trio, old) => {
                trio.begin(old);
                Self::leading(trio)
            }
        }
    }
}
