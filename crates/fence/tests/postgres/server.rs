//! Starts a PostgreSQL server for a test, in a temporary directory with a socket there. It runs as a user other than root,
//! because PostgreSQL refuses root. If it cannot be started, the test fails.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

/// A running server; dropping it stops the server and removes its data.
pub struct Server {
    dir: TempDir,
    process: Mutex<Child>,
}

impl Server {
    /// Returns the server shared by the tests of this process; each test uses its own database.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(&[]));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts a server with these settings.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_below(Path::new("/dev/shm"), settings)
    }

    /// Starts a server with its data below `parent`, or below the default temporary directory if that fails.
    pub fn start_below(parent: &Path, settings: &[&str]) -> Self {
        let dir = tempfile::tempdir_in(parent).or_else(|_| tempfile::tempdir()).expect("a directory");
        if geteuid().is_root() {
            let (uid, gid) = other_user();
            chown(dir.path(), Some(uid), Some(gid)).expect("root can change the owner");
        }
        let initdb = program("initdb")
            .args(["--no-sync", "--auth=trust", "--username=leasehold", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(dir.path().join("data"))
            .output()
            .expect("initdb can be started; ./test installs PostgreSQL");
        assert!(initdb.status.success(), "initdb: {}", String::from_utf8_lossy(&initdb.stderr));
        let process = Mutex::new(postgres(dir.path(), settings));
        let server = Self { dir, process };
        server.wait_until_ready();
        server
    }

    /// Stops the server without a checkpoint, as in a crash, and restarts it.
    pub fn crash_and_restart(&self) {
        self.restart_after(Signal::QUIT);
    }

    /// Kills the server with `kill -9` and restarts it. A restart is refused until the backends have noticed and ended.
    pub fn kill_and_restart(&self) {
        self.restart_after(Signal::KILL);
    }

    fn restart_after(&self, signal: Signal) {
        let mut process = self.process.lock().expect("not poisoned");
        kill_process(Pid::from_child(&process), signal).expect("it is our child");
        process.wait().expect("it is our child");
        self.wait_for_backends_to_end();
        *process = postgres(self.dir.path(), &[]);
        drop(process);
        self.wait_until_ready();
    }

    /// Waits until no process is attached to the shared memory named in the lock file; PostgreSQL checks the same.
    fn wait_for_backends_to_end(&self) {
        let Ok(lock) = fs::read_to_string(self.dir.path().join("data/postmaster.pid")) else { return };
        let segment = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned);
        let deadline = Instant::now() + Duration::from_secs(120);
        while let Some(id) = &segment
            && is_attached(id)
        {
            assert!(Instant::now() < deadline, "a backend outlived its server");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn socket(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a connection.
    pub async fn connect(&self, user: &str, database: &str) -> Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        let (client, connection) = config.host_path(self.socket()).user(user).dbname(database).connect(NoTls).await?;
        // It ends with the client, or with an error that the client's calls return.
        tokio::spawn(connection);
        Ok(client)
    }

    fn wait_until_ready(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let deadline = Instant::now() + Duration::from_secs(120);
        let ready = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    runtime.block_on(async {
                        loop {
                            let error = match self.connect("leasehold", "postgres").await {
                                Ok(_) => return Ok(()),
                                Err(error) => error,
                            };
                            if Instant::now() > deadline
                                || self.process.lock().expect("ours").try_wait().expect("ours").is_some()
                            {
                                return Err(error);
                            }
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    })
                })
                .join()
                .expect("no panic")
        });
        let log = || fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        ready.unwrap_or_else(|error| panic!("PostgreSQL does not accept connections: {error}\n{}", log()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Fast shutdown; fails if the process has already ended.
        kill_process(Pid::from_child(process), Signal::INT).ok();
        process.wait().ok();
    }
}

/// Whether a process is attached to this shared memory segment.
fn is_attached(id: &str) -> bool {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| row.get(1) == Some(&id));
    row.is_some_and(|row| row.get(6).is_some_and(|count| *count != "0"))
}

fn postgres(dir: &Path, settings: &[&str]) -> Child {
    let log = fs::File::create(dir.join("log")).expect("a log");
    let mut command = program("postgres");
    command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir).args(["-c", "listen_addresses="]);
    command.args(["-c", "max_connections=60", "-c", "shared_buffers=16MB"]);
    settings.iter().for_each(|setting| {
        command.args(["-c", setting]);
    });
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("postgres can be started")
}

/// Command for a PostgreSQL program, run as a user that it accepts.
fn program(name: &str) -> Command {
    let path = program_dir().join(name);
    if !geteuid().is_root() {
        return Command::new(path);
    }
    let (uid, gid) = other_user();
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]).arg(path);
    // The other user cannot access root's home or working directory.
    command.env_remove("HOME").current_dir("/");
    command
}

/// Directory of the newest version's programs on Debian.
fn program_dir() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let newest = versions
        .iter()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()))
        .filter(|version| Path::new(&format!("/usr/lib/postgresql/{version}/bin/initdb")).exists())
        .max();
    let newest = newest.expect("PostgreSQL's server is installed; ./test does it");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"))
}

fn other_user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("readable");
    let find = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).expect("a user other than root")
}
