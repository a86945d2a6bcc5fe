//! A process of a run: started from the main thread, which it does not outlive, and signalled by its own id.

use std::io;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A child. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// A command that ends with the thread that starts it: these must be started where the run is driven from.
pub fn bound(signal: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()? })
    }

    /// What it reads.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal; one that has ended gets none.
    pub fn signal(&self, signal: Signal) {
        // Not waited for yet, so the id is still its own: at worst nobody is there to hear.
        let _ = kill_process(self.pid(), signal);
    }

    /// Whether it stands still since it was last asked.
    pub fn has_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::Pid(self.pid()), options), Ok(Some(_)))
    }

    /// Stops it, and waits until the kernel says that it stands, unless it ends or takes its time.
    pub fn stop(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..100 {
            if self.has_stopped() || self.ended().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// kill −9.
    pub fn kill(&mut self) {
        // One that is dead already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end for as long as anything takes; then it is killed, and that is told.
    pub fn wait(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
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

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
