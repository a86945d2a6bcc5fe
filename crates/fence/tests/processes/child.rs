//! A holder in a child process: reads its output line by line, and sends it commands and signals.

use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_testkit::process::TestProcess;

use crate::child_main::CHILD_ARG;

pub struct Child(TestProcess);

impl Child {
    /// Starts a holder with this token number.
    pub fn start(role: &str, target: &str, path: &Path, number: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([CHILD_ARG, role, target]).arg(path).arg(number.to_string());
        Self(TestProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).expect("a child starts"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The next line of its output; `None` after its end.
    pub fn next_line(&mut self) -> Option<String> {
        self.0.stdout().next_line()
    }

    pub fn send(&mut self, command: &str) {
        self.0.send_line(command);
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    pub fn stop(&self) {
        self.0.stop();
    }

    pub fn resume(&self) {
        self.0.resume();
    }

    /// Kills it, and returns its unread output.
    pub fn kill(mut self) -> Vec<String> {
        self.0.kill();
        self.0.stdout().read_to_end()
    }
}
