//! Everything that a run is made of, started in order and stopped by its own ids.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints, Options};
use leasehold_core::command::{Acquire, Terms};
use leasehold_core::lease::Access;
use leasehold_core::token::Cluster;
use leasehold_server::journal::etcd::Entry;
use leasehold_server::journal::{etcd, file};
use leasehold_sim::chance::Chance;
use tokio::runtime::Runtime;

use crate::holder::Part;
use crate::machine::etcd::{Etcd, MEMBERS};
use crate::machine::namespace::{self, Link};
use crate::machine::postgres::Postgres;
use crate::machine::server::Server;
use crate::process::PATIENCE;
use crate::proxy::{Upstream, Way};
use crate::read::{ghost, journal};
use crate::said::clock;
use crate::seat::Seat;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PREFIX: &str = "chaos";

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What everything is drawn from.
    pub seed: u64,
    /// One on a file journal, or three on etcd.
    pub servers: usize,
    /// How many holders.
    pub holders: u32,
    /// Whether writes go to fenced targets; otherwise to the twins alone.
    pub fenced: bool,
    /// The binary `leasehold`.
    pub binary: PathBuf,
}

/// A run that stands.
pub struct Stage {
    /// Where everything lies.
    pub above: PathBuf,
    /// When it began, on the clock that all processes share.
    pub origin: u64,
    /// On which the ways carry.
    pub runtime: Runtime,
    /// etcd, if the servers are on it.
    pub etcd: Option<Etcd>,
    /// Each server's own ways to etcd.
    pub to_etcd: Vec<Vec<Way>>,
    /// The servers.
    pub servers: Vec<Server>,
    /// PostgreSQL, if it is written to.
    pub postgres: Option<Postgres>,
    /// The holders.
    pub seats: Vec<Seat>,
    /// Which cluster the servers are.
    pub cluster: Cluster,
    /// How long a renewal lasts, in milliseconds.
    pub ttl: u64,
    /// Why no holder has a network of its own, if none has.
    pub no_namespace: Option<String>,
}

impl Stage {
    /// Starts everything below a directory.
    pub fn start(plan: &Plan, above: &Path, chance: &mut Chance) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut stage = Self {
            above: above.to_owned(),
            origin: clock(),
            runtime,
            etcd: if plan.servers > 1 { Some(Etcd::start(above)?) } else { None },
            to_etcd: Vec::new(),
            servers: Vec::new(),
            postgres: if plan.fenced { Some(Postgres::start()?) } else { None },
            seats: Vec::new(),
            cluster: Cluster([0; 8]),
            ttl: chance.between(400, 900),
            no_namespace: namespace::possible().err(),
        };
        std::fs::create_dir(stage.files())?;
        for index in 0..plan.servers {
            stage.server(plan, index)?;
        }
        stage.cluster = stage.until_granted()?;
        if let Some(postgres) = &stage.postgres {
            let (files, cluster) = (stage.files(), stage.cluster);
            stage.runtime.block_on(async { ghost::arm(&files, cluster, &postgres.connect().await?).await })?;
        }
        for who in 0..plan.holders {
            stage.holder(plan, who, chance)?;
        }
        Ok(stage)
    }

    /// Where the logs and their twins lie.
    pub fn files(&self) -> PathBuf {
        self.above.join("files")
    }

    fn server(&mut self, plan: &Plan, index: usize) -> io::Result<()> {
        let mut journal = None;
        if let Some(etcd) = &self.etcd {
            let to = |member: usize| Upstream::Address(format!("127.0.0.1:{}", etcd.members[member].client));
            let ways = (0..MEMBERS).map(|member| Way::open(self.runtime.handle(), HERE, to(member)));
            let ways = ways.collect::<io::Result<Vec<_>>>()?;
            let addresses: Vec<String> = ways.iter().map(|way| way.at.to_string()).collect();
            journal = Some(format!("etcd://{}/{PREFIX}", addresses.join(",")));
            self.to_etcd.push(ways);
        }
        let way = Way::open(self.runtime.handle(), HERE, Upstream::Nowhere)?;
        let mut server = Server::new(&plan.binary, &self.above, index, journal, vec![way]);
        let until = Instant::now() + PATIENCE;
        while server.lives == 0 {
            // An etcd that is slow to answer is refused; then it is tried again.
            if server.look() {
                server.begin(&[])?;
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("server {index} does not start")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.servers.push(server);
        Ok(())
    }

    /// Asks for a lease until one is granted: then somebody leads, and the cluster is known.
    fn until_granted(&self) -> io::Result<Cluster> {
        let addresses: Vec<String> = self.servers.iter().map(|server| server.ways[0].at.to_string()).collect();
        let endpoints = Endpoints::parse(&addresses.join(",")).map_err(io::Error::other)?;
        let client = Client::with(endpoints, Options { request: Duration::from_secs(2), ..Options::default() });
        let ask = Acquire {
            resource: "chaos/begins",
            holder: "run",
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(1_000),
            terms: Terms::DEFAULT,
        };
        let until = Instant::now() + PATIENCE;
        self.runtime.block_on(async {
            loop {
                match client.acquire(&ask).await {
                    Ok(granted) => return Ok(granted.token().cluster),
                    Err(error) if Instant::now() > until => return Err(io::Error::other(error)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        })
    }

    fn holder(&mut self, plan: &Plan, who: u32, chance: &mut Chance) -> io::Result<()> {
        let part = Part {
            who,
            life: 0,
            seed: chance.draw(),
            origin: self.origin,
            servers: String::new(),
            postgres: (String::new(), 0),
            files: self.files(),
            cluster: self.cluster.to_string(),
            ttl: self.ttl,
            guards: who % 2 == 1,
            fenced: plan.fenced,
            history: self.above.join(format!("holder-{who}")),
        };
        // Some guards go by a clock that is ahead and too fast: they stop early, and lose nothing else by it.
        let faster = chance.between(0, 100) as u32;
        let mut seat = Seat::new(part, (who % 4 == 1).then_some((self.above.as_path(), faster)));
        seat.tick()?;
        // The first has a network of its own where that can be, the fourth a boot clock of its own.
        let own_network = who == 0 && self.no_namespace.is_none();
        let under: &[&str] = match who {
            0 if own_network => &["unshare", "--net"],
            3 if self.no_namespace.is_none() => &["unshare", "--time", "--boottime", "1000000", "--"],
            _ => &[],
        };
        let pid = seat.start(under)?;
        let mut from = HERE;
        if own_network {
            match joined(pid) {
                Ok(link) => (from, seat.link) = (link.ours, Some(link)),
                Err(error) => {
                    self.no_namespace = Some(error.to_string());
                    seat.kill();
                    seat.start(&[])?;
                }
            }
        }
        for server in &mut self.servers {
            let way = Way::open(self.runtime.handle(), from, Upstream::Nowhere)?;
            server.ways.push(way.clone());
            server.lead_again();
            seat.servers.push(way);
        }
        if let Some(postgres) = &self.postgres {
            let to = Upstream::Socket(postgres.socket());
            seat.postgres = Some(Way::open(self.runtime.handle(), from, to)?);
        }
        seat.begin()?;
        self.seats.push(seat);
        Ok(())
    }

    /// Every batch of the journal. The servers must be gone.
    pub fn batches(&self) -> io::Result<Vec<Vec<u8>>> {
        self.runtime.block_on(async {
            match &self.etcd {
                None => journal::read(&file::Directory::new(self.servers[0].data())).await,
                Some(etcd) => {
                    let endpoints = etcd.members.iter().map(|member| format!("127.0.0.1:{}", member.client));
                    let entry = Entry { endpoints: endpoints.collect(), ..Entry::default() };
                    let place = etcd::Etcd::new(entry, PREFIX, "127.0.0.1:1", &self.above.join("reader"));
                    journal::read(&place.map_err(|error| io::Error::other(error.to_string()))?).await
                }
            }
        })
    }
}

/// The process may not have its network yet: it is tried again for a moment.
fn joined(pid: u32) -> io::Result<Link> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let own = std::fs::read_link(format!("/proc/{pid}/ns/net"))?;
        if own != std::fs::read_link("/proc/self/ns/net")? {
            return Link::to(pid);
        }
        if Instant::now() > until {
            return Err(io::Error::other("the holder has no network of its own"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
