//! Three servers over one etcd, each with ways of its own to every member, so that each can be cut off by itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::etcd_support::Server as Etcd;
use crate::etcd_support::proxy::{Proxy, Way};
use crate::support::Server;

/// Nothing takes as long, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How many seconds the leader key outlives its server: the shortest that etcd allows is as short.
const LEASE: &str = "2";

/// Where the servers are that run.
pub type Addresses = Arc<Mutex<Vec<String>>>;

/// Three servers.
pub struct Trio {
    pub etcd: Etcd,
    /// By server, then by member.
    ways: Vec<Vec<Proxy>>,
    servers: Vec<Option<Server>>,
    lease: &'static str,
    more: Vec<String>,
    pub addresses: Addresses,
}

impl Trio {
    pub fn over(etcd: Etcd) -> Self {
        Self::lasting(etcd, LEASE)
    }

    /// With a leader key that outlives its server by so many seconds.
    pub fn lasting(etcd: Etcd, lease: &'static str) -> Self {
        let ways = || etcd.members.iter().map(|member| Proxy::to(member.client)).collect();
        let ways = (0..3).map(|_| ways()).collect();
        // A snapshot now and then: whoever was away for long comes back to a log that begins later.
        let (servers, more) = (vec![None, None, None], ["--log-batches", "200"].map(str::to_owned).to_vec());
        let mut trio = Self { etcd, ways, servers, lease, more, addresses: Addresses::default() };
        (0..3).for_each(|at| trio.begin(at));
        trio.leader();
        trio
    }

    /// Starts a server, anew if it ran before, over its own directory.
    pub fn begin(&mut self, at: usize) {
        let flags = self.flags(at);
        self.servers[at] = Some(Server::with(&flags.iter().map(String::as_str).collect::<Vec<_>>()));
        self.tell();
    }

    /// How a server is started.
    pub fn flags(&self, at: usize) -> Vec<String> {
        let endpoints: Vec<_> = self.ways[at].iter().map(|way| format!("127.0.0.1:{}", way.port)).collect();
        let journal = format!("etcd://{}/trio", endpoints.join(","));
        let data = self.etcd.above.path().join(format!("server-{at}"));
        let data = data.to_str().expect("a path of text");
        let own = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data, "--etcd-lease", self.lease];
        own.into_iter().map(str::to_owned).chain(self.more.clone()).collect()
    }

    /// Those that are started from now on take etcd as it is.
    pub fn accept_restored(&mut self) {
        self.more.push("--accept-restored".to_owned());
    }

    /// kill −9.
    pub fn kill(&mut self, at: usize) {
        self.servers[at] = None;
        self.tell();
    }

    fn tell(&self) {
        let addresses = self.servers.iter().flatten().map(|server| server.address.clone()).collect();
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub fn server(&self, at: usize) -> &Server {
        self.servers[at].as_ref().expect("it runs")
    }

    pub fn take(&mut self, at: usize) -> Server {
        let server = self.servers[at].take().expect("it runs");
        self.tell();
        server
    }

    /// Every way from a server to etcd.
    pub fn reaches(&self, at: usize, way: Way) {
        self.ways[at].iter().for_each(|to| to.set(way));
    }

    /// Waits until one leads. Returns which.
    pub fn leader(&self) -> usize {
        self.another_than(usize::MAX)
    }

    /// Waits until one leads that is not this one.
    pub fn another_than(&self, old: usize) -> usize {
        let over = Instant::now() + PATIENCE;
        loop {
            for (at, server) in self.servers.iter().enumerate().filter(|(at, _)| *at != old) {
                if server.as_ref().is_some_and(|server| is_ready(&server.address)) {
                    return at;
                }
            }
            assert!(Instant::now() < over, "nobody leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a server says that it stands by.
    pub fn until_it_stands_by(&self, at: usize) {
        let over = Instant::now() + PATIENCE;
        while !says(&self.server(at).address, "standby\n") {
            assert!(Instant::now() < over, "it does not stand by");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until everybody has seen what is durable by now.
    pub fn until_all_have_seen(&self) {
        let seen = |at: usize| {
            let figures = self.server(at).http("GET", "/metrics", "", "");
            let line = figures.lines().find_map(|line| line.strip_prefix("leasehold_position "));
            line.and_then(|figure| figure.parse::<u64>().ok()).expect("it is measured")
        };
        let (durable, over) = (seen(self.leader()), Instant::now() + PATIENCE);
        while (0..3).any(|at| seen(at) < durable) {
            assert!(Instant::now() < over, "somebody does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A server that does not lead.
    pub fn standby(&self) -> usize {
        (self.leader() + 1) % 3
    }

    /// Where all of them are.
    pub fn everywhere(&self) -> String {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).join(",")
    }
}

/// Whether a turn of this server answers: one that does not lead any more says something else, or nothing.
pub fn is_ready(address: &str) -> bool {
    says(address, "ready\n")
}

/// Waits until a server leads.
pub fn until_it_leads(server: &Server) {
    let over = Instant::now() + PATIENCE;
    while !is_ready(&server.address) {
        assert!(Instant::now() < over, "it does not lead");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn says(address: &str, word: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let at: SocketAddr = address.parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.ends_with(word))
}
