//! Child processes that the kernel kills with their parent.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::support::TEST_TIMEOUT;

/// Argument that selects the role of executing another program.
pub const ROLE: &str = "become";

/// Sets the parent death signal and executes a program.
pub fn exec_program(command: &[String]) {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows the signal");
    let (program, args) = command.split_first().expect("a program is named");
    panic!("{program}: {}", Command::new(program).args(args).exec());
}

/// A child process and its output.
pub struct ChildProcess {
    child: Child,
    lines: Mutex<Receiver<String>>,
    pub log: Vec<String>,
}

impl ChildProcess {
    /// Starts a program and reads its standard error, or its standard output if `on_output`.
    pub fn start(program: &str, args: &[String], on_output: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(ROLE).arg(program).args(args).stdin(Stdio::piped());
        command.env_remove("LEASEHOLD_ADDR").env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL");
        let (out, err) = if on_output { (Stdio::piped(), Stdio::inherit()) } else { (Stdio::null(), Stdio::piped()) };
        let mut child = command.stdout(out).stderr(err).spawn().expect("it starts");
        let pipe: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), _) => Box::new(out),
            (_, Some(err)) => Box::new(err),
            _ => unreachable!("one of them is piped"),
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines: Mutex::new(lines), log: Vec::new() }
    }

    /// Waits for the next line; `None` when the process has ended.
    pub fn next_line(&mut self) -> Option<String> {
        let line = self.lines.get_mut().expect("whole").recv_timeout(TEST_TIMEOUT).ok()?;
        self.log.push(line.clone());
        Some(line)
    }

    /// Waits for a line with this text. Returns the rest of the line.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.next_line().unwrap_or_else(|| panic!("it no line has {text:?}: {:?}", self.log));
            if let Some((_, rest)) = line.split_once(text) {
                return rest.to_owned();
            }
        }
    }

    pub fn send_line(&mut self, line: &str) {
        use std::io::Write;
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{line}").expect("it listens");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child of this process");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("a child of this process");
        self.child.wait().expect("a child of this process");
    }

    /// Waits for the exit. Returns the exit code and all lines.
    pub fn wait_exit(mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().expect("a child of this process").code();
        while self.next_line().is_some() {}
        (code, std::mem::take(&mut self.log))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
