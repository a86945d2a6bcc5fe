//! Harness: starts wrappers whose commands print events line by line, and checks what remains of them.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::process::TestProcess;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::support::{Server, TEST_TIMEOUT};

/// A server, and the temporary directory of its wrappers.
pub struct Fixture {
    pub server: Server,
    pub tmp_dir: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self { server: Server::start(), tmp_dir: tempfile::tempdir().expect("a directory") }
    }

    /// Starts `leasehold ARGS -- sh -c SCRIPT`.
    pub fn start(&self, args: &[&str], script: &str) -> WrapperProcess {
        let mut command = self.command(args);
        command.args(["--", "sh", "-c", script]);
        WrapperProcess::start(&mut command)
    }

    /// A command with default signal handling, whatever signals the test runner ignores.
    pub fn command(&self, args: &[&str]) -> Command {
        self.started_by(&["env", "--default-signal"], args)
    }

    /// A command that a launcher program executes.
    pub fn started_by(&self, launcher: &[&str], args: &[&str]) -> Command {
        let inner = self.server.command(args);
        let mut outer = Command::new(launcher[0]);
        outer.args(&launcher[1..]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.env("TMPDIR", self.tmp_dir.path()).env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        outer
    }

    /// Writes a charter for the prefix `a` and returns its file.
    pub fn charter(&self, terms: &str) -> String {
        let file = self.tmp_dir.path().join("charter.toml");
        std::fs::write(&file, format!("prefix = \"a\"\n\n[charter]\n{terms}\n")).expect("the directory exists");
        file.to_str().expect("a UTF-8 path").to_owned()
    }

    /// The ended leases of a resource, latest first.
    pub fn history(&self, name: &str) -> Vec<String> {
        let output = self.server.run(&["history", name]).ok().out;
        output.lines().map(str::to_owned).collect()
    }

    /// Asserts that no directory and no process of any wrapper is left.
    pub fn assert_clean(&self) {
        wait_until("no directory is left", || entries(self.tmp_dir.path()) == 0);
        wait_until("no process is left", || !is_used(self.tmp_dir.path()));
    }
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("a directory").count()
}

/// Whether any process of this user has this TMPDIR: wrappers, supervisors and their descendants.
fn is_used(tmp_dir: &Path) -> bool {
    let variable = format!("TMPDIR={}", tmp_dir.display());
    let own = std::fs::metadata("/proc/self").expect("procfs").uid();
    std::fs::read_dir("/proc").expect("procfs").flatten().any(|entry| {
        entry.metadata().is_ok_and(|metadata| metadata.uid() == own)
            && std::fs::read(entry.path().join("environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
    })
}

/// A running wrapper. It is killed on drop; the supervisor kills its descendants.
pub struct WrapperProcess {
    process: TestProcess,
    /// Standard error, if it is not read.
    blocked_stderr: Option<ChildStderr>,
}

/// Exit of a wrapper, with the output that was not read before.
#[derive(Debug)]
pub struct WrapperExit {
    pub exit: i32,
    pub lines: Vec<String>,
    pub errors: String,
}

impl WrapperProcess {
    /// Starts the wrapper in its own process group: in an orphaned group with a stopped process, the exit of a command sends
    /// SIGHUP to all members, including the tests.
    pub fn start(command: &mut Command) -> Self {
        let piped = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = TestProcess::spawn(piped).expect("the binary was built for this test");
        Self { process, blocked_stderr: None }
    }

    /// Starts a wrapper whose standard error is not read.
    pub fn with_blocked_stderr(command: &mut Command) -> Self {
        let piped = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary was built for this test");
        let blocked_stderr = child.stderr.take();
        Self { process: child.into(), blocked_stderr }
    }

    /// Waits for a line with this prefix. Returns the rest of the line.
    #[track_caller]
    pub fn wait_line(&self, prefix: &str) -> String {
        loop {
            let line = self.process.stdout().next_line();
            let line = line.unwrap_or_else(|| panic!("no line starts with {prefix:?}"));
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for a line that contains this text.
    #[track_caller]
    pub fn wait_text(&self, text: &str) {
        self.process.stdout().wait_for(text);
    }

    /// Waits for a line with this prefix and a process id.
    #[track_caller]
    pub fn wait_pid(&self, prefix: &str) -> Pid {
        let rest = self.wait_line(prefix);
        rest.parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("not a process id: {rest:?}"))
    }

    /// Waits for a line on standard error that contains this text.
    #[track_caller]
    pub fn wait_stderr(&self, text: &str) {
        self.process.stderr().wait_for(text);
    }

    /// Whether no unread line is available.
    pub fn has_no_output(&self) -> bool {
        self.process.stdout().try_next_line().is_none()
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn signal(&self, signal: Signal) {
        if signal == Signal::STOP {
            return self.process.stop();
        }
        self.process.signal(signal).expect("the wrapper runs");
    }

    pub fn write_stdin(&mut self, text: &str) {
        self.process.write_stdin(text);
    }

    /// Closes standard input and waits for the exit.
    #[track_caller]
    pub fn wait_exit(mut self) -> WrapperExit {
        let exit = self.process.wait().code().unwrap_or(-1);
        // Both pipes close with the last process that can write.
        let lines = self.process.stdout().read_to_end();
        let errors = match self.blocked_stderr {
            Some(_) => String::new(),
            None => {
                self.process.stderr().read_to_end();
                self.process.stderr().so_far().join("\n")
            }
        };
        WrapperExit { exit, lines, errors }
    }
}

/// Polls a condition until it is true, with a generous timeout.
#[track_caller]
pub fn wait_until(expected: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {expected}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is alive. A process that was not reaped yet is dead.
pub fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

/// Whether a process is stopped by a signal.
pub fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

/// A script that first prints which of these processes are alive.
pub fn report_alive(pids: &[Pid]) -> String {
    let pids = pids.iter().map(|pid| pid.as_raw_pid().to_string()).collect::<Vec<_>>().join(" ");
    format!("for p in {pids}; do if kill -0 $p 2>/dev/null; then echo alive $p; fi; done; echo began")
}
