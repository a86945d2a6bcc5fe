//! A real PostgreSQL server on a Unix socket, run by a user other than root, because PostgreSQL refuses root. It can be killed,
//! and its backends can be stopped.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::process::{TIMEOUT, TestProcess, tied_command};

/// Database superuser of every server; it needs no password.
pub const USER: &str = "leasehold";
/// Database that every server has.
pub const DATABASE: &str = "postgres";

const INSTALL_DIR: &str = "/usr/lib/postgresql";

/// A PostgreSQL server. Dropping it stops the server and removes its data.
#[derive(Debug)]
pub struct PostgresServer {
    dir: TempDir,
    process: TestProcess,
    settings: Vec<String>,
}

impl PostgresServer {
    /// Creates a database cluster in memory and starts the server with these settings. [`PostgresServer::wait_until_ready`]
    /// waits until it accepts connections.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        Self::start_in(crate::temp_dir::in_memory()?, settings)
    }

    /// Creates a database cluster in `dir` and starts the server.
    pub fn start_in(dir: TempDir, settings: &[&str]) -> io::Result<Self> {
        give_to_server_user(dir.path())?;
        let initdb = program("initdb")?
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "-D"])
            .arg(dir.path().join("data"))
            .output()?;
        if !initdb.status.success() {
            return Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&initdb.stderr))));
        }
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Self { process: spawn(dir.path(), &settings)?, dir, settings })
    }

    /// Copies this server and starts the copy as a streaming standby, which accepts read-only connections.
    pub fn start_standby(&self) -> io::Result<Self> {
        self.start_copy(&["--write-recovery-conf"])
    }

    /// Copies this server with pg_basebackup and these options, and starts the copy. Without a configuration for recovery it is a
    /// primary on the same timeline.
    pub fn start_copy(&self, options: &[&str]) -> io::Result<Self> {
        let dir = crate::temp_dir::in_memory()?;
        give_to_server_user(dir.path())?;
        let mut backup = program("pg_basebackup")?;
        backup.args(options).args(["--no-sync", "--checkpoint=fast", "--username", USER, "--host"]);
        let copied = backup.arg(self.socket_dir()).arg("--pgdata").arg(dir.path().join("data")).output()?;
        if !copied.status.success() {
            return Err(io::Error::other(format!("pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr))));
        }
        Ok(Self { process: spawn(dir.path(), &self.settings)?, dir, settings: self.settings.clone() })
    }

    /// Crashes a standby and starts it as a primary without a promotion, so that it stays on its timeline.
    pub fn restart_as_primary(&mut self) -> io::Result<()> {
        self.crash();
        fs::remove_file(self.dir.path().join("data/standby.signal"))?;
        self.restart_when_gone();
        Ok(())
    }

    /// Directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(".s.PGSQL.5432")
    }

    /// Waits until the server accepts connections, as its lock file reports. Panics with its log if it ends, or after
    /// [`TIMEOUT`].
    pub fn wait_until_ready(&mut self) {
        let (deadline, own) = (Instant::now() + TIMEOUT, self.process.id().to_string());
        loop {
            let lock = self.lock_file().unwrap_or_default();
            let mut lines = lock.lines();
            if lines.next() == Some(own.as_str())
                && lines.nth(6).is_some_and(|status| ["ready", "standby"].contains(&status.trim()))
            {
                return;
            }
            if Instant::now() > deadline || self.process.try_wait().is_some() {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("PostgreSQL does not accept connections: {log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends SIGKILL to the server. Its backends end when they notice.
    pub fn kill(&mut self) {
        self.signal_backends(Signal::CONT, usize::MAX);
        self.process.kill();
    }

    /// Ends the server without a checkpoint, as in a crash.
    pub fn crash(&mut self) {
        self.signal_backends(Signal::CONT, usize::MAX);
        // SIGQUIT ends the server and its backends immediately. Fails if the server has ended.
        let _ = self.process.signal(Signal::QUIT);
        if self.process.wait_within(TIMEOUT).is_none() {
            self.process.kill();
        }
    }

    /// Whether the backends of an ended server have ended too, so that it can be restarted: no process is attached to its shared
    /// memory. PostgreSQL checks the same.
    pub fn is_gone(&self) -> bool {
        let Some(lock) = self.lock_file() else { return true };
        let segment = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned);
        segment.is_none_or(|id| !is_attached(&id))
    }

    /// Waits until the ended server is gone, restarts it on the same data, and waits until it is ready.
    pub fn restart_when_gone(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.is_gone() {
            assert!(Instant::now() < deadline, "a backend outlived its server");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.restart().expect("PostgreSQL can be started");
        self.wait_until_ready();
    }

    /// Restarts the server on the same data. It must be gone.
    pub fn restart(&mut self) -> io::Result<()> {
        self.process = spawn(self.dir.path(), &self.settings)?;
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

    fn lock_file(&self) -> Option<String> {
        fs::read_to_string(self.dir.path().join("data/postmaster.pid")).ok()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Whether a process is attached to this shared memory segment.
fn is_attached(id: &str) -> bool {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| row.get(1) == Some(&id));
    row.is_some_and(|row| row.get(6).is_some_and(|count| *count != "0"))
}

fn spawn(dir: &Path, settings: &[String]) -> io::Result<TestProcess> {
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = program("postgres")?;
    command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir).args(["-c", "listen_addresses="]);
    command.args(["-c", "max_connections=60", "-c", "shared_buffers=16MB"]).stderr(log);
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    TestProcess::spawn_tied(command)
}

/// PostgreSQL refuses root, so its directory belongs to the user that runs it.
fn give_to_server_user(dir: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        let (uid, gid) = other_user()?;
        chown(dir, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// A PostgreSQL program, run by a user that it accepts. It ends with this process.
fn program(name: &str) -> io::Result<Command> {
    let path = program_dir()?.join(name);
    let path = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    let mut command = if geteuid().is_root() {
        let (uid, gid) = other_user()?;
        tied_command("QUIT", &[&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", path])
    } else {
        tied_command("QUIT", &[path])
    };
    // The other user cannot enter root's home and working directory.
    command.env_remove("HOME").current_dir("/");
    Ok(command)
}

/// Directory of the newest version's programs on Debian.
fn program_dir() -> io::Result<PathBuf> {
    let versions = fs::read_dir(INSTALL_DIR).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let versions = versions.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let bin = |version: &u32| Path::new(INSTALL_DIR).join(version.to_string()).join("bin");
    let newest = versions.filter(|version| bin(version).join("initdb").exists()).max();
    let newest = newest.ok_or_else(|| io::Error::other("PostgreSQL's server is not installed (Debian: postgresql)"))?;
    Ok(bin(&newest))
}

fn other_user() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).ok_or_else(|| io::Error::other("no user other than root"))
}
