//! Messages between the wrapper and its supervisor: JSON lines over a Unix socket. The socket closes when one of them dies.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::orphaned_session::SessionCleanup;

/// Message from the wrapper to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum SupervisorCommand {
    /// The wrapper's session, which the supervisor closes if it outlives the wrapper.
    Session(SessionCleanup),
    /// Start the command.
    Start {
        /// Variables to add to the supervisor's environment.
        env: Vec<(String, String)>,
        /// Deadlines that apply until the next `SetDeadlines`; `None` if the command may outlive its lease.
        deadlines: Option<LeaseDeadlines>,
    },
    /// Replace the deadlines: the lease was renewed.
    SetDeadlines(LeaseDeadlines),
    /// Send this signal to the command.
    Signal(i32),
    /// Send SIGTERM to all processes, and SIGKILL after `within` nanoseconds.
    Stop {
        /// Zero: kill immediately, without SIGTERM.
        within: u64,
    },
    /// Exit: the lease was released.
    Exit,
}

/// When a command must end, in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDeadlines {
    /// When it receives SIGTERM; `None` if it is killed without.
    pub terminate_at: Option<u64>,
    /// When it is killed.
    pub kill_at: u64,
}

/// Message from the supervisor to the wrapper. The last one says that all processes of the command are dead.
#[derive(Debug, Serialize, Deserialize)]
pub enum SupervisorReport {
    /// The deadline has come: the command receives SIGTERM next. What it reports afterwards is no progress.
    Terminating,
    /// The command and all its descendants are dead.
    Exited {
        /// Exit status of the command itself.
        status: CommandExit,
        /// Whether the supervisor terminated it because of its lease.
        stopped: bool,
        /// Live processes that this user may not kill.
        unkillable: Vec<i32>,
    },
    /// The command could not be started.
    NotStarted(StartError),
}

/// Why the command could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// Exit code that a shell would use.
    pub exit: u8,
    pub message: String,
}

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandExit {
    Code(u8),
    Signal(i32),
}

impl CommandExit {
    /// The exit code in the convention of shells: 128 + n for signal n.
    pub fn exit(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

/// Maximum length of a line in bytes.
const MAX_LINE: usize = 1 << 16;

/// One end of the socket.
pub struct IpcChannel {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl IpcChannel {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Sends a message. Fails if the peer is gone.
    pub async fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut rest = &line[..];
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a short message without waiting. A peer that does not read misses it.
    pub fn try_send<T: Serialize>(&self, message: &T) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            let _ = self.try_flush(&mut line);
        }
    }

    /// Writes as much of `unsent` as the socket accepts without waiting, and removes it. Fails if the peer is gone.
    pub fn try_flush(&self, unsent: &mut Vec<u8>) -> io::Result<()> {
        while !unsent.is_empty() {
            match self.stream.try_write(unsent) {
                Ok(written) => drop(unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives the next message; `None` when the peer is gone or sends an invalid line. Cancel-safe.
    pub async fn recv<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            self.stream.readable().await.ok()?;
            let mut chunk = [0; 4_096];
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) if self.buffer.len() + read <= MAX_LINE => self.buffer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_in_order_until_the_peer_is_gone() {
        let (one, other) = UnixStream::pair().expect("a socket pair");
        let (one, mut other) = (IpcChannel::new(one), IpcChannel::new(other));
        let deadlines = LeaseDeadlines { terminate_at: Some(5), kill_at: 9 };
        one.send(&SupervisorCommand::SetDeadlines(deadlines)).await.expect("sent");
        one.send(&SupervisorCommand::Signal(15)).await.expect("sent");
        assert!(matches!(other.recv().await, Some(SupervisorCommand::SetDeadlines(received)) if received == deadlines));
        assert!(matches!(other.recv().await, Some(SupervisorCommand::Signal(15))));
        drop(one);
        assert!(other.recv::<SupervisorCommand>().await.is_none());
    }

    #[tokio::test]
    async fn an_invalid_line_counts_as_a_closed_socket() {
        for invalid in [&b"{\n"[..], b"\"Start\"\n", b"\xff\xfe\n", &[b'x'; MAX_LINE + 4_096]] {
            let (one, other) = UnixStream::pair().expect("a socket pair");
            let mut other = IpcChannel::new(other);
            let invalid = invalid.to_vec();
            let sender = std::thread::spawn(move || {
                use std::io::Write;
                let mut one = one.into_std().expect("a socket");
                one.set_nonblocking(false).expect("a socket");
                // The peer may close the socket before all of it is written.
                let _ = one.write_all(&invalid);
            });
            assert!(other.recv::<SupervisorCommand>().await.is_none());
            drop(other);
            sender.join().expect("the sender ends");
        }
    }

    #[test]
    fn an_exit_code_is_the_commands_own_or_128_plus_its_signal() {
        assert_eq!(
            [CommandExit::Code(7).exit(), CommandExit::Signal(9).exit(), CommandExit::Signal(200).exit()],
            [7, 137, 255]
        );
    }
}
