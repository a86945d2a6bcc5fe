//! A server program of a third party, in a temporary directory of its own. It ends with the test, even if the test is killed.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{TIMEOUT, TestProcess, tied_command};

/// Arguments of the program, given its directory.
type Arguments = Box<dyn Fn(&Path) -> Vec<String> + Send + Sync>;

/// A running server process, killed on drop.
pub struct ThirdPartyServer {
    program: &'static str,
    arguments: Arguments,
    process: Mutex<TestProcess>,
    dir: TempDir,
}

impl ThirdPartyServer {
    /// Starts a program in a directory in memory. `arguments` gets that directory.
    pub fn start(program: &'static str, arguments: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static) -> Self {
        let dir = crate::temp_dir::in_memory().expect("a directory");
        let arguments: Arguments = Box::new(arguments);
        let process = Mutex::new(spawn(program, &arguments, dir.path()));
        Self { program, arguments, process, dir }
    }

    /// Directory of the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the process with SIGKILL and waits for it.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Starts the process again in the same directory.
    pub fn restart(&self) {
        *self.process() = spawn(self.program, &self.arguments, self.dir.path());
    }

    /// Retries a request until it succeeds. Panics with the server's log if the server ends, or after [`TIMEOUT`].
    pub async fn retry<T, E, F>(&self, request: impl Fn() -> F) -> T
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let error = match request().await {
                Ok(reply) => return reply,
                Err(error) => error.to_string(),
            };
            let ended = self.process().try_wait();
            if Instant::now() > deadline || ended.is_some() {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("{} does not respond ({ended:?}): {error}\n{log}", self.program);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn process(&self) -> MutexGuard<'_, TestProcess> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(program: &str, arguments: &Arguments, dir: &Path) -> TestProcess {
    let log = OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a log");
    let mut command = tied_command("KILL", &[program]);
    command.args(arguments(dir)).current_dir(dir).stdout(log.try_clone().expect("a log")).stderr(log);
    TestProcess::spawn_tied(command).expect("setpriv can be started; it comes with util-linux")
}
