//! An etcd of our own: three members on this machine, for a try-out or to be measured.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::process::Process;

/// Its members.
pub const MEMBERS: usize = 3;
/// How long it may take until it has a leader.
const PATIENCE: Duration = Duration::from_secs(60);
/// Which ports it was started with, so that it can be again over the same directory.
const PORTS: &str = "ports";
/// The program.
const ETCD: &str = "etcd";

/// An etcd that runs.
pub struct Etcd {
    ports: Vec<u16>,
    members: Vec<Process>,
}

/// Whether there is one on this machine to be started.
pub fn is_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(ETCD).is_file())
}

/// What to do where there is none.
pub fn not_installed(who: &str) -> String {
    format!(
        "{who}: there is no etcd on this machine; install it (Debian: apt-get install etcd-server) and try again. \
         One server with a journal of its own needs none: leasehold serve"
    )
}

impl Etcd {
    /// Starts one over a directory: anew, or with what an earlier one left there.
    pub async fn start(directory: &Path) -> Result<Self, String> {
        let kept = directory.join(PORTS);
        if let Ok(text) = std::fs::read_to_string(&kept) {
            let ports: Vec<u16> = text.split_whitespace().filter_map(|port| port.parse().ok()).collect();
            let wrong = || format!("{}: not the ports of {MEMBERS} members; choose another directory", kept.display());
            let ports = Some(ports).filter(|ports| ports.len() == 2 * MEMBERS).ok_or_else(wrong)?;
            let taken = || format!("{}: a port of these is taken, or etcd does not start", kept.display());
            return Self::on(ports, directory).await?.ok_or_else(taken);
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            // A port that was free a moment ago may be taken: then others are tried.
            if let Some(etcd) = Self::on(free_ports()?, directory).await? {
                let text: Vec<_> = etcd.ports.iter().map(ToString::to_string).collect();
                std::fs::write(&kept, text.join(" ")).map_err(|error| format!("{}: {error}", kept.display()))?;
                return Ok(etcd);
            }
            for member in 0..MEMBERS {
                // Where nothing was written there is nothing to remove.
                let _ = std::fs::remove_dir_all(directory.join(name(member)));
            }
        }
        Err("etcd does not start".to_owned())
    }

    /// None if a member ended.
    async fn on(ports: Vec<u16>, directory: &Path) -> Result<Option<Self>, String> {
        let url = |at: usize| format!("http://127.0.0.1:{}", ports[at]);
        let peers: Vec<_> = (0..MEMBERS).map(|at| format!("{}={}", name(at), url(MEMBERS + at))).collect();
        let cluster = peers.join(",");
        let mut members = Vec::new();
        for at in 0..MEMBERS {
            let data = directory.join(name(at));
            let data = data.to_str().ok_or("a directory whose name is no text")?;
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
            members.push(Process::program(directory, ETCD, args.as_flattened())?);
        }
        let mut etcd = Self { ports, members };
        let began = Instant::now();
        while !etcd.ports[..MEMBERS].iter().all(|port| has_leader(*port)) {
            if etcd.members.iter_mut().any(Process::is_over) {
                return Ok(None);
            }
            if began.elapsed() > PATIENCE {
                return Err("etcd has no leader".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(etcd))
    }

    /// Where its members are asked.
    pub fn endpoints(&self) -> Vec<String> {
        self.ports[..MEMBERS].iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Processor time of all members so far.
    pub fn processor(&self) -> Duration {
        self.members.iter().map(Process::processor).sum()
    }
}

fn name(member: usize) -> String {
    format!("etcd-{}", member + 1)
}

/// All are held until all are known, so that no two are the same.
fn free_ports() -> Result<Vec<u16>, String> {
    let held: Result<Vec<_>, _> = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let ports: Result<Vec<_>, _> =
        held.and_then(|held| held.iter().map(|held| Ok(held.local_addr()?.port())).collect());
    ports.map_err(|error| format!("no free port: {error}"))
}

fn has_leader(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("true"))
}
