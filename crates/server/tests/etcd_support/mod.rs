//! A real etcd for each test: of one member or three, on free ports, in a directory of its own, killed with the test.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod proxy;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdLocation};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An etcd that runs.
pub struct Server {
    pub members: Vec<Member>,
    pub above: TempDir,
    extra: Vec<String>,
    /// What its processes are run under. It must leave them their ids.
    under: Vec<String>,
}

/// One of its processes.
pub struct Member {
    pub client: u16,
    peer: u16,
    name: String,
    cluster: String,
    child: Option<Child>,
}

impl Server {
    /// One member.
    pub fn single() -> Self {
        Self::start(1, &[])
    }

    /// Three members.
    pub fn three() -> Self {
        Self::start(3, &[])
    }

    /// So many members, with these flags. A port that was free a moment ago may be taken: then others are.
    pub fn start(members: usize, extra: &[&str]) -> Self {
        Self::start_so(&[], members, extra)
    }

    /// So many members, run under another program.
    pub fn start_under(under: &[&str], members: usize) -> Self {
        Self::start_so(under, members, &[])
    }

    fn start_so(under: &[&str], members: usize, extra: &[&str]) -> Self {
        let started = Instant::now();
        loop {
            if let Some(server) = Self::try_start(under, members, extra) {
                return server;
            }
            assert!(started.elapsed() < PATIENCE, "etcd does not start");
        }
    }

    fn try_start(under: &[&str], members: usize, extra: &[&str]) -> Option<Self> {
        // All are held until all are known, so that no two are the same.
        let held: Vec<_> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<_> = held.iter().map(|held| held.local_addr().expect("an address").port()).collect();
        drop(held);
        let (clients, peers) = ports.split_at(members);
        let cluster: Vec<_> =
            peers.iter().enumerate().map(|(at, port)| format!("m{at}=http://127.0.0.1:{port}")).collect();
        let cluster = cluster.join(",");
        let member = |(at, (client, peer)): (usize, (&u16, &u16))| Member {
            client: *client,
            peer: *peer,
            name: format!("m{at}"),
            cluster: cluster.clone(),
            child: None,
        };
        let mut server = Self {
            members: clients.iter().zip(peers).enumerate().map(member).collect(),
            above: tempfile::tempdir().expect("a directory"),
            extra: extra.iter().map(|flag| (*flag).to_owned()).collect(),
            under: under.iter().map(|word| (*word).to_owned()).collect(),
        };
        (0..members).for_each(|at| server.begin(at));
        (0..members).all(|at| server.is_up(at)).then_some(server)
    }

    /// Starts a member, anew if it ran before.
    pub fn begin(&mut self, at: usize) {
        let data = self.above.path().join(&self.members[at].name);
        let member = &mut self.members[at];
        let (client, peer) =
            (format!("http://127.0.0.1:{}", member.client), format!("http://127.0.0.1:{}", member.peer));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(&self.under);
        command.args(["etcd", "--name", &member.name, "--data-dir"]).arg(data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &member.cluster, "--initial-cluster-token", "leasehold-test"]);
        command.args(&self.extra).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        member.child = Some(quiet.spawn().expect("etcd is installed"));
    }

    /// Waits until a member knows a leader. False if it ended.
    pub fn is_up(&mut self, at: usize) -> bool {
        let started = Instant::now();
        loop {
            let child = self.members[at].child.as_mut().expect("it was started");
            if child.try_wait().expect("a child").is_some() {
                return false;
            }
            if healthy(self.members[at].client) {
                return true;
            }
            assert!(started.elapsed() < PATIENCE, "etcd has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills a member, as a crash would.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
    }

    /// Sends a member a signal by name.
    pub fn signal(&self, at: usize, name: &str) {
        let child = self.members[at].child.as_ref().expect("it runs");
        let pid = child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill is there");
        assert!(sent.success(), "the member is there");
        if name == "STOP" {
            // Until the kernel says that it stands, some of its threads go on.
            waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::STOPPED).expect("it is our child");
        }
    }

    /// Waits until one of the members leads the others. Returns which.
    pub fn leader(&self) -> usize {
        let started = Instant::now();
        loop {
            let leads = |member: &Member| get(member.client, "/metrics").contains("etcd_server_is_leader 1");
            if let Some(at) = self.members.iter().position(leads) {
                return at;
            }
            assert!(started.elapsed() < PATIENCE, "etcd has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the only member, puts a snapshot in place of what it had, and starts it again under the same name: it keeps
    /// its cluster id.
    pub fn set_back(&mut self, snapshot: &str) {
        self.kill(0);
        let member = &self.members[0];
        let data = self.above.path().join(&member.name);
        std::fs::remove_dir_all(&data).expect("it was there");
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let data = data.to_str().expect("a path of text");
        self.ctl_ok(&[
            "snapshot",
            "restore",
            snapshot,
            "--name",
            &member.name,
            "--initial-cluster",
            &member.cluster,
            "--initial-cluster-token",
            "leasehold-test",
            "--initial-advertise-peer-urls",
            &peer,
            "--data-dir",
            data,
        ]);
        self.begin(0);
        assert!(self.is_up(0), "it starts from its snapshot");
    }

    /// Where to reach it.
    pub fn entry(&self) -> EtcdEndpoints {
        let endpoints = self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        EtcdEndpoints { endpoints, ..EtcdEndpoints::default() }
    }

    /// A journal under a prefix, for one server with a directory of its own. Its lease outlives any pause of this machine.
    pub fn place(&self, prefix: &str, server: &str) -> EtcdLocation {
        let data = self.above.path().join(server);
        let place = EtcdLocation::new(self.entry(), prefix, "127.0.0.1:7421", &data).expect("a directory of its own");
        place.with_lease(600)
    }

    /// Runs etcd's own command line.
    pub fn ctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(self.entry().endpoints[0].clone()).args(args);
        command.stdin(Stdio::null()).output().expect("etcdctl is installed")
    }

    /// The same, and it must work.
    #[track_caller]
    pub fn ctl_ok(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("etcdctl prints text")
    }

    /// From now on only root and these are known, each with its rights below `/kept/` and the password `secret`.
    pub fn know_only(&self, users: &[(&str, &str)]) {
        self.ctl_ok(&["user", "add", "root:secret"]);
        self.ctl_ok(&["user", "grant-role", "root", "root"]);
        for (name, rights) in users {
            self.ctl_ok(&["role", "add", name]);
            self.ctl_ok(&["role", "grant-permission", name, rights, "--prefix=true", "/kept/"]);
            self.ctl_ok(&["user", "add", &format!("{name}:secret")]);
            self.ctl_ok(&["user", "grant-role", name, name]);
        }
        self.ctl_ok(&["auth", "enable"]);
    }

    /// Everybody may do everything again.
    pub fn know_everybody(&self) {
        self.ctl_ok(&["--user", "root:secret", "auth", "disable"]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}

/// Whether a member knows a leader.
pub fn healthy(port: u16) -> bool {
    get(port, "/health").contains("true")
}

/// What a member answers; nothing if it does not.
fn get(port: u16, path: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().unwrap_or_default()
}
