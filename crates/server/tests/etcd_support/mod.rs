//! Starts a real etcd cluster for a test, of one or three members, on free ports and in a temporary directory.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod proxy;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdLocation};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

/// Upper bound for everything here, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A running etcd cluster, killed on drop.
pub struct Etcd {
    pub members: Vec<Member>,
    pub dir: TempDir,
    extra: Vec<String>,
    /// Command that wraps each process. It must `exec` etcd, so that the process id is etcd's.
    wrapper: Vec<String>,
}

/// One etcd process.
pub struct Member {
    pub client: u16,
    peer: u16,
    name: String,
    cluster: String,
    child: Option<Child>,
}

impl Etcd {
    pub fn single() -> Self {
        Self::start(1, &[])
    }

    pub fn three() -> Self {
        Self::start(3, &[])
    }

    /// Starts a cluster with extra flags. Retries with other ports if one was taken in the meantime.
    pub fn start(members: usize, extra: &[&str]) -> Self {
        Self::start_with(&[], members, extra)
    }

    /// Starts a cluster whose processes run under another command.
    pub fn start_wrapped(wrapper: &[&str], members: usize) -> Self {
        Self::start_with(wrapper, members, &[])
    }

    fn start_with(wrapper: &[&str], members: usize, extra: &[&str]) -> Self {
        let started = Instant::now();
        loop {
            if let Some(server) = Self::try_start(wrapper, members, extra) {
                return server;
            }
            assert!(started.elapsed() < TIMEOUT, "etcd does not start");
        }
    }

    fn try_start(wrapper: &[&str], members: usize, extra: &[&str]) -> Option<Self> {
        // All listeners stay open until all ports are known, so that no two are equal.
        let listeners: Vec<_> =
            (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let ports: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("the listener is bound").port()).collect();
        drop(listeners);
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
            dir: tempfile::tempdir().expect("a temporary directory"),
            extra: extra.iter().map(|flag| (*flag).to_owned()).collect(),
            wrapper: wrapper.iter().map(|word| (*word).to_owned()).collect(),
        };
        (0..members).for_each(|at| server.start_member(at));
        (0..members).all(|at| server.wait_until_healthy(at)).then_some(server)
    }

    /// Starts a member, also after a kill.
    pub fn start_member(&mut self, at: usize) {
        let data = self.dir.path().join(&self.members[at].name);
        let member = &mut self.members[at];
        let (client, peer) =
            (format!("http://127.0.0.1:{}", member.client), format!("http://127.0.0.1:{}", member.peer));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(&self.wrapper);
        command.args(["etcd", "--name", &member.name, "--data-dir"]).arg(data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &member.cluster, "--initial-cluster-token", "leasehold-test"]);
        command.args(&self.extra).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        member.child = Some(command.spawn().expect("etcd is installed"));
    }

    /// Waits until a member knows a leader. Returns false if the process exits instead.
    pub fn wait_until_healthy(&mut self, at: usize) -> bool {
        let started = Instant::now();
        loop {
            let child = self.members[at].child.as_mut().expect("the member was started");
            if child.try_wait().expect("the process can be waited for").is_some() {
                return false;
            }
            if healthy(self.members[at].client) {
                return true;
            }
            assert!(started.elapsed() < TIMEOUT, "etcd elects a leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().expect("the member runs");
            child.wait().expect("the member exits");
        }
    }

    /// Sends a signal, by name, to a member.
    pub fn signal(&self, at: usize, name: &str) {
        let child = self.members[at].child.as_ref().expect("the member runs");
        let pid = child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill is installed");
        assert!(sent.success(), "the member runs");
        if name == "STOP" {
            // Some threads keep running until the kernel reports the process as stopped.
            waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::STOPPED).expect("the member is a child process");
        }
    }

    /// Waits for a leader and returns its index.
    pub fn leader(&self) -> usize {
        let started = Instant::now();
        loop {
            let is_leader = |member: &Member| get(member.client, "/metrics").contains("etcd_server_is_leader 1");
            if let Some(at) = self.members.iter().position(is_leader) {
                return at;
            }
            assert!(started.elapsed() < TIMEOUT, "etcd elects a leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the only member, replaces its data with a snapshot, and restarts it under the same name, with the same cluster id.
    pub fn restore_snapshot(&mut self, snapshot: &str) {
        self.kill(0);
        let member = &self.members[0];
        let data = self.dir.path().join(&member.name);
        std::fs::remove_dir_all(&data).expect("the member has data");
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let data = data.to_str().expect("the path is UTF-8");
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
        self.start_member(0);
        assert!(self.wait_until_healthy(0), "etcd starts from the snapshot");
    }

    /// The client endpoints, without TLS or login.
    pub fn endpoints(&self) -> EtcdEndpoints {
        let endpoints = self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        EtcdEndpoints { endpoints, ..EtcdEndpoints::default() }
    }

    /// A journal under a prefix, for a server with its own data directory. The leader lease outlives any pause of this machine.
    pub fn location(&self, prefix: &str, server: &str) -> EtcdLocation {
        let data = self.dir.path().join(server);
        let location =
            EtcdLocation::new(self.endpoints(), prefix, "127.0.0.1:7421", &data).expect("the data directory is usable");
        location.with_lease(600)
    }

    /// Runs etcdctl.
    pub fn ctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(self.endpoints().endpoints[0].clone()).args(args);
        command.stdin(Stdio::null()).output().expect("etcdctl is installed")
    }

    /// Runs etcdctl, which must succeed, and returns its output.
    #[track_caller]
    pub fn ctl_ok(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("etcdctl prints text")
    }

    /// Enables authentication for root and these users, with their permission below `/kept/` and the password `secret`.
    pub fn enable_auth(&self, users: &[(&str, &str)]) {
        self.ctl_ok(&["user", "add", "root:secret"]);
        self.ctl_ok(&["user", "grant-role", "root", "root"]);
        for (name, permission) in users {
            self.ctl_ok(&["role", "add", name]);
            self.ctl_ok(&["role", "grant-permission", name, permission, "--prefix=true", "/kept/"]);
            self.ctl_ok(&["user", "add", &format!("{name}:secret")]);
            self.ctl_ok(&["user", "grant-role", name, name]);
        }
        self.ctl_ok(&["auth", "enable"]);
    }

    /// Disables authentication again.
    pub fn disable_auth(&self) {
        self.ctl_ok(&["--user", "root:secret", "auth", "disable"]);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}

/// Whether a member knows a leader.
pub fn healthy(port: u16) -> bool {
    get(port, "/health").contains("true")
}

/// The response of a member, or empty.
fn get(port: u16, path: &str) -> String {
    let request = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    request().unwrap_or_default()
}
