//! Local servers and etcd members that `bench`, `demo` and `dev-cluster` start in a temporary directory. They are killed with
//! the process that started them.

mod child;
mod ctrl_c;
pub mod etcd;
pub mod servers;
mod temp_dir;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use crate::output::CommandError;
pub use child::ChildProcess;
pub use ctrl_c::interrupt_signal;
use temp_dir::TempDir;

/// Time that a server has from its start to its first reply.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A single server process with a file journal.
pub struct LocalServer {
    /// The command that uses it, for error messages.
    command: &'static str,
    process: ChildProcess,
    /// The address that it logs when it serves.
    listening: oneshot::Receiver<String>,
    started: Instant,
    /// Declared after the process, so that the process ends first.
    dir: TempDir,
}

impl LocalServer {
    /// Starts a server in a new temporary directory in `parent`.
    pub fn start(command: &'static str, parent: &Path) -> Result<Self, CommandError> {
        let dir = TempDir::create(command, parent).map_err(|error| failed(command, &error))?;
        let (process, listening) = spawn(dir.path()).map_err(|error| failed(command, &error))?;
        Ok(Self { command, process, listening, started: Instant::now(), dir })
    }

    /// Its temporary directory, which the caller may use too.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Kills the server and starts it again with the same data.
    pub fn restart(&mut self) -> Result<(), CommandError> {
        self.process.kill();
        self.started = Instant::now();
        (self.process, self.listening) = spawn(self.dir.path()).map_err(|error| failed(self.command, &error))?;
        Ok(())
    }

    /// Waits until the server replies. Returns its address and the time since its start.
    pub async fn wait_ready(&mut self) -> Result<(Endpoints, Duration), CommandError> {
        let addr = tokio::time::timeout(START_TIMEOUT, &mut self.listening).await;
        let addr = addr.map_err(|_| failed(self.command, "the server did not start in time"))?;
        let addr = addr.map_err(|_| failed(self.command, "the server exited before it served"))?;
        let endpoints = Endpoints::parse(&addr)?;
        loop {
            // A new client each time: a client waits before it retries a broken connection.
            match Client::from(endpoints.clone()).status().await {
                Ok(_) => return Ok((endpoints, self.started.elapsed())),
                Err(error) if self.started.elapsed() > START_TIMEOUT => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }
}

/// Runs the cleanup process if this process was started as one.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    temp_dir::run_internal_subcommand()
}

/// Spawns a server on port 0: the kernel selects a free port, so that no other process can take it in between.
fn spawn(dir: &Path) -> Result<(ChildProcess, oneshot::Receiver<String>), String> {
    let data = dir.join("data");
    ChildProcess::server(dir, ["--listen".as_ref(), "127.0.0.1:0".as_ref(), "--data".as_ref(), data.as_os_str()])
}

fn failed(command: &str, message: &str) -> CommandError {
    CommandError::Other(format!("{command}: {message}"))
}
