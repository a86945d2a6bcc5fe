//! A local etcd cluster of three members.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::child::ChildProcess;

/// Number of members.
pub const MEMBERS: usize = 3;
/// Time until it must have a leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// File with the ports, so that the cluster can be restarted with the same directory.
const PORTS: &str = "ports";
const ETCD: &str = "etcd";

/// A running etcd cluster.
pub struct LocalEtcd {
    ports: Vec<u16>,
    members: Vec<ChildProcess>,
}

/// Whether etcd is in PATH.
pub fn is_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(ETCD).is_file())
}

/// Error message for a machine without etcd.
pub fn not_installed(command: &str) -> String {
    format!(
        "{command}: etcd is not installed; install it (Debian: apt-get install etcd-server) and try again. \
         A single server needs no etcd: leasehold serve"
    )
}

impl LocalEtcd {
    /// Starts the members in a directory: an empty one, or that of an earlier cluster.
    pub async fn start(directory: &Path) -> Result<Self, String> {
        let ports_file = directory.join(PORTS);
        if let Ok(text) = std::fs::read_to_string(&ports_file) {
            let ports: Vec<u16> = text.split_whitespace().filter_map(|port| port.parse().ok()).collect();
            let file = ports_file.display();
            let invalid = || format!("{file}: does not contain the ports of {MEMBERS} members; use another directory");
            let ports = Some(ports).filter(|ports| ports.len() == 2 * MEMBERS).ok_or_else(invalid)?;
            let in_use = || format!("{file}: one of the ports is in use, or etcd does not start");
            return Self::start_on(ports, directory).await?.ok_or_else(in_use);
        }
        let began = Instant::now();
        while began.elapsed() < LEADER_TIMEOUT {
            // Another process may have taken a free port in the meantime: then try others.
            if let Some(etcd) = Self::start_on(free_ports()?, directory).await? {
                let text: Vec<_> = etcd.ports.iter().map(ToString::to_string).collect();
                // A new file: a link that someone planted is not followed.
                let written = std::fs::File::create_new(&ports_file)
                    .and_then(|mut file| file.write_all(text.join(" ").as_bytes()));
                written.map_err(|error| format!("{}: {error}", ports_file.display()))?;
                return Ok(etcd);
            }
            for member in 0..MEMBERS {
                // The directory may not exist.
                let _ = std::fs::remove_dir_all(directory.join(name(member)));
            }
        }
        Err("etcd does not start".to_owned())
    }

    /// Starts the members on these ports; `None` if a member exits.
    async fn start_on(ports: Vec<u16>, directory: &Path) -> Result<Option<Self>, String> {
        let url = |at: usize| format!("http://127.0.0.1:{}", ports[at]);
        let peers: Vec<_> = (0..MEMBERS).map(|at| format!("{}={}", name(at), url(MEMBERS + at))).collect();
        let cluster = peers.join(",");
        let mut members = Vec::new();
        for at in 0..MEMBERS {
            let data = directory.join(name(at));
            let data = data.to_str().ok_or("the directory's path is not valid UTF-8")?;
            let (client, peer) = (url(at), url(MEMBERS + at));
            let args = [
                ["--name", &name(at)],
                ["--data-dir", data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &cluster],
                ["--initial-cluster-token", "leasehold"],
            ];
            members.push(ChildProcess::program(directory, ETCD, args.as_flattened())?);
        }
        let mut etcd = Self { ports, members };
        let began = Instant::now();
        while !etcd.ports[..MEMBERS].iter().all(|port| has_leader(*port)) {
            if etcd.members.iter_mut().any(ChildProcess::has_exited) {
                return Ok(None);
            }
            if began.elapsed() > LEADER_TIMEOUT {
                return Err("etcd has no leader".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(etcd))
    }

    /// Client addresses of the members.
    pub fn endpoints(&self) -> Vec<String> {
        self.ports[..MEMBERS].iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// CPU time of all members so far.
    pub fn cpu_time(&self) -> Duration {
        self.members.iter().map(ChildProcess::cpu_time).sum()
    }
}

fn name(member: usize) -> String {
    format!("etcd-{}", member + 1)
}

/// Finds free ports. All listeners stay open until all ports are known, so that the ports differ.
fn free_ports() -> Result<Vec<u16>, String> {
    let listeners: Result<Vec<_>, _> = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let ports: Result<Vec<_>, _> =
        listeners.and_then(|all| all.iter().map(|listener| Ok(listener.local_addr()?.port())).collect());
    ports.map_err(|error| format!("no free port: {error}"))
}

fn has_leader(port: u16) -> bool {
    let health = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    health().is_ok_and(|response| response.contains("true"))
}
