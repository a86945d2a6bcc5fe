//! The server that a bench drives: a process of its own in a directory of its own, or one that is there already.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};

use crate::told::Failure;

/// How long a server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process that ends with the bench.
pub struct Own {
    child: Child,
    directory: PathBuf,
    addr: String,
    started: Instant,
}

impl Own {
    /// Starts a server on a fresh directory inside of this one.
    pub fn start(beside: &Path) -> Result<Self, Failure> {
        let directory = beside.join(format!("leasehold-bench-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| failed(&format!("{}: {error}", directory.display())))?;
        let port = free_port().map_err(|error| failed(&format!("no free port: {error}")))?;
        let addr = format!("127.0.0.1:{port}");
        let child = spawn(&directory, &addr)?;
        Ok(Self { child, directory, addr, started: Instant::now() })
    }

    /// Kills the server and starts it again on what it left.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.kill();
        self.started = Instant::now();
        self.child = spawn(&self.directory, &self.addr)?;
        Ok(())
    }

    /// Where it is.
    pub fn endpoints(&self) -> Result<Endpoints, Failure> {
        Ok(Endpoints::parse(&self.addr)?)
    }

    /// A client of its own for it.
    pub fn client(&self) -> Result<Client, Failure> {
        self.endpoints().map(Client::connect)
    }

    /// Waits until it answers, and tells how long that took since its start.
    pub async fn answers(&self) -> Result<Duration, Failure> {
        loop {
            // A client of its own each time: a broken connection waits before it is tried again.
            match self.client()?.status().await {
                Ok(_) => return Ok(self.started.elapsed()),
                Err(error) if self.started.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Processor time used so far.
    pub fn processor(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The command's name may hold spaces; the fields count from behind its bracket.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / rustix::param::clock_ticks_per_second())
    }

    /// Bytes of memory that it has now.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024
    }

    fn kill(&mut self) {
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
        // What cannot be removed is left where the system cleans up.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn spawn(directory: &Path, addr: &str) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| failed(&format!("cannot find itself: {error}")))?;
    Command::new(program)
        .args(["serve", "--listen", addr, "--data"])
        .arg(directory.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&format!("cannot start a server: {error}")))
}

fn free_port() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|addr| addr.port())
}

pub fn failed(why: &str) -> Failure {
    Failure::Other(format!("bench: {why}"))
}
