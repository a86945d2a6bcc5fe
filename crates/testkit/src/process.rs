//! Child processes of tests: their output line by line, signals by process id, and no process left behind.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Timeout of every wait; generous for busy machines.
pub const TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A child process, killed on drop.
#[derive(Debug)]
pub struct TestProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<OutputLines>,
    stderr: Option<OutputLines>,
    /// Whether the process was waited for: its id may belong to another process since.
    has_ended: bool,
}

impl TestProcess {
    /// Starts a command. A thread reads each output that is piped, so that the process never blocks on it.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self::from)
    }

    /// Starts a command of [`tied_command`] on a thread that lives as long as this process.
    pub fn spawn_tied(command: Command) -> io::Result<Self> {
        type SpawnRequest = (Command, Sender<io::Result<Child>>);
        static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
        let spawner = SPAWNER.get_or_init(|| {
            let (sender, requests) = channel::<SpawnRequest>();
            std::thread::spawn(move || {
                for (mut command, reply) in requests {
                    // The receiver waits for it.
                    let _ = reply.send(command.spawn());
                }
            });
            sender
        });
        let (reply, spawned) = channel();
        let gone = || io::Error::other("the spawner thread has ended");
        spawner.send((command, reply)).map_err(|_| gone())?;
        spawned.recv().map_err(|_| gone())?.map(Self::from)
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Process id, for system calls.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Lines of standard output. Panics if it is not piped.
    #[track_caller]
    pub fn stdout(&self) -> &OutputLines {
        self.stdout.as_ref().expect("standard output is piped")
    }

    /// Lines of standard error. Panics if it is not piped.
    #[track_caller]
    pub fn stderr(&self) -> &OutputLines {
        self.stderr.as_ref().expect("standard error is piped")
    }

    /// Standard input, if it is piped and was not taken before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Writes to standard input.
    #[track_caller]
    pub fn write_stdin(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is piped");
        stdin.write_all(text.as_bytes()).expect("the process reads its input");
    }

    /// Writes a line to standard input.
    #[track_caller]
    pub fn send_line(&mut self, line: &str) {
        self.write_stdin(&format!("{line}\n"));
    }

    /// Sends a signal. Fails if the process was waited for. Use [`TestProcess::stop`] for SIGSTOP.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.has_ended {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(kill_process(self.pid(), signal)?)
    }

    /// Stops the process, and waits until the kernel reports it stopped: until then some of its threads still run.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP).expect("the process runs");
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("the process does not end meanwhile");
    }

    /// Like [`TestProcess::stop`], but also returns if the process ends or `limit` passes.
    pub fn stop_within(&mut self, limit: Duration) {
        // Fails if the process has ended.
        let _ = self.signal(Signal::STOP);
        let deadline = Instant::now() + limit;
        while !self.has_stopped() && self.try_wait().is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether the process has stopped since the last call.
    pub fn has_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::Pid(self.pid()), options), Ok(Some(_)))
    }

    /// Continues a stopped process. Its threads can run when the call returns.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT).expect("the process was not waited for");
    }

    /// Sends SIGKILL and waits for the end. A process that has ended already is fine.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.has_ended |= self.child.wait().is_ok();
    }

    /// Exit status, if the process has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("the process is a child of this one");
        self.has_ended |= status.is_some();
        status
    }

    /// Closes standard input and waits for the end of the process. Panics after [`TIMEOUT`].
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.stdin = None;
        self.wait_within(TIMEOUT).expect("the process ends in time")
    }

    /// Waits for the end of the process, at most this long.
    pub fn wait_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.try_wait();
            if status.is_some() || Instant::now() > deadline {
                return status;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Reads the pipes that the child still has.
impl From<Child> for TestProcess {
    fn from(mut child: Child) -> Self {
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take().map(OutputLines::new), child.stderr.take().map(OutputLines::new));
        Self { child, stdin, stdout, stderr, has_ended: false }
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command whose process gets `signal` when this process ends, even if it is killed. The first word is the program. Start it
/// with [`TestProcess::spawn_tied`]: the kernel sends the signal when the *thread* ends that started the process.
pub fn tied_command(signal: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Lines that a process prints.
#[derive(Debug)]
pub struct OutputLines(Mutex<LineBuffer>);

#[derive(Debug)]
struct LineBuffer {
    unread: Receiver<String>,
    read: Vec<String>,
}

impl OutputLines {
    fn new(pipe: impl Read + Send + 'static) -> Self {
        let (sender, unread) = channel();
        // The thread ends with the pipe. It reads on when no one receives, so that the process never blocks.
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self(Mutex::new(LineBuffer { unread, read: Vec::new() }))
    }

    /// A test that panicked with the lock does not hide the output from others.
    fn lock(&self) -> MutexGuard<'_, LineBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next line; `None` at the end of the output. Panics after [`TIMEOUT`].
    #[track_caller]
    pub fn next_line(&self) -> Option<String> {
        let mut lines = self.lock();
        match lines.unread.recv_timeout(TIMEOUT) {
            Ok(line) => {
                lines.read.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process prints no further line: {:?}", lines.read),
        }
    }

    /// Waits for a line that contains `text`, and returns the line.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        loop {
            match self.next_line() {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("the output ended without {text:?}: {:?}", self.lock().read),
            }
        }
    }

    /// Waits for a line that contains `text`, and returns the rest of the line.
    #[track_caller]
    pub fn wait_for_rest(&self, text: &str) -> String {
        let line = self.wait_for(text);
        line.split_once(text).map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    }

    /// Reads up to the end of the output, and returns the lines that were not read before.
    #[track_caller]
    pub fn read_to_end(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next_line()).collect()
    }

    /// The next line, if it has arrived.
    pub fn try_next_line(&self) -> Option<String> {
        let mut lines = self.lock();
        let line = lines.unread.try_recv().ok()?;
        lines.read.push(line.clone());
        Some(line)
    }

    /// All lines that have arrived, including those that were read before.
    pub fn so_far(&self) -> Vec<String> {
        while self.try_next_line().is_some() {}
        self.lock().read.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> TestProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        TestProcess::spawn(&mut command).expect("a shell starts")
    }

    /// State letter of a process in /proc, such as `T` for stopped.
    fn state(process: &TestProcess) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("the process exists");
        let line = status.lines().find_map(|line| line.strip_prefix("State:")).expect("Linux reports it");
        line.trim().chars().take(1).collect()
    }

    #[test]
    fn lines_are_read_from_both_outputs_and_sent_to_the_input() {
        let mut process = shell("echo serving on 7; echo problem >&2; read line; echo got $line; exit 3");
        assert_eq!(process.stdout().wait_for_rest("serving on "), "7");
        assert_eq!(process.stderr().wait_for("problem"), "problem");
        assert_eq!(process.stdout().try_next_line(), None);
        process.send_line("this");
        assert_eq!(process.stdout().wait_for("got"), "got this");
        assert_eq!(process.wait().code(), Some(3));
        assert_eq!(process.stdout().next_line(), None);
        assert_eq!(process.stdout().so_far(), ["serving on 7", "got this"]);
    }

    #[test]
    fn a_stopped_process_is_stopped_when_the_call_returns_and_runs_after_resume() {
        let mut process = shell("while read line; do echo $line; done");
        for line in ["first", "second"] {
            process.stop();
            assert_eq!(state(&process), "T");
            process.send_line(line);
            process.resume();
            assert_eq!(process.stdout().next_line().as_deref(), Some(line));
        }
        process.stop_within(TIMEOUT);
        assert_eq!(state(&process), "T");
        assert!(!process.has_stopped(), "the kernel reports it once");
    }

    #[test]
    fn a_tied_process_outlives_the_thread_that_started_it_and_ends_with_its_handle() {
        let started = std::thread::spawn(|| TestProcess::spawn_tied(tied_command("KILL", &["sleep", "1000"])));
        let mut process = started.join().expect("no panic").expect("setpriv is installed");
        assert!(process.try_wait().is_none());
        let proc = format!("/proc/{}", process.id());
        assert!(std::fs::exists(&proc).expect("procfs"));
        drop(process);
        assert!(!std::fs::exists(&proc).expect("procfs"));
    }
}
