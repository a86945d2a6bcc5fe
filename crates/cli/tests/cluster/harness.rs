//! Three servers on one etcd, each with its own proxies to every member, so that each can be isolated.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};

use crate::support::Server;

/// Timeout for every wait; generous for busy machines.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Seconds that the leader key outlives its server: the minimum that etcd allows.
const LEASE: &str = "2";

/// Addresses of the running servers.
pub type Addresses = Arc<Mutex<Vec<String>>>;

/// Three servers on one etcd.
pub struct ThreeServers {
    pub etcd: EtcdCluster,
    /// Proxies to etcd, by server and then by member.
    proxies: Vec<Vec<TcpProxy>>,
    servers: Vec<Option<Server>>,
    lease: &'static str,
    extra_flags: Vec<String>,
    pub addresses: Addresses,
}

impl ThreeServers {
    pub fn on(etcd: EtcdCluster) -> Self {
        Self::with_leader_lease(etcd, LEASE)
    }

    /// With a leader key that outlives its server by `lease` seconds.
    pub fn with_leader_lease(etcd: EtcdCluster, lease: &'static str) -> Self {
        let proxies = || etcd.members.iter().map(|member| TcpProxy::start(member.client)).collect();
        let proxies = (0..3).map(|_| proxies()).collect();
        // Frequent snapshots, so that a server that was down for long returns to a truncated log.
        let (servers, extra_flags) =
            (vec![None, None, None], ["--snapshot-after-batches", "200"].map(str::to_owned).to_vec());
        let mut cluster = Self { etcd, proxies, servers, lease, extra_flags, addresses: Addresses::default() };
        (0..3).for_each(|at| cluster.start(at));
        cluster.leader();
        cluster
    }

    /// Starts or restarts a server on its own directory.
    pub fn start(&mut self, at: usize) {
        let flags = self.flags(at);
        self.servers[at] = Some(Server::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>()));
        self.publish_addresses();
    }

    /// Flags of a server.
    pub fn flags(&self, at: usize) -> Vec<String> {
        let endpoints: Vec<_> = self.proxies[at].iter().map(|proxy| proxy.address().to_string()).collect();
        let journal = format!("etcd://{}/cluster", endpoints.join(","));
        let data = self.etcd.dir().join(format!("server-{at}"));
        let data = data.to_str().expect("a UTF-8 path");
        let own = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data, "--etcd-lease", self.lease];
        own.into_iter().map(str::to_owned).chain(self.extra_flags.clone()).collect()
    }

    /// Servers started from now on accept a restored etcd.
    pub fn accept_restored(&mut self) {
        self.extra_flags.push("--accept-restored".to_owned());
    }

    /// Servers started from now on refuse a restored etcd.
    pub fn refuse_restored(&mut self) {
        self.extra_flags.retain(|flag| flag != "--accept-restored");
    }

    /// kill −9.
    pub fn kill(&mut self, at: usize) {
        self.servers[at] = None;
        self.publish_addresses();
    }

    fn publish_addresses(&self) {
        let addresses = self.servers.iter().flatten().map(|server| server.address.clone()).collect();
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub fn server(&self, at: usize) -> &Server {
        self.servers[at].as_ref().expect("the process runs")
    }

    pub fn take(&mut self, at: usize) -> Server {
        let server = self.servers[at].take().expect("the process runs");
        self.publish_addresses();
        server
    }

    /// Sets the state of all links from a server to etcd.
    pub fn set_etcd_links(&self, at: usize, requests: Flow, replies: Flow) {
        self.proxies[at].iter().for_each(|proxy| proxy.set_flow(requests, replies));
    }

    /// Waits until a server leads and returns its index.
    pub fn leader(&self) -> usize {
        self.wait_for_other_leader(usize::MAX)
    }

    /// Waits until a server other than `old` leads.
    pub fn wait_for_other_leader(&self, old: usize) -> usize {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            for (at, server) in self.servers.iter().enumerate().filter(|(at, _)| *at != old) {
                if server.as_ref().is_some_and(|server| is_ready(&server.address)) {
                    return at;
                }
            }
            assert!(Instant::now() < deadline, "no server leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a server is a standby.
    pub fn wait_for_standby(&self, at: usize) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !is_state(&self.server(at).address, "standby\n") {
            assert!(Instant::now() < deadline, "the server is not a standby");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all servers have reached the current durable position.
    pub fn wait_for_followers(&self) {
        let position = |at: usize| {
            let metrics = self.server(at).http("GET", "/metrics", "", "");
            let line = metrics.lines().find_map(|line| line.strip_prefix("leasehold_journal_position "));
            line.and_then(|value| value.parse::<u64>().ok()).expect("the metric exists")
        };
        let (durable, deadline) = (position(self.leader()), Instant::now() + TEST_TIMEOUT);
        while (0..3).any(|at| position(at) < durable) {
            assert!(Instant::now() < deadline, "a standby does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A server that does not lead.
    pub fn standby(&self) -> usize {
        (self.leader() + 1) % 3
    }

    /// Addresses of all running servers.
    pub fn addresses(&self) -> String {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).join(",")
    }
}

/// Whether a server leads and completes turns.
pub fn is_ready(address: &str) -> bool {
    is_state(address, "ready\n")
}

/// Waits until a server leads.
pub fn wait_for_leadership(server: &Server) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_ready(&server.address) {
        assert!(Instant::now() < deadline, "the server does not lead");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_state(address: &str, state: &str) -> bool {
    let get = || -> std::io::Result<String> {
        let at: SocketAddr = address.parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    get().is_ok_and(|response| response.ends_with(state))
}
