//! Handle of the wrapper to its supervisor: starts it, sends it messages, and kills the command if the supervisor dies.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use tokio::net::UnixListener;

use super::ipc::{IpcChannel, SupervisorCommand, SupervisorReport};
use super::runtime_dir::{self, RuntimeDir};
use super::{process_tree, supervisor};
use crate::output::CommandError;

/// Time that a supervisor has to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of unsent bytes. A supervisor that is stopped reads nothing.
const MAX_UNSENT: usize = 1 << 16;

/// A supervisor process that waits for its command, or supervises it.
pub struct SupervisorHandle {
    process: Child,
    channel: IpcChannel,
    /// Messages that the socket has not accepted yet.
    unsent: Vec<u8>,
}

impl SupervisorHandle {
    /// Starts a supervisor for a command. The command starts only with [`SupervisorCommand::Start`].
    pub async fn start(dir: &RuntimeDir, command: &[OsString], env: &[(&str, &OsStr)]) -> Result<Self, CommandError> {
        // If the supervisor dies, its children become children of this process.
        process_tree::become_subreaper().map_err(|error| start_failed(error.into()))?;
        let control = runtime_dir::control(dir.path());
        let listener = UnixListener::bind(&control).map_err(start_failed)?;
        let group = process_tree::own_group();
        let mut process = Command::new("/proc/self/exe");
        process.arg0("leasehold").arg(supervisor::SUBCOMMAND).arg(dir.path()).arg(group.unwrap_or(0).to_string());
        process.args(command).envs(env.iter().copied());
        // A group that this namespace does not show can be left, but not joined again by the command.
        if group.is_some() {
            process.process_group(0);
        }
        let process = process.spawn().map_err(start_failed)?;
        let accepted = tokio::time::timeout(CONNECT_TIMEOUT, listener.accept()).await;
        // No other process needs to connect.
        let _ = std::fs::remove_file(&control);
        let timed_out = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (stream, _) = accepted.map_err(|_| timed_out()).and_then(|accepted| accepted).map_err(start_failed)?;
        Ok(Self { process, channel: IpcChannel::new(stream), unsent: Vec::new() })
    }

    /// Sends a message without waiting, so that a stopped supervisor does not block the wrapper. Messages beyond the limit are
    /// dropped: the wrapper enforces the deadlines too. If the supervisor is dead, the next `report` returns `None`.
    pub fn send(&mut self, message: &SupervisorCommand) {
        if self.unsent.len() < MAX_UNSENT
            && let Ok(line) = serde_json::to_vec(message)
        {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
        }
        let _ = self.channel.try_flush(&mut self.unsent);
    }

    /// Waits for the supervisor's report; `None` if it died.
    pub async fn report(&mut self) -> Option<SupervisorReport> {
        self.channel.recv().await
    }

    /// Kills the command, and the supervisor that died or does not respond. Returns the processes that this user may not kill;
    /// all others are dead.
    pub fn kill_all(&self) -> Vec<i32> {
        process_tree::kill_all(|_, _| {})
    }

    /// Ends the supervisor, after the lease was released or before it was granted.
    pub fn shut_down(mut self) {
        self.send(&SupervisorCommand::Exit);
        // It has nothing left to do, even if it is stopped. If it died, it has been reaped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_failed(error: std::io::Error) -> CommandError {
    CommandError::Other(format!("cannot start the supervisor: {error}"))
}
