//! A holder as the run sees it: its process, the commands to it, its links, and optionally a skewed clock.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::process::{TestProcess, tied_command};
use leasehold_testkit::tcp_proxy::TcpProxy;
use rustix::process::Signal;

use crate::environment::namespace::NamespaceLink;
use crate::holder::{EXIT, HolderArgs, PAUSE};

/// How long the run waits for a process to stop.
const MAX_STOP: Duration = Duration::from_millis(500);

/// State of a holder's process with respect to signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Running,
    /// It will stop at its next write, for this duration.
    PauseRequested(Duration),
    /// It has been stopped since the first time and resumes at the second.
    Paused(Instant, Instant),
    /// There is no process.
    Down,
}

/// A wrong clock: it drifts, and jumps ahead.
#[derive(Clone, Debug)]
pub struct SkewedClock {
    file: PathBuf,
    started: Instant,
    /// Drift relative to real time, in percent.
    pub drift_percent: u32,
    offset_ms: u64,
}

/// A holder of the run.
pub struct HolderProcess {
    /// Parameters of the process.
    pub args: HolderArgs,
    process: Option<TestProcess>,
    commands: Option<ChildStdin>,
    /// State of the process.
    pub state: ProcessState,
    /// Links to the servers.
    pub servers: Vec<TcpProxy>,
    /// Link to PostgreSQL, if it is used.
    pub postgres: Option<TcpProxy>,
    /// The holder's own network namespace, if it has one.
    pub namespace: Option<NamespaceLink>,
    /// The holder's clock, if it is wrong.
    pub clock: Option<SkewedClock>,
}

impl HolderProcess {
    /// A holder without a process.
    pub fn new(args: HolderArgs, clock: Option<(&Path, u32)>) -> Self {
        let clock = clock.map(|(dir, drift_percent)| SkewedClock {
            file: dir.join(format!("slept-{}", args.holder)),
            started: Instant::now(),
            drift_percent,
            offset_ms: 0,
        });
        let (servers, postgres, namespace) = (Vec::new(), None, None);
        Self { args, process: None, commands: None, state: ProcessState::Down, servers, postgres, namespace, clock }
    }

    /// Starts the process; it waits for [`HolderProcess::send_args`].
    pub fn start(&mut self, wrapper: &[&str]) -> io::Result<u32> {
        let this = std::env::current_exe()?;
        let mut command = tied_command("KILL", wrapper);
        // Identifies the processes of this run.
        command.arg(this).arg("holder").stdin(Stdio::piped()).env("LEASEHOLD_CHAOS", &self.args.history);
        if let Some(clock) = &self.clock {
            command.env(leasehold::testing::FAKE_SUSPEND_FILE, &clock.file);
        }
        let mut process = TestProcess::spawn_tied(command)?;
        self.commands = process.take_stdin();
        let id = process.id();
        self.process = Some(process);
        Ok(id)
    }

    /// Sends the parameters.
    pub fn send_args(&mut self) -> io::Result<()> {
        let addresses: Vec<String> = self.servers.iter().map(|link| link.address().to_string()).collect();
        self.args.servers = addresses.join(",");
        if let Some(link) = &self.postgres {
            self.args.postgres = (link.address().ip().to_string(), link.address().port());
        }
        let args = serde_json::to_string(&self.args)?;
        self.send_command(&args);
        self.state = ProcessState::Running;
        Ok(())
    }

    fn send_command(&mut self, line: &str) {
        if let Some(commands) = &mut self.commands {
            // A killed process receives nothing.
            let _ = writeln!(commands, "{line}");
        }
    }

    /// Makes it stop itself right before its next write.
    pub fn request_pause(&mut self, duration: Duration) {
        self.send_command(PAUSE);
        self.state = ProcessState::PauseRequested(duration);
    }

    /// Stops the process at any point.
    pub fn freeze(&mut self, duration: Duration) {
        if let Some(process) = &mut self.process {
            process.stop_within(MAX_STOP);
            self.state = ProcessState::Paused(Instant::now(), Instant::now() + duration);
        }
    }

    /// Notices that the process has stopped, or resumes it when its pause is over. Returns the length of a finished pause.
    pub fn poll(&mut self, now: Instant) -> Option<Duration> {
        match self.state {
            ProcessState::PauseRequested(duration) if self.process.as_ref().is_some_and(TestProcess::has_stopped) => {
                self.state = ProcessState::Paused(now, now + duration);
                None
            }
            ProcessState::Paused(since, until) if now >= until => {
                self.resume();
                Some(now - since)
            }
            _ => None,
        }
    }

    /// Resumes the process.
    pub fn resume(&mut self) {
        if let Some(process) = &self.process {
            // Fails if the process has ended.
            let _ = process.signal(Signal::CONT);
            self.state = ProcessState::Running;
        }
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        self.commands = None;
        self.state = ProcessState::Down;
    }

    /// Starts another process for this holder.
    pub fn restart(&mut self) -> io::Result<()> {
        self.args.restarts += 1;
        self.args.seed = self.args.seed.wrapping_add(1);
        self.start(&[])?;
        self.send_args()
    }

    /// Whether the process exited by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().is_some())
    }

    /// Asks the process to exit.
    pub fn request_exit(&mut self) {
        self.send_command(EXIT);
    }

    /// Moves its clock ahead, as after a suspend.
    pub fn advance_clock(&mut self, by: Duration) {
        if let Some(clock) = &mut self.clock {
            clock.offset_ms += by.as_millis() as u64;
        }
    }

    /// Writes the current offset of its clock.
    pub fn write_clock(&self) -> io::Result<()> {
        let Some(clock) = &self.clock else { return Ok(()) };
        let ahead = clock.started.elapsed().as_millis() as u64 * u64::from(clock.drift_percent) / 100 + clock.offset_ms;
        // Renamed atomically: a holder that read an empty file would see its clock go backwards.
        let temporary = clock.file.with_extension("draft");
        std::fs::write(&temporary, ahead.to_string())?;
        std::fs::rename(temporary, &clock.file)
    }
}
