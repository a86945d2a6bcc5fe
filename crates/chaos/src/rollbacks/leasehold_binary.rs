//! The `leasehold` binary: servers, and client commands with their JSON output.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::process::{TestProcess, tied_command};
use rustix::process::Signal;
use serde_json::Value;

/// Upper bound of every wait, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The binary under test.
pub struct LeaseholdBinary {
    binary: PathBuf,
}

/// A running server.
pub struct Server {
    /// Its address.
    pub address: String,
    process: TestProcess,
}

/// The result of a client command.
pub struct CommandOutcome {
    /// Whether it succeeded.
    pub ok: bool,
    /// Standard output and standard error.
    pub text: String,
    /// The JSON document on standard output.
    pub json: Value,
}

/// A lease that was granted.
#[derive(Clone)]
pub struct GrantedToken {
    /// The resource.
    pub resource: String,
    /// The token text.
    pub token: String,
}

impl LeaseholdBinary {
    /// The binary at a path, which must exist.
    pub fn new(binary: PathBuf) -> io::Result<Self> {
        if binary.exists() {
            return Ok(Self { binary });
        }
        let next = "build it (cargo build -p leasehold-cli), or set --leasehold";
        Err(io::Error::other(format!("{} does not exist; {next}", binary.display())))
    }

    /// Starts a server and waits until it listens; the error is the log of one that does not start.
    pub fn serve(&self, data: &Path, args: &[&str]) -> Result<Server, String> {
        let mut command = tied_command("KILL", &[]);
        command.arg(&self.binary).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(args);
        command
            .env_remove("NOTIFY_SOCKET")
            .env_remove("LEASEHOLD_LOG_LEVEL")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = TestProcess::spawn_tied(command).map_err(|error| error.to_string())?;
        while let Some(line) = process.stderr().next_line() {
            let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
            if let Some(address) = at.and_then(|rest| rest.split(',').next()) {
                return Ok(Server { address: address.to_owned(), process });
            }
        }
        let status = process.wait();
        Err(format!("{status}: {}", process.stderr().so_far().join("\n")))
    }

    /// Runs a client command against a server.
    pub fn call(&self, server: &Server, args: &[&str]) -> io::Result<CommandOutcome> {
        let mut command = Command::new(&self.binary);
        command.args(args).arg("--json").env("LEASEHOLD_ADDR", &server.address).env_remove("LEASEHOLD_TOKEN");
        let output = command.stdin(Stdio::null()).output()?;
        let text = [&output.stdout[..], &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(CommandOutcome { ok: output.status.success(), text, json })
    }

    /// Acquires a resource; waits until the server leads.
    pub fn acquire(&self, server: &Server, resource: &str) -> io::Result<GrantedToken> {
        server.wait_until_ready()?;
        let outcome = self.call(server, &["acquire", resource, "--holder", "chaos", "--ttl", "10m"])?;
        match outcome.json["token"].as_str().filter(|_| outcome.ok) {
            Some(token) => Ok(GrantedToken { resource: resource.to_owned(), token: token.to_owned() }),
            None => Err(io::Error::other(format!("{resource} was not granted: {}", outcome.text))),
        }
    }
}

impl Server {
    /// Waits until the server leads. Fails if it no longer listens.
    pub fn wait_until_ready(&self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.is_ready()? {
            if Instant::now() > until {
                return Err(io::Error::other("the server does not lead"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut response = String::new();
        // A connection that breaks belongs to a server that is about to lead, or to end.
        let read = stream.write_all(request).and_then(|()| stream.read_to_string(&mut response));
        Ok(read.is_ok() && response.ends_with("ready\n") && response.starts_with("HTTP/1.1 200"))
    }

    /// kill −9.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Stops the server cleanly.
    pub fn stop(mut self) -> io::Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait();
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("the server ended with {status}"))) }
    }

    /// Waits until the server ends by itself, and returns its log.
    pub fn wait_for_end(mut self) -> io::Result<String> {
        match self.process.wait_within(PATIENCE) {
            Some(_) => Ok(self.process.stderr().read_to_end().join("\n")),
            None => Err(io::Error::other("the server still runs")),
        }
    }
}
