//! Starts a server process for a test, in a temporary directory and at an unused address. It ends with the test, even if the
//! test is killed. If it cannot be started, the test fails.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Arguments of the program, given its directory.
type Arguments = Box<dyn Fn(&Path) -> Vec<String> + Send + Sync>;

/// A running server process.
pub struct Daemon {
    program: &'static str,
    arguments: Arguments,
    process: Mutex<Child>,
    dir: TempDir,
}

impl Daemon {
    pub fn start(program: &'static str, arguments: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let arguments: Arguments = Box::new(arguments);
        let process = Mutex::new(run(program, &arguments(dir.path()), dir.path()));
        Self { program, arguments, process, dir }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the process with `kill -9` and waits for it.
    pub fn kill(&self) {
        let mut process = self.process.lock().expect("not poisoned");
        process.kill().expect("it is our child");
        process.wait().expect("it is our child");
    }

    /// Starts the process again in the same directory.
    pub fn start_again(&self) {
        *self.process.lock().expect("not poisoned") =
            run(self.program, &(self.arguments)(self.dir.path()), self.dir.path());
    }

    /// Retries a request until it succeeds.
    pub async fn answers<T, E, F>(&self, request: impl Fn() -> F + Send + Sync) -> T
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>> + Send,
    {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let error = match request().await {
                Ok(reply) => return reply,
                Err(error) => error.to_string(),
            };
            let ended = self.process.lock().expect("not poisoned").try_wait().expect("it is our child");
            if Instant::now() > deadline || ended.is_some() {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("{} does not respond ({ended:?}): {error}\n{log}", self.program);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Fails if it has already ended.
        process.kill().ok();
        process.wait().ok();
    }
}

/// The kernel kills the process with the thread that started it, so that it does not outlive a killed test.
fn run(program: &str, arguments: &[String], dir: &Path) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a log");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]).args(arguments).current_dir(dir);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
    command.spawn().expect("setpriv can be started; it comes with util-linux")
}

/// Returns an address that only this process uses, below the ephemeral ports, so that it stays free across restarts.
pub fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 | (a & 63), b, c.max(1))), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Selects one of three numbers by `LEASEHOLD_DEPTH`.
pub fn depth(quick: u64, full: u64, deep: u64) -> u64 {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}
