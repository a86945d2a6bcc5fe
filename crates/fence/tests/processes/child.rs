//! A holder as its parent sees it: what it says line by line, and the signals it gets.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::part::PLAY;

pub struct Child {
    process: Process,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a holder of this number at a target.
    pub fn start(part: &str, target: &str, path: &Path, number: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args([PLAY, part, target])
            .arg(path)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child starts");
        let orders = process.stdin.take().expect("it was piped");
        let says = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        Self { process, orders, says }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line it says, if it says one before it ends.
    pub fn says(&mut self) -> Option<String> {
        self.says.next().map(|line| line.expect("its words are text"))
    }

    pub fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").expect("it listens");
    }

    /// Stops it, and waits until the kernel says that it stands.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is our child");
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and gives what it had said and nobody had read.
    pub fn kill(mut self) -> Vec<String> {
        self.signal(Signal::KILL);
        self.process.wait().expect("it is our child");
        std::iter::from_fn(|| self.says()).collect()
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
        // It may have ended already; nobody is left behind either way.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
