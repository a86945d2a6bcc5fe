//! A process of the story: what it says line by line, what it is told, and the signals it gets.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::Fault;
use crate::grantor::PATIENCE;

pub struct Party {
    child: Child,
    orders: ChildStdin,
    says: Receiver<String>,
}

impl Party {
    pub fn start(words: &[&str]) -> Result<Self, Fault> {
        let mut child =
            Command::new(std::env::current_exe()?).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("it was piped")?;
        let lines = BufReader::new(child.stdout.take().ok_or("it was piped")?).lines();
        let (tell, says) = channel();
        // Ends with the process.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Ok(Self { child, orders, says })
    }

    /// The next line, which must begin like this; the rest of it.
    pub fn says(&mut self, begins: &str) -> Result<String, Fault> {
        let line = self.next()?;
        let rest = line.strip_prefix(begins).ok_or_else(|| format!("{begins:?} was awaited, and it said {line:?}"))?;
        Ok(rest.trim().to_owned())
    }

    pub fn next(&mut self) -> Result<String, Fault> {
        self.says.recv_timeout(PATIENCE).map_err(|why| match why {
            RecvTimeoutError::Timeout => "a process says nothing".into(),
            RecvTimeoutError::Disconnected => "a process ended before its part did".into(),
        })
    }

    pub fn order(&mut self, what: &str) -> Result<(), Fault> {
        Ok(writeln!(self.orders, "{what}")?)
    }

    /// Stops it, and comes back when the kernel says that it stands.
    pub fn stop(&self) -> Result<(), Fault> {
        kill_process(self.pid(), Signal::STOP)?;
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED)?;
        Ok(())
    }

    pub fn go_on(&self) -> Result<(), Fault> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // It may have gone by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A worker and its wire: what stops when its machine does.
pub struct Machine {
    pub worker: Party,
    pub wire: Party,
}

impl Machine {
    pub fn start(name: &str, dir: &Path, fenced: bool, address: &str, cluster: &str, ttl: &str) -> Result<Self, Fault> {
        let socket = dir.join(format!("{name}.socket"));
        let (dir, socket) = (text(dir)?, text(&socket)?);
        let mut wire =
            Party::start(&[crate::wire::WORD, dir, if fenced { "fenced" } else { "unfenced" }, cluster, socket])?;
        wire.says("ready")?;
        let mut worker = Party::start(&[crate::worker::WORD, address, name, ttl, socket])?;
        worker.says("waits")?;
        Ok(Self { worker, wire })
    }

    pub fn stop(&self) -> Result<(), Fault> {
        self.worker.stop()?;
        self.wire.stop()
    }

    pub fn go_on(&self) -> Result<(), Fault> {
        self.wire.go_on()?;
        self.worker.go_on()
    }
}

fn text(path: &Path) -> Result<&str, Fault> {
    path.to_str().ok_or_else(|| "a path that is no text".into())
}
