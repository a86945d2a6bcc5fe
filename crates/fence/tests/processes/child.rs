//! A holder in a child process: reads its output line by line, and sends it commands and signals.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::child_main::CHILD_ARG;

pub struct Child {
    process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a holder with this token number.
    pub fn start(role: &str, target: &str, path: &Path, number: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args([CHILD_ARG, role, target])
            .arg(path)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child starts");
        let input = process.stdin.take().expect("it was piped");
        let output = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        Self { process, input, output }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line of its output; `None` after its end.
    pub fn next_line(&mut self) -> Option<String> {
        self.output.next().map(|line| line.expect("text"))
    }

    pub fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("it reads");
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is our child");
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and returns its unread output.
    pub fn kill(mut self) -> Vec<String> {
        self.signal(Signal::KILL);
        self.process.wait().expect("it is our child");
        std::iter::from_fn(|| self.next_line()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is our child");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
