//! A wrapper under test: its command tells what happens on standard output, a line each.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::support::{PATIENCE, Server};

/// A server, and a directory in which wrappers have theirs.
pub struct World {
    pub server: Server,
    pub room: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self { server: Server::start(), room: tempfile::tempdir().expect("a directory") }
    }

    /// `leasehold VERB ARGS -- sh -c SCRIPT`, begun.
    pub fn begin(&self, args: &[&str], script: &str) -> Wrapped {
        let mut command = self.command(args);
        command.args(["--", "sh", "-c", script]);
        Wrapped::begin(&mut command)
    }

    /// A command whose wrapper has its directory here. Whatever signals the runner of the tests ignores, it does not.
    pub fn command(&self, args: &[&str]) -> Command {
        self.under(&["env", "--default-signal"], args)
    }

    /// The same, started by a program that becomes it.
    pub fn under(&self, starts: &[&str], args: &[&str]) -> Command {
        let inner = self.server.command(args);
        let mut outer = Command::new(starts[0]);
        outer.args(&starts[1..]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.env("TMPDIR", self.room.path()).env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        outer
    }

    /// Why the leases on a resource ended, the latest first.
    pub fn ends(&self, name: &str) -> Vec<String> {
        let told = self.server.run(&["history", name]).ok().out;
        told.lines().map(str::to_owned).collect()
    }

    /// Nothing of any wrapper is left: no directory, and no process that knows of one.
    pub fn is_empty(&self) {
        until("no directory is left", || entries(self.room.path()) == 0);
        until("no process is left", || !knows(self.room.path()));
    }
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("it is there").count()
}

/// Whether a process of ours has this in its environment: wrappers, minders, and all that they started.
fn knows(room: &Path) -> bool {
    let room = format!("TMPDIR={}", room.display());
    let own = std::fs::metadata("/proc/self").expect("it is there").uid();
    std::fs::read_dir("/proc").expect("it is there").flatten().any(|entry| {
        entry.metadata().is_ok_and(|what| what.uid() == own)
            && std::fs::read(entry.path().join("environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|said| said == room.as_bytes()))
    })
}

/// A wrapper that was begun. Whatever becomes of the test, nothing of it is left.
pub struct Wrapped {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    complained: RefCell<Vec<String>>,
}

/// How a wrapper ended, and what was said that nobody has heard yet.
#[derive(Debug)]
pub struct Ended {
    pub exit: i32,
    pub lines: Vec<String>,
    pub errors: String,
}

impl Wrapped {
    /// In a group of its own: in a group whose leader has no parent any more, the end of a command hangs up on everybody there
    /// as soon as one of them stands still, and the others are the tests.
    pub fn begin(command: &mut Command) -> Self {
        let piped = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary was built for this test");
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let errors = lines_of(child.stderr.take().expect("it is piped"));
        Self { input: child.stdin.take(), child, lines, errors, complained: RefCell::default() }
    }

    /// The same, with nobody who reads its standard error.
    pub fn unread(command: &mut Command) -> Self {
        let piped = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary was built for this test");
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let (_, errors) = channel();
        Self { input: child.stdin.take(), child, lines, errors, complained: RefCell::default() }
    }

    /// The next line that begins so; what comes after the word.
    #[track_caller]
    pub fn hears(&self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never said {word:?}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for a line that holds this.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        while !self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never said {text:?}")).contains(text) {}
    }

    /// The next line that begins so, as a process.
    #[track_caller]
    pub fn process(&self, word: &str) -> Pid {
        let told = self.hears(word);
        told.parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("a process, not {told:?}"))
    }

    /// Waits until the wrapper complains of this.
    #[track_caller]
    pub fn complains(&self, of: &str) {
        loop {
            let line = self.errors.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never complained of {of:?}"));
            self.complained.borrow_mut().push(line);
            if self.complained.borrow().last().is_some_and(|line| line.contains(of)) {
                return;
            }
        }
    }

    /// Whether it has said nothing yet.
    pub fn is_silent(&self) -> bool {
        self.lines.try_recv().is_err()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is there");
        if signal == Signal::STOP {
            waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is our child");
        }
    }

    pub fn types(&mut self, text: &str) {
        self.input.as_mut().expect("it listens").write_all(text.as_bytes()).expect("it listens");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ends(mut self) -> Ended {
        self.input = None;
        until("the wrapper ends", || self.child.try_wait().expect("it can be waited for").is_some());
        let status = self.child.wait().expect("it ended");
        // Both end with the last process that could say something.
        let errors = [self.complained.take(), rest(&self.errors)].concat().join("\n");
        Ended { exit: status.code().unwrap_or(-1), lines: rest(&self.lines), errors }
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        // One that ended already has nothing left to end; its minder ends what is below.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is still said there.
#[track_caller]
fn rest(lines: &Receiver<String>) -> Vec<String> {
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => said.push(line),
            Err(RecvTimeoutError::Disconnected) => return said,
            Err(RecvTimeoutError::Timeout) => panic!("somebody outlives the wrapper, after {said:?}"),
        }
    }
}

/// What is said there, a line each.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, lines) = channel();
    std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
    lines
}

/// Waits until it is so, with a generous bound.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let over = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < over, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process lives; one that nobody has taken in yet does not.
pub fn lives(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

/// Whether a process stands still.
pub fn stands(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

/// A script that says which of these processes live when it begins.
pub fn looks_for(pids: &[Pid]) -> String {
    let pids = pids.iter().map(|pid| pid.as_raw_pid().to_string()).collect::<Vec<_>>().join(" ");
    format!("for p in {pids}; do if kill -0 $p 2>/dev/null; then echo lives $p; fi; done; echo began")
}
