//! All processes of a run: etcd, servers, PostgreSQL and holders, started in order and stopped by process id.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{ClientBuilder, Endpoints};
use leasehold_core::command::{Acquire, AcquireOptions};
use leasehold_core::lease::Access;
use leasehold_core::token::Cluster;
use leasehold_server::journal::etcd::EtcdEndpoints;
use leasehold_server::journal::{etcd, file};
use leasehold_sim::rng::SimRng;
use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};
use leasehold_testkit::postgres::PostgresServer;
use leasehold_testkit::process::TIMEOUT;
use leasehold_testkit::tcp_proxy::{ProxyUpstream, TcpProxy};
use tokio::runtime::Runtime;

use crate::environment::namespace::{self, NamespaceLink};
use crate::environment::postgres::connect;
use crate::environment::server::ServerProcess;
use crate::evidence::{applied_writes, journal};
use crate::holder::HolderArgs;
use crate::holder_log::clock;
use crate::holder_process::HolderProcess;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PREFIX: &str = "chaos";
/// Number of etcd members.
const MEMBERS: usize = 3;

/// Parameters of a round.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Seed of all random choices.
    pub seed: u64,
    /// One server on a file journal, or three on etcd.
    pub servers: usize,
    /// Number of holders.
    pub holders: u32,
    /// Whether holders write to fenced targets; otherwise only to the unfenced twins.
    pub fenced: bool,
    /// The binary `leasehold`.
    pub binary: PathBuf,
}

/// The running processes of a round.
pub struct ChaosCluster {
    /// Directory of all files of the round.
    pub dir: PathBuf,
    /// Start of the round, on the clock that all processes share.
    pub origin: u64,
    /// Runtime of the clients that the run itself uses.
    pub runtime: Runtime,
    /// etcd, if the journal is on it.
    pub etcd: Option<EtcdCluster>,
    /// Links from each server to the etcd members.
    pub to_etcd: Vec<Vec<TcpProxy>>,
    /// The servers.
    pub servers: Vec<ServerProcess>,
    /// PostgreSQL, if it is written to.
    pub postgres: Option<PostgresServer>,
    /// The holders.
    pub holders: Vec<HolderProcess>,
    /// Cluster id of the servers.
    pub cluster_id: Cluster,
    /// Ttl of leases, in milliseconds.
    pub ttl: u64,
    /// Reason why no holder has its own network namespace, if none has.
    pub no_namespace: Option<String>,
}

impl ChaosCluster {
    /// Starts all processes, with their files in `dir`.
    pub fn start(plan: &ClusterPlan, dir: &Path, rng: &mut SimRng) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut system = Self {
            dir: dir.to_owned(),
            origin: clock(),
            runtime,
            etcd: if plan.servers > 1 { Some(start_etcd(dir)?) } else { None },
            to_etcd: Vec::new(),
            servers: Vec::new(),
            postgres: if plan.fenced { Some(PostgresServer::start(&[])?) } else { None },
            holders: Vec::new(),
            cluster_id: Cluster([0; 8]),
            ttl: rng.between(400, 900),
            no_namespace: namespace::possible().err(),
        };
        std::fs::create_dir(system.files())?;
        for index in 0..plan.servers {
            system.server(plan, index)?;
        }
        system.cluster_id = system.wait_for_grant()?;
        if let Some(postgres) = &system.postgres {
            let (files, cluster) = (system.files(), system.cluster_id);
            system.runtime.block_on(async { applied_writes::arm(&files, cluster, &connect(postgres).await?).await })?;
        }
        for index in 0..plan.holders {
            system.holder(plan, index, rng)?;
        }
        Ok(system)
    }

    /// Directory of the fenced logs and their unfenced twins.
    pub fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    fn server(&mut self, plan: &ClusterPlan, index: usize) -> io::Result<()> {
        let mut journal = None;
        if let Some(etcd) = &self.etcd {
            let to = |member: usize| etcd.members[member].client;
            let links = (0..MEMBERS).map(|member| TcpProxy::listen(HERE, to(member)));
            let links = links.collect::<io::Result<Vec<_>>>()?;
            let addresses: Vec<String> = links.iter().map(|link| link.address().to_string()).collect();
            journal = Some(format!("etcd://{}/{PREFIX}", addresses.join(",")));
            self.to_etcd.push(links);
        }
        let link = TcpProxy::listen(HERE, ProxyUpstream::Nowhere)?;
        let mut server = ServerProcess::new(&plan.binary, &self.dir, index, journal, vec![link]);
        let until = Instant::now() + TIMEOUT;
        while server.starts == 0 {
            // A server refuses to start if etcd responds too slowly; then it is started again.
            if server.poll() {
                server.start(&[])?;
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("server {index} does not start")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.servers.push(server);
        Ok(())
    }

    /// Acquires a lease until one is granted: then a server leads and the cluster id is known.
    fn wait_for_grant(&self) -> io::Result<Cluster> {
        let addresses: Vec<String> = self.servers.iter().map(|server| server.links[0].address().to_string()).collect();
        let endpoints = Endpoints::parse(&addresses.join(",")).map_err(io::Error::other)?;
        let client = ClientBuilder::from(endpoints).request_timeout(Duration::from_secs(2)).build();
        let request = Acquire {
            resource: "chaos/begins",
            holder: "run",
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(1_000),
            options: AcquireOptions::DEFAULT,
        };
        let until = Instant::now() + TIMEOUT;
        self.runtime.block_on(async {
            loop {
                match client.acquire(&request).await {
                    Ok(granted) => return Ok(granted.token().parsed().cluster),
                    Err(error) if Instant::now() > until => return Err(io::Error::other(error)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        })
    }

    fn holder(&mut self, plan: &ClusterPlan, index: u32, rng: &mut SimRng) -> io::Result<()> {
        let args = HolderArgs {
            holder: index,
            restarts: 0,
            seed: rng.draw(),
            origin: self.origin,
            servers: String::new(),
            postgres: (String::new(), 0),
            files: self.files(),
            cluster: self.cluster_id.to_string(),
            ttl: self.ttl,
            guards: index % 2 == 1,
            fenced: plan.fenced,
            history: self.dir.join(format!("holder-{index}")),
        };
        // Some guards use a clock that is ahead and too fast: they stop early, and that is the only consequence.
        let drift_percent = rng.between(0, 100) as u32;
        let mut holder_process =
            HolderProcess::new(args, (index % 4 == 1).then_some((self.dir.as_path(), drift_percent)));
        holder_process.write_clock()?;
        // Holder 0 gets its own network namespace where possible, holder 3 its own boot clock.
        let own_network = index == 0 && self.no_namespace.is_none();
        let wrapper: &[&str] = match index {
            0 if own_network => &["unshare", "--net"],
            3 if self.no_namespace.is_none() => &["unshare", "--time", "--boottime", "1000000", "--"],
            _ => &[],
        };
        let pid = holder_process.start(wrapper)?;
        let mut from = HERE;
        if own_network {
            match join_namespace(pid) {
                Ok(link) => (from, holder_process.namespace) = (link.ours, Some(link)),
                Err(error) => {
                    self.no_namespace = Some(error.to_string());
                    holder_process.kill();
                    holder_process.start(&[])?;
                }
            }
        }
        for server in &mut self.servers {
            let link = TcpProxy::listen(from, ProxyUpstream::Nowhere)?;
            server.links.push(link.clone());
            server.update_links();
            holder_process.servers.push(link);
        }
        if let Some(postgres) = &self.postgres {
            let to = ProxyUpstream::Socket(postgres.socket());
            holder_process.postgres = Some(TcpProxy::listen(from, to)?);
        }
        holder_process.send_args()?;
        self.holders.push(holder_process);
        Ok(())
    }

    /// Every batch of the journal. The servers must be down.
    pub fn batches(&self) -> io::Result<Vec<Vec<u8>>> {
        self.runtime.block_on(async {
            match &self.etcd {
                None => journal::read(&file::Directory::new(self.servers[0].data())).await,
                Some(etcd) => {
                    let entry = EtcdEndpoints { endpoints: etcd.endpoints(), ..EtcdEndpoints::default() };
                    let location = etcd::EtcdLocation::new(entry, PREFIX, "127.0.0.1:1", &self.dir.join("reader"));
                    journal::read(&location.map_err(|error| io::Error::other(error.to_string()))?).await
                }
            }
        })
    }
}

fn start_etcd(dir: &Path) -> io::Result<EtcdCluster> {
    let dir = dir.join("etcd");
    std::fs::create_dir(&dir)?;
    EtcdCluster::start_in(&dir, EtcdOptions { members: MEMBERS, ..EtcdOptions::default() })
}

/// Joins the network namespace of a process; retries until the process has one.
fn join_namespace(pid: u32) -> io::Result<NamespaceLink> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let own = std::fs::read_link(format!("/proc/{pid}/ns/net"))?;
        if own != std::fs::read_link("/proc/self/ns/net")? {
            return NamespaceLink::to(pid);
        }
        if Instant::now() > until {
            return Err(io::Error::other("the holder has no network namespace"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
