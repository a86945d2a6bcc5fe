//! A child process of a run. It cannot outlive the main thread and is signaled by its process id.

use std::io;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Upper bound of every operation, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A child process, killed on drop.
#[derive(Debug)]
pub struct ChaosProcess {
    child: Child,
}

/// A command whose process gets `signal` when the starting thread ends. It must be started from the main thread of the run.
pub fn command_tied_to_run(signal: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl ChaosProcess {
    /// Starts the process.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()? })
    }

    /// Standard input of the process.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal; an ended process gets none.
    pub fn signal(&self, signal: Signal) {
        // The child has not been waited for, so its id is not reused; at worst the process has ended.
        let _ = kill_process(self.pid(), signal);
    }

    /// Whether the process has stopped since the last call.
    pub fn has_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::Pid(self.pid()), options), Ok(Some(_)))
    }

    /// Stops the process and waits until the kernel reports it stopped, unless it ends or half a second passes.
    pub fn stop(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..100 {
            if self.has_stopped() || self.ended().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) {
        // An already dead process is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process up to [`TIMEOUT`], then kills it. Returns false if it had to be killed.
    pub fn wait(&mut self) -> bool {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if self.ended().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        false
    }
}

impl Drop for ChaosProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
