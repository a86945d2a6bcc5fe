//! Real etcd clusters: one process per member, which can be stopped, slowed, killed, restarted and restored.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ports::unused_address;
use crate::process::{TIMEOUT, TestProcess, tied_command};

/// Token of every cluster; a restored member must present it too.
const CLUSTER_TOKEN: &str = "leasehold-test";

/// How to start a cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// Number of members; 0 means 1.
    pub members: usize,
    /// Additional flags of every member.
    pub flags: Vec<String>,
    /// Program with arguments that executes the members, for example strace. It must keep the process id.
    pub wrapper: Vec<String>,
}

/// One member of a cluster.
#[derive(Debug)]
pub struct EtcdMemberProcess {
    /// Address for clients.
    pub client: SocketAddr,
    peer: SocketAddr,
    name: String,
    /// The process; `None` while it is killed.
    pub process: Option<TestProcess>,
    /// Whether a wrapper executes the process.
    pub is_wrapped: bool,
}

/// A cluster of etcd processes. It ends with this process.
#[derive(Debug)]
pub struct EtcdCluster {
    /// Its members.
    pub members: Vec<EtcdMemberProcess>,
    options: EtcdOptions,
    dir: PathBuf,
    _temp_dir: Option<TempDir>,
}

impl EtcdCluster {
    /// Starts one member.
    pub fn single() -> Self {
        Self::start(EtcdOptions::default())
    }

    /// Starts three members.
    pub fn three() -> Self {
        Self::start(EtcdOptions { members: 3, ..EtcdOptions::default() })
    }

    /// Starts a cluster in a temporary directory.
    pub fn start(options: EtcdOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let cluster = Self::start_in(dir.path(), options).unwrap_or_else(|error| panic!("etcd: {error}"));
        Self { _temp_dir: Some(dir), ..cluster }
    }

    /// Starts a cluster with its data and logs in `dir`, and waits until it has a leader.
    pub fn start_in(dir: &Path, options: EtcdOptions) -> io::Result<Self> {
        let member = |at| EtcdMemberProcess {
            client: unused_address(),
            peer: unused_address(),
            name: format!("m{at}"),
            process: None,
            is_wrapped: false,
        };
        let members: Vec<_> = (0..options.members.max(1)).map(member).collect();
        let mut cluster = Self { members, options, dir: dir.to_owned(), _temp_dir: None };
        for at in 0..cluster.members.len() {
            cluster.start_member(at)?;
        }
        match (0..cluster.members.len()).find(|at| !cluster.wait_until_healthy(*at)) {
            None => Ok(cluster),
            Some(at) => {
                let log = std::fs::read_to_string(cluster.log_path(at)).unwrap_or_default();
                Err(io::Error::other(format!("member {at} does not start: {log}")))
            }
        }
    }

    /// Directory with the data and logs. Tests may keep their own files there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a member, or restarts it with its data.
    pub fn start_member(&mut self, at: usize) -> io::Result<()> {
        let wrapper = self.options.wrapper.clone();
        self.start_member_under(at, &wrapper.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts a member with another wrapper.
    pub fn start_member_under(&mut self, at: usize, wrapper: &[&str]) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path(at))?;
        let member = &self.members[at];
        let (client, peer) = (format!("http://{}", member.client), member.peer_url());
        let mut command = tied_command("KILL", wrapper);
        command.args(["etcd", "--name", &member.name, "--data-dir"]).arg(self.dir.join(&member.name));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.initial_cluster(), "--initial-cluster-token", CLUSTER_TOKEN]);
        command.args(&self.options.flags).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH).stderr(log);
        let member = &mut self.members[at];
        member.process = Some(TestProcess::spawn_tied(command)?);
        member.is_wrapped = !wrapper.is_empty();
        Ok(())
    }

    fn initial_cluster(&self) -> String {
        let members = self.members.iter().map(|member| format!("{}={}", member.name, member.peer_url()));
        members.collect::<Vec<_>>().join(",")
    }

    fn log_path(&self, at: usize) -> PathBuf {
        self.dir.join(format!("{}.log", self.members[at].name))
    }

    /// Waits until a member knows a leader. False if its process ended, or after [`TIMEOUT`].
    pub fn wait_until_healthy(&mut self, at: usize) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        let member = &mut self.members[at];
        while Instant::now() < deadline && member.process.as_mut().is_some_and(|it| it.try_wait().is_none()) {
            if is_healthy(member.client) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Restarts a member with its data, and waits until it knows a leader.
    #[track_caller]
    pub fn restart_member(&mut self, at: usize) {
        self.start_member(at).expect("etcd is installed");
        assert!(self.wait_until_healthy(at), "member {at} does not restart");
    }

    /// Process of a member. Panics if it was killed.
    #[track_caller]
    pub fn process(&self, at: usize) -> &TestProcess {
        self.members[at].process.as_ref().expect("the member runs")
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, at: usize) {
        self.members[at].process = None;
    }

    /// Waits until a member leads the others, and returns its index.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let leads = |member: &EtcdMemberProcess| get(member.client, "/metrics").contains("etcd_server_is_leader 1");
            if let Some(at) = self.members.iter().position(leads) {
                return at;
            }
            assert!(Instant::now() < deadline, "etcd has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the only member, replaces its data by a snapshot, and restarts it under its name: it keeps its cluster id.
    pub fn restore_snapshot(&mut self, snapshot: &str) {
        self.kill(0);
        let member = &self.members[0];
        let data = self.dir.join(&member.name);
        std::fs::remove_dir_all(&data).expect("the member had data");
        let (name, peer, cluster) = (&member.name, &member.peer_url(), &self.initial_cluster());
        let options = ["--name", name, "--initial-cluster", cluster, "--initial-advertise-peer-urls", peer];
        let more = ["--initial-cluster-token", CLUSTER_TOKEN, "--data-dir", data.to_str().expect("a UTF-8 path")];
        self.ctl_ok(&[&["snapshot", "restore", snapshot][..], &options, &more].concat());
        self.restart_member(0);
    }

    /// Client addresses of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.to_string()).collect()
    }

    /// Runs etcdctl with the first member.
    pub fn ctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.members[0].client.to_string()]).args(args);
        command.stdin(Stdio::null()).output().expect("etcdctl is installed; ./test does it")
    }

    /// Runs etcdctl, which must succeed, and returns its output.
    #[track_caller]
    pub fn ctl_ok(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(output.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("etcdctl prints text")
    }

    /// Enables authentication for root and these users, each with its permission below `prefix` and the password `secret`.
    pub fn enable_auth(&self, prefix: &str, users: &[(&str, &str)]) {
        self.ctl_ok(&["user", "add", "root:secret"]);
        self.ctl_ok(&["user", "grant-role", "root", "root"]);
        for (name, permission) in users {
            self.ctl_ok(&["role", "add", name]);
            self.ctl_ok(&["role", "grant-permission", name, permission, "--prefix=true", prefix]);
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

impl EtcdMemberProcess {
    fn peer_url(&self) -> String {
        format!("http://{}", self.peer)
    }
}

/// Whether the member at this client or metrics address knows a leader.
pub fn is_healthy(address: SocketAddr) -> bool {
    get(address, "/health").contains("true")
}

/// The response of a member; empty if it does not respond.
fn get(address: SocketAddr, path: &str) -> String {
    let request = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    request().unwrap_or_default()
}
