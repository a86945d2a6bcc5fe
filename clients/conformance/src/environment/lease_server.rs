//! A `leasehold serve` process that can be killed, stopped, paused and restarted at the same address.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;

use leasehold_testkit::ports::unused_address;
use leasehold_testkit::process::{TIMEOUT, TestProcess, tied_command};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::http_request::{self, RunnerResponse, ServerEndpoint};

/// A server with its directory.
pub struct LeaseServer {
    binary: PathBuf,
    /// Address of the server, the same after a restart.
    pub address: String,
    flags: Vec<String>,
    is_tls: bool,
    directory: TempDir,
    process: Option<TestProcess>,
}

impl LeaseServer {
    /// Starts a server with additional flags, and waits until it listens.
    pub fn start(binary: &Path, flags: &[String]) -> io::Result<Self> {
        let directory = leasehold_testkit::temp_dir::in_memory()?;
        let is_tls = flags.iter().any(|flag| flag == "--tls-cert");
        let (binary, address, flags) = (binary.to_owned(), unused_address().to_string(), flags.to_vec());
        let mut server = Self { binary, address, flags, is_tls, directory, process: None };
        server.restart()?;
        Ok(server)
    }

    /// Path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("server.sock")
    }

    /// Starts the process again on its directory, and waits until it listens.
    pub fn restart(&mut self) -> io::Result<()> {
        let mut command = tied_command("KILL", &[]);
        command.arg(&self.binary).args(["serve", "--listen", &self.address, "--data"]);
        command.arg(self.directory.path().join("data")).arg("--socket").arg(self.socket()).args(&self.flags);
        command.env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL");
        let (output, write_end) = io::pipe()?;
        command.stderr(write_end);
        self.process = Some(TestProcess::spawn_tied(command)?);
        let mut log = File::options().create(true).append(true).open(self.log())?;
        let (sender, ready) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // For people who examine a failed run.
                let _ = writeln!(log, "{line}");
                if line.contains("serving on ") || line.contains("standing by on ") {
                    let _ = sender.send(());
                }
            }
        });
        ready.recv_timeout(TIMEOUT).map_err(|_| {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            io::Error::other(format!("the server does not start: {log}"))
        })
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts the process down with SIGTERM and waits for its end.
    pub fn shut_down(&mut self) -> io::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::TERM)?;
            process.wait();
        }
        Ok(())
    }

    /// Stops the process with SIGSTOP.
    pub fn pause(&self) {
        if let Some(process) = &self.process {
            process.stop();
        }
    }

    /// Continues a stopped process.
    pub fn resume(&self) {
        if let Some(process) = &self.process {
            process.resume();
        }
    }

    /// Where the runner reaches the server, with all rights.
    pub fn endpoint(&self) -> ServerEndpoint {
        if self.is_tls { ServerEndpoint::Unix(self.socket()) } else { ServerEndpoint::Tcp(self.address.clone()) }
    }

    /// Whether the server leads and completes turns.
    pub fn is_ready(&self) -> bool {
        let ready = |response: RunnerResponse| response.text.ends_with("ready\n");
        self.process.is_some() && http_request::send(&self.endpoint(), "GET", "/readyz", None).is_ok_and(ready)
    }

    /// Runs a command of the operator against these addresses.
    pub fn run_cli(binary: &Path, addresses: &str, words: &[String]) -> io::Result<String> {
        let mut command = Command::new(binary);
        for name in ["LEASEHOLD_PROFILE", "LEASEHOLD_TLS_CA", "LEASEHOLD_TLS_CERT", "LEASEHOLD_TLS_KEY"] {
            command.env_remove(name);
        }
        let output = command.args(words).env("LEASEHOLD_ADDR", addresses).output()?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(io::Error::other(format!("leasehold {words:?}: {}", String::from_utf8_lossy(&output.stderr))))
        }
    }
}
