//! A real PostgreSQL server on a Unix socket, run by a user other than root. It can be killed, and its backends can be stopped.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::process::{ChaosProcess, TIMEOUT, command_tied_to_run};

/// Database user of a run.
pub const USER: &str = "leasehold";
/// Database of a run.
pub const DATABASE: &str = "postgres";

/// A PostgreSQL server.
pub struct Postgres {
    dir: TempDir,
    process: ChaosProcess,
}

impl Postgres {
    /// Creates a database cluster and starts the server.
    pub fn start() -> io::Result<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        if geteuid().is_root() {
            let (uid, gid) = other_user()?;
            chown(dir.path(), Some(uid), Some(gid))?;
        }
        let made = program("initdb")?
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "-D"])
            .arg(dir.path().join("data"))
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&made.stderr))));
        }
        let process = server(dir.path())?;
        Ok(Self { dir, process })
    }

    /// Path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(".s.PGSQL.5432")
    }

    /// Connects as soon as the server accepts connections.
    pub async fn connect(&self) -> io::Result<Client> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let mut config = Config::new();
            config.host_path(self.dir.path()).user(USER).dbname(DATABASE);
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    // The task ends with the client; errors surface in the client's calls.
                    tokio::spawn(connection);
                    return Ok(client);
                }
                Err(error) if Instant::now() > until => return Err(io::Error::other(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Sends SIGKILL to the server; its child processes end when they notice.
    pub fn kill(&mut self) {
        self.signal_backends(Signal::CONT, usize::MAX);
        self.process.kill();
    }

    /// Whether the child processes of a killed server have ended, so that it can be restarted.
    pub fn is_gone(&self) -> bool {
        let Ok(lock) = fs::read_to_string(self.dir.path().join("data/postmaster.pid")) else { return true };
        let segment = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned);
        segment.is_none_or(|id| !attached(&id))
    }

    /// Restarts the server on the same data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.process = server(self.dir.path())?;
        Ok(())
    }

    /// Sends a signal to at most `limit` backends that serve clients. Returns their number.
    pub fn signal_backends(&self, signal: Signal, limit: usize) -> usize {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let serves = |child: &&str| {
            let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line.starts_with(format!("postgres: {USER} ").as_bytes())
        };
        let pids = children.split_whitespace().filter(serves).filter_map(|child| Pid::from_raw(child.parse().ok()?));
        pids.take(limit).filter(|pid| kill_process(*pid, signal).is_ok()).count()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.signal_backends(Signal::CONT, usize::MAX);
        // SIGQUIT ends the server and its children immediately.
        self.process.signal(Signal::QUIT);
        self.process.wait();
    }
}

/// Whether a process is still attached to this shared memory segment.
fn attached(id: &str) -> bool {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| row.get(1) == Some(&id));
    row.is_some_and(|row| row.get(6).is_some_and(|count| *count != "0"))
}

fn server(dir: &Path) -> io::Result<ChaosProcess> {
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = program("postgres")?;
    command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir).args(["-c", "listen_addresses="]);
    command.args(["-c", "max_connections=60", "-c", "shared_buffers=16MB"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    ChaosProcess::start(&mut command)
}

/// A PostgreSQL program, run by a user that it accepts. It ends with this process.
fn program(name: &str) -> io::Result<Command> {
    let path = programs()?.join(name);
    let path = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    let mut command = if geteuid().is_root() {
        let (uid, gid) = other_user()?;
        command_tied_to_run("QUIT", &[&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", path])
    } else {
        command_tied_to_run("QUIT", &[path])
    };
    // The other user cannot enter our home and working directory.
    command.env_remove("HOME").current_dir("/").stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Directory of the newest PostgreSQL programs on Debian.
fn programs() -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let newest = versions.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = newest.map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let found = found.filter(|bin| bin.join("initdb").exists()).max();
    found.ok_or_else(|| io::Error::other("PostgreSQL's server is not installed (Debian: postgresql)"))
}

fn other_user() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let of = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    of("postgres").or_else(|| of("nobody")).ok_or_else(|| io::Error::other("no user other than root"))
}
