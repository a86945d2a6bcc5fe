//! What the wrapper and its minder say to each other: a line of JSON each, over a socket that breaks when one of them ends.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::will::Will;

/// What the minder is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The session by which the wrapper waits and holds, for a minder that outlives it.
    Session(Will),
    /// Start the command.
    Start {
        /// What its environment says beside what the minder's does.
        env: Vec<(String, String)>,
        /// Until when it may run, if nothing more is heard.
        until: Option<Until>,
    },
    /// The lease was renewed.
    Until(Until),
    /// A signal for the command, by its number.
    Pass(i32),
    /// Ask everything to end, and kill what is left after so many nanoseconds.
    Stop {
        /// Nothing: at once, and without asking.
        within: u64,
    },
    /// The lease was given back, and nothing is left to do.
    Leave,
}

/// The two ends of the command's time, in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Until {
    /// When it is asked to end; none where it is killed without being asked.
    pub soft: Option<u64>,
    /// When it is dead.
    pub hard: u64,
}

/// What the minder tells: one thing, when nothing of the command is left.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The command and everything below it is dead.
    Over {
        /// How the command itself ended.
        ended: Ended,
        /// Whether it was made to, for the lease's sake.
        stopped: bool,
        /// Processes that may not be ended by this user.
        beyond: Vec<i32>,
    },
    /// There is no command.
    NotStarted(Unstarted),
}

/// Why there is no command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unstarted {
    /// What a shell would end with.
    pub exit: u8,
    pub why: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself, with a code.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

impl Ended {
    /// What a shell would say.
    pub fn exit(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

/// No line is longer.
const LONGEST: usize = 1 << 16;

/// One end of the socket.
pub struct Talk {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl Talk {
    pub fn over(stream: UnixStream) -> Self {
        Self { stream, heard: Vec::new() }
    }

    /// Says something; an error says that nobody is there.
    pub async fn say<T: Serialize>(&self, what: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
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

    /// Says as much as can be said at once: the rest is left in the line. An error says that nobody is there.
    pub fn say_some(&self, line: &mut Vec<u8>) -> io::Result<()> {
        while !line.is_empty() {
            match self.stream.try_write(line) {
                Ok(written) => drop(line.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next thing said; none when the other end is gone, or says what cannot be read. Nothing is lost if this is dropped
    /// before it returns.
    pub async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            self.stream.readable().await.ok()?;
            let mut some = [0; 4_096];
            match self.stream.try_read(&mut some) {
                Ok(0) => return None,
                Ok(read) if self.heard.len() + read <= LONGEST => self.heard.extend_from_slice(&some[..read]),
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
    async fn what_is_said_is_heard_until_the_other_end_is_gone() {
        let (one, other) = UnixStream::pair().expect("a pair can be made");
        let (one, mut other) = (Talk::over(one), Talk::over(other));
        let until = Until { soft: Some(5), hard: 9 };
        one.say(&Order::Until(until)).await.expect("it is heard");
        one.say(&Order::Pass(15)).await.expect("it is heard");
        assert!(matches!(other.hear().await, Some(Order::Until(heard)) if heard == until));
        assert!(matches!(other.hear().await, Some(Order::Pass(15))));
        drop(one);
        assert!(other.hear::<Order>().await.is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_read_counts_as_the_other_end_being_gone() {
        for said in [&b"{\n"[..], b"\"Start\"\n", b"\xff\xfe\n", &[b'x'; LONGEST + 4_096]] {
            let (one, other) = UnixStream::pair().expect("a pair can be made");
            let mut other = Talk::over(other);
            let said = said.to_vec();
            let saying = std::thread::spawn(move || {
                use std::io::Write;
                let mut one = one.into_std().expect("a socket");
                one.set_nonblocking(false).expect("a socket");
                // The other end may have heard enough.
                let _ = one.write_all(&said);
            });
            assert!(other.hear::<Order>().await.is_none());
            drop(other);
            saying.join().expect("it was said");
        }
    }

    #[test]
    fn a_command_ends_with_its_own_code_or_128_and_its_signal() {
        assert_eq!([Ended::Code(7).exit(), Ended::Signal(9).exit(), Ended::Signal(200).exit()], [7, 137, 255]);
    }
}
