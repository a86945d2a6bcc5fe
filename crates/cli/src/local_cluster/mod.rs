//! Local servers and etcd members that `bench`, `demo` and `dev-cluster` start in a temporary directory. They are killed with
//! the process that started them.

mod certificates;
mod child;
mod ctrl_c;
pub mod etcd;
pub mod servers;
mod temp_dir;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use crate::output::CommandError;
use certificates::LocalCertificates;
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
    /// With TLS.
    certificates: Option<LocalCertificates>,
    started: Instant,
    /// Declared after the process, so that the process ends first.
    dir: TempDir,
}

impl LocalServer {
    /// Starts a server in a new temporary directory in `parent`.
    pub fn start(command: &'static str, parent: &Path) -> Result<Self, CommandError> {
        let dir = TempDir::create(command, parent).map_err(|error| failed(command, &error))?;
        Self::start_in(command, dir, None)
    }

    /// The same with TLS 1.3, client certificates and access rules.
    pub fn start_with_tls(command: &'static str, parent: &Path) -> Result<Self, CommandError> {
        let dir = TempDir::create(command, parent).map_err(|error| failed(command, &error))?;
        let certificates = LocalCertificates::create(dir.path())?;
        Self::start_in(command, dir, Some(certificates))
    }

    fn start_in(
        command: &'static str,
        dir: TempDir,
        certificates: Option<LocalCertificates>,
    ) -> Result<Self, CommandError> {
        let spawned = spawn(dir.path(), certificates.as_ref());
        let (process, listening) = spawned.map_err(|error| failed(command, &error))?;
        Ok(Self { command, process, listening, certificates, started: Instant::now(), dir })
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
        let spawned = spawn(self.dir.path(), self.certificates.as_ref());
        (self.process, self.listening) = spawned.map_err(|error| failed(self.command, &error))?;
        Ok(())
    }

    /// Waits until the server replies. Returns its endpoint and the time since its start.
    pub async fn wait_ready(&mut self) -> Result<(Endpoints, Duration), CommandError> {
        let addr = tokio::time::timeout(START_TIMEOUT, &mut self.listening).await;
        let addr = addr.map_err(|_| failed(self.command, "the server did not start in time"))?;
        let addr = addr.map_err(|_| failed(self.command, "the server exited before it served"))?;
        let mut endpoints = Endpoints::parse(&addr)?;
        if let Some(certificates) = &self.certificates {
            endpoints = certificates.with_client(endpoints);
        }
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
fn spawn(
    dir: &Path,
    certificates: Option<&LocalCertificates>,
) -> Result<(ChildProcess, oneshot::Receiver<String>), String> {
    let flags: [OsString; 4] = ["--listen".into(), "127.0.0.1:0".into(), "--data".into(), dir.join("data").into()];
    let more = certificates.map(LocalCertificates::flags);
    ChildProcess::server(dir, flags.into_iter().chain(more.into_iter().flatten()))
}

fn failed(command: &str, message: &str) -> CommandError {
    CommandError::Other(format!("{command}: {message}"))
}
