//! A real etcd of three members on free ports, each a process that can be stopped, slowed, killed and started again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Process, bound};

/// How many members.
pub const MEMBERS: usize = 3;

/// One member.
pub struct Member {
    /// Where it answers clients.
    pub client: u16,
    peer: u16,
    /// Its process; none while it is killed.
    pub process: Option<Process>,
    /// It was started under something that breaks its disk.
    pub bad_disk: bool,
}

/// An etcd.
pub struct Etcd {
    /// Its members.
    pub members: Vec<Member>,
    above: PathBuf,
    cluster: String,
}

impl Etcd {
    /// Starts it below a directory. A port that was free a moment ago may be taken: then others are.
    pub fn start(above: &Path) -> io::Result<Self> {
        let started = Instant::now();
        loop {
            let place = above.join(format!("etcd-{}", started.elapsed().as_nanos()));
            std::fs::create_dir(&place)?;
            if let Some(etcd) = Self::try_start(place)? {
                return Ok(etcd);
            }
            if started.elapsed() > PATIENCE {
                return Err(io::Error::other("etcd does not start"));
            }
        }
    }

    fn try_start(above: PathBuf) -> io::Result<Option<Self>> {
        // All are held until all are known, so that no two are the same.
        let held: Vec<_> = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports: Vec<u16> = held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<io::Result<_>>()?;
        drop(held);
        let (clients, peers) = ports.split_at(MEMBERS);
        let cluster = peers.iter().enumerate().map(|(at, port)| format!("m{at}=http://127.0.0.1:{port}"));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let member =
            |(client, peer): (&u16, &u16)| Member { client: *client, peer: *peer, process: None, bad_disk: false };
        let mut etcd = Self { members: clients.iter().zip(peers).map(member).collect(), above, cluster };
        for at in 0..MEMBERS {
            etcd.begin(at, &[])?;
        }
        let up = (0..MEMBERS).all(|at| etcd.is_up(at));
        Ok(up.then_some(etcd))
    }

    /// Starts a member under some other program, anew if it ran before.
    pub fn begin(&mut self, at: usize, under: &[&str]) -> io::Result<()> {
        let member = &mut self.members[at];
        member.bad_disk = !under.is_empty();
        let name = format!("m{at}");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(member.client), url(member.peer));
        let log = File::options().create(true).append(true).open(self.above.join(format!("{name}.log")))?;
        let mut command = bound("KILL", under);
        command.args(["etcd", "--name", &name, "--data-dir"]).arg(self.above.join(&name));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.cluster, "--initial-cluster-token", "leasehold-chaos"]);
        command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH).stderr(log);
        member.process = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// Waits until a member knows a leader. False if it ended.
    fn is_up(&mut self, at: usize) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
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
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("true"))
}
