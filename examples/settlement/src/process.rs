//! Child processes of the scenario: their output lines, their input, and signals.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::AnyError;
use crate::server::TIMEOUT;

/// A child process that is controlled by lines on its standard streams.
pub struct ScenarioProcess {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl ScenarioProcess {
    pub fn start(args: &[&str]) -> Result<Self, AnyError> {
        let mut child =
            Command::new(std::env::current_exe()?).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("stdin is not piped")?;
        let lines = BufReader::new(child.stdout.take().ok_or("stdout is not piped")?).lines();
        let (sender, output) = channel();
        // Ends with the process.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { child, input, output })
    }

    /// Reads the next line, which must have this prefix. Returns the rest.
    pub fn expect_line(&mut self, prefix: &str) -> Result<String, AnyError> {
        let line = self.next_line()?;
        let rest = line.strip_prefix(prefix).ok_or_else(|| format!("expected {prefix:?}, got {line:?}"))?;
        Ok(rest.trim().to_owned())
    }

    pub fn next_line(&mut self) -> Result<String, AnyError> {
        self.output.recv_timeout(TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => "a process printed nothing in time".into(),
            RecvTimeoutError::Disconnected => "a process ended early".into(),
        })
    }

    pub fn send(&mut self, line: &str) -> Result<(), AnyError> {
        Ok(writeln!(self.input, "{line}")?)
    }

    /// Stops the process with SIGSTOP and waits until it is stopped.
    pub fn stop(&self) -> Result<(), AnyError> {
        kill_process(self.pid(), Signal::STOP)?;
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED)?;
        Ok(())
    }

    pub fn resume(&self) -> Result<(), AnyError> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ScenarioProcess {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A worker and its relay, which stop together.
pub struct Machine {
    pub worker: ScenarioProcess,
    pub relay: ScenarioProcess,
}

impl Machine {
    pub fn start(
        name: &str,
        dir: &Path,
        fenced: bool,
        address: &str,
        cluster: &str,
        ttl: &str,
    ) -> Result<Self, AnyError> {
        let socket = dir.join(format!("{name}.socket"));
        let (dir, socket) = (text(dir)?, text(&socket)?);
        let mut relay = ScenarioProcess::start(&[
            crate::relay::SUBCOMMAND,
            dir,
            if fenced { "fenced" } else { "unfenced" },
            cluster,
            socket,
        ])?;
        relay.expect_line("ready")?;
        let mut worker = ScenarioProcess::start(&[crate::worker::SUBCOMMAND, address, name, ttl, socket])?;
        worker.expect_line("waiting")?;
        Ok(Self { worker, relay })
    }

    pub fn stop(&self) -> Result<(), AnyError> {
        self.worker.stop()?;
        self.relay.stop()
    }

    pub fn resume(&self) -> Result<(), AnyError> {
        self.relay.resume()?;
        self.worker.resume()
    }
}

fn text(path: &Path) -> Result<&str, AnyError> {
    path.to_str().ok_or_else(|| "the path is not valid UTF-8".into())
}
