//! The wrapper process: acquires the lease, runs the command under it, and releases it afterwards.
//!
//! `run` uses one wrapper for one lease; `elect` uses one wrapper for one lease after another.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::time::Duration;

use leasehold::session_stream::SessionResume;
use leasehold::{Client, Code, Error, Guard, GuardState, Loss, RunError};
use tokio::sync::watch;

use super::command_run::{CommandRun, FinishedRun, RunEnd};
use super::ipc::{StartError, SupervisorCommand};
use super::notify_socket::NotifySocket;
use super::options::{CommandTimes, RunOptions};
use super::runtime_dir::{self, RuntimeDir};
use super::session_cleanup::SessionCleanup;
use super::signals::{ForwardedSignals, ReceivedSignal};
use super::stderr_writer::StderrWriter;
use super::supervisor_handle::SupervisorHandle;
use super::{ADDR, RESOURCE};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};

/// Timeout of a release. After it, the lease ends with its ttl.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of closing the session, and of releasing a lease that has ended already.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the last message on standard error where the lease is renewed until this process exits.
const STDERR_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the wrapper process.
pub struct Wrapper<'a> {
    pub client: Client,
    name: &'a str,
    command: &'a [OsString],
    times: CommandTimes,
    addr: String,
    signals: ForwardedSignals,
    notify: NotifySocket,
    dir: RuntimeDir,
    pub stderr: StderrWriter,
    /// The session that waits for the lease and holds it.
    session: watch::Receiver<Option<SessionResume>>,
    /// A process of the command is alive and cannot be killed by this user, so the lease must not be released.
    pub unkillable: bool,
}

impl<'a> Wrapper<'a> {
    pub fn new(name: &'a str, options: &'a RunOptions, global: &GlobalArgs) -> Result<Self, CommandError> {
        let times = options.times()?;
        let client = options.client(global)?;
        let session = client.session();
        let cannot = |what: &str, error: io::Error| CommandError::Other(format!("cannot {what}: {error}"));
        let signals = ForwardedSignals::listen().map_err(|error| cannot("listen to signals", error))?;
        let stderr = StderrWriter::new().map_err(|error| cannot("start a thread", error))?;
        let dir = RuntimeDir::create()?;
        let socket = runtime_dir::progress(dir.path());
        let notify = NotifySocket::bind(&socket).map_err(|error| {
            let path = socket.display();
            Error::config("TMPDIR", format!("cannot create the socket {path}: {error}; set a shorter TMPDIR"))
        })?;
        let addr = global.addr_or_default().to_owned();
        let command = &options.command;
        Ok(Self { client, name, command, times, addr, signals, notify, dir, stderr, session, unkillable: false })
    }

    /// Starts a supervisor for the next run. It starts before the lease is granted, so that it costs no lease time.
    pub async fn start_supervisor(&self) -> Result<SupervisorHandle, CommandError> {
        let socket = runtime_dir::progress(self.dir.path());
        let env = [
            (RESOURCE, OsStr::new(self.name)),
            (ADDR, OsStr::new(&self.addr)),
            ("LEASEHOLD_SOCKET", socket.as_os_str()),
        ];
        SupervisorHandle::start(&self.dir, self.command, &env).await
    }

    /// Waits for the lease, or for a signal that ends the wrapper. The supervisor receives the session: if this process dies
    /// while it waits, the supervisor closes the session, so that the lease is not granted to a dead process.
    pub async fn acquire_or_signal<T>(
        &mut self,
        supervisor: &mut SupervisorHandle,
        wait: impl Future<Output = T>,
    ) -> Result<T, ReceivedSignal> {
        let mut wait = std::pin::pin!(wait);
        self.session.mark_changed();
        loop {
            tokio::select! {
                done = &mut wait => return Ok(done),
                signal = self.signals.next_ending() => return Err(signal),
                Ok(()) = self.session.changed() => {
                    if let Some(resume) = &*self.session.borrow_and_update() {
                        supervisor.send(&SupervisorCommand::Session(SessionCleanup::new(resume)));
                    }
                }
            }
        }
    }

    /// Waits for a future, or for a signal that ends the wrapper.
    pub async fn or_signal<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, ReceivedSignal> {
        tokio::select! {
            done = wait => Ok(done),
            signal = self.signals.next_ending() => Err(signal),
        }
    }

    /// Runs the command under a lease, and releases the lease when all processes of the command are dead.
    pub async fn run_under_lease(&mut self, guard: Guard, supervisor: &mut SupervisorHandle, resigns: bool) -> RunEnd {
        // In an overlapping handoff the predecessor may still run.
        let end = match self.or_signal(guard.wait_claimable()).await {
            Ok(Ok(_claim)) => None,
            Ok(Err(_)) => {
                Some(RunEnd::Lost(if let GuardState::Lost(loss) = guard.state() { Some(loss) } else { None }))
            }
            Err(signal) => Some(RunEnd::Resigned(signal)),
        };
        if let Some(end) = end {
            self.release(guard, matches!(end, RunEnd::Lost(_))).await;
            return end;
        }
        if resigns {
            let number = guard.token_number().get();
            self.stderr.print(format!("leasehold: {}: elected leader with token number {number}", self.name));
        }
        let Self { signals, notify, times, stderr, .. } = self;
        let run = CommandRun { guard: &guard, signals, notify, stderr, times: *times, resigns };
        let FinishedRun { end, unkillable } = run.run(supervisor).await;
        if unkillable.is_empty() {
            self.release(guard, matches!(end, RunEnd::Lost(_))).await;
        } else {
            self.leave_to_expire(guard, &unkillable);
        }
        end
    }

    /// Exits without releasing the lease, because a process that may still write is alive. The lease ends with its ttl.
    fn leave_to_expire(&mut self, guard: Guard, unkillable: &[i32]) {
        let pids = unkillable.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        self.stderr.print(format!(
            "leasehold: cannot kill process {pids}: not permitted; only fences reject its writes; {} is not released and \
             expires with its ttl",
            self.name
        ));
        self.unkillable = true;
        // Dropping a guard releases its lease.
        std::mem::forget(guard);
        // The lease is renewed until this process exits. It exits soon, whether or not its messages are read.
        std::thread::spawn(|| {
            std::thread::sleep(STDERR_TIMEOUT);
            std::process::exit(1);
        });
    }

    async fn release(&self, guard: Guard, lost: bool) {
        let timeout = if guard.is_held() { RELEASE_TIMEOUT } else { CLOSE_TIMEOUT };
        let error = match tokio::time::timeout(timeout, guard.release()).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.into_error(),
            Err(_) => Error::new(Code::Timeout, "no server replied in time; wait for the ttl"),
        };
        if !lost {
            self.stderr.print(format!("leasehold: {}: not released, expires with its ttl: {error}", self.name));
        }
    }

    /// Prints why the command did not start, and exits as a shell would.
    pub fn report_start_error(&self, error: StartError) -> CommandOutput {
        self.stderr.print(format!("leasehold: {}", error.message));
        CommandOutput::exit_code(error.exit)
    }

    /// Closes the session, so that no other holder waits for its ttl, and then shuts the supervisor down.
    pub async fn close(self, supervisor: SupervisorHandle, outcome: CommandResult) -> CommandResult {
        if !self.unkillable {
            // If this fails, the session ends with its ttl.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.client.close()).await;
        }
        // The supervisor must outlive the directory: it removes the directory if this process is killed.
        runtime_dir::remove(self.dir.path());
        supervisor.shut_down();
        self.stderr.flush(CLOSE_TIMEOUT);
        outcome
    }
}

/// The error for a lease that was lost while its command ran.
pub fn lost_error(name: &str, loss: Option<Loss>) -> CommandError {
    match loss {
        Some(loss) => Error::from(RunError::Lost(loss)).into(),
        None => {
            let message = format!(
                "{name} was not renewed in time, or the command made no progress; the command was terminated; acquire again"
            );
            Error::new(Code::LeaseLost, message).into()
        }
    }
}

/// Runs a future on a single-threaded runtime. The client renews the lease on a thread of its own.
pub fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CommandError::Other(format!("cannot start: {error}")))?.block_on(work)
}
