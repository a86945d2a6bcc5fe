//! A real etcd cluster of three members on free ports. Each member can be stopped, slowed, killed and restarted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{ChaosProcess, TIMEOUT, command_tied_to_run};

/// Number of members.
pub const MEMBERS: usize = 3;

/// One member of the etcd cluster.
pub struct EtcdMemberProcess {
    /// Client port.
    pub client: u16,
    peer: u16,
    /// The process; `None` while it is killed.
    pub process: Option<ChaosProcess>,
    /// Whether the process was started under a wrapper that breaks its disk.
    pub bad_disk: bool,
}

/// A cluster of etcd processes.
pub struct EtcdCluster {
    /// Its members.
    pub members: Vec<EtcdMemberProcess>,
    dir: PathBuf,
    cluster: String,
}

impl EtcdCluster {
    /// Starts the members with their data in `dir`. If a free port was taken meanwhile, retries with other ports.
    pub fn start(dir: &Path) -> io::Result<Self> {
        let started = Instant::now();
        loop {
            let path = dir.join(format!("etcd-{}", started.elapsed().as_nanos()));
            std::fs::create_dir(&path)?;
            if let Some(etcd) = Self::try_start(path)? {
                return Ok(etcd);
            }
            if started.elapsed() > TIMEOUT {
                return Err(io::Error::other("etcd does not start"));
            }
        }
    }

    fn try_start(dir: PathBuf) -> io::Result<Option<Self>> {
        // All listeners stay open until all ports are known, so that no port is chosen twice.
        let held: Vec<_> = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports: Vec<u16> = held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<io::Result<_>>()?;
        drop(held);
        let (clients, peers) = ports.split_at(MEMBERS);
        let cluster = peers.iter().enumerate().map(|(at, port)| format!("m{at}=http://127.0.0.1:{port}"));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let member = |(client, peer): (&u16, &u16)| EtcdMemberProcess {
            client: *client,
            peer: *peer,
            process: None,
            bad_disk: false,
        };
        let mut etcd = Self { members: clients.iter().zip(peers).map(member).collect(), dir, cluster };
        for at in 0..MEMBERS {
            etcd.start_member(at, &[])?;
        }
        let up = (0..MEMBERS).all(|at| etcd.is_up(at));
        Ok(up.then_some(etcd))
    }

    /// Starts a member under a wrapper, again if it ran before.
    pub fn start_member(&mut self, at: usize, wrapper: &[&str]) -> io::Result<()> {
        let member = &mut self.members[at];
        member.bad_disk = !wrapper.is_empty();
        let name = format!("m{at}");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(member.client), url(member.peer));
        let log = File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?;
        let mut command = command_tied_to_run("KILL", wrapper);
        command.args(["etcd", "--name", &name, "--data-dir"]).arg(self.dir.join(&name));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.cluster, "--initial-cluster-token", "leasehold-chaos"]);
        command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH).stderr(log);
        member.process = Some(ChaosProcess::start(&mut command)?);
        Ok(())
    }

    /// Waits until a member knows a leader. Returns false if its process ended.
    fn is_up(&mut self, at: usize) -> bool {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            if self.members[at].process.as_mut().is_none_or(|process| process.ended().is_some()) {
                return false;
            }
            if healthy(self.members[at].client) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

fn healthy(port: u16) -> bool {
    let query = || -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    query().is_ok_and(|answer| answer.contains("true"))
}
