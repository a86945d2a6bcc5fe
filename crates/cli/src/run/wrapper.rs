//! The wrapper process: acquires the lease, runs the command under it, and releases it afterwards.
//!
//! `run` uses one wrapper for one lease; `elect` uses one wrapper for one lease after another.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::time::Duration;

use leasehold::session_stream::SessionResume;
use leasehold::types::{EndReason, LeaseId, LeaseSelector};
use leasehold::{
    Client, Code, Error, FencingToken, Guard, GuardState, HeldLease, LeaseStatus, Loss, RequestError, RunError,
};
use tokio::sync::watch;

use super::RESOURCE;
use super::command_run::{CommandRun, FinishedRun, RunEnd};
use super::connection_messages::ConnectionMessages;
use super::fences::{ClaimedFences, RunFence};
use super::ipc::{StartError, SupervisorCommand};
use super::notify_socket::NotifySocket;
use super::options::{CommandTimes, RunOptions};
use super::orphaned_session::SessionCleanup;
use super::process_tree;
use super::runtime_dir::{self, RuntimeDir};
use super::signals::{ForwardedSignals, ReceivedSignal};
use super::stderr_writer::StderrWriter;
use super::supervisor::now;
use super::supervisor_handle::SupervisorHandle;
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};

/// Timeout of a release. After it, the lease ends with its ttl.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of closing the session, and of releasing a lease that has ended already.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the last message on standard error where the lease is renewed until this process exits.
const STDERR_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the wrapper process.
pub struct Wrapper<'a> {
    pub client: Client,
    name: &'a str,
    command: &'a [OsString],
    /// Targets to claim before the command starts.
    fences: &'a [RunFence],
    times: CommandTimes,
    /// Variables with the servers and certificates.
    servers: Vec<(&'static str, OsString)>,
    signals: ForwardedSignals,
    notify: NotifySocket,
    dir: RuntimeDir,
    pub stderr: StderrWriter,
    /// The session that waits for the lease and holds it.
    session: watch::Receiver<Option<SessionResume>>,
    /// A process of the command is alive and cannot be killed by this user, so the lease must not be released.
    pub unkillable: bool,
    /// A signal that arrived while the lease was released.
    pub interrupted: Option<ReceivedSignal>,
    /// The last lease, if no server has replied how it ended.
    unresolved: Option<(LeaseId, FencingToken)>,
    /// The last release was not answered in time.
    unanswered: bool,
}

/// A finished run, after its lease was released or ended.
pub struct SettledRun {
    pub end: RunEnd,
    /// How the lease ended according to the grantor, if that is known.
    pub loss: Option<Loss>,
}

impl<'a> Wrapper<'a> {
    /// A wrapper. If it retries without a time limit, it prints why it cannot connect.
    pub fn new(
        name: &'a str,
        options: &'a RunOptions,
        global: &GlobalArgs,
        retries: bool,
    ) -> Result<Self, CommandError> {
        let times = options.times()?;
        process_tree::check_proc()?;
        let cannot = |what: &str, error: io::Error| CommandError::Other(format!("cannot {what}: {error}"));
        let signals = ForwardedSignals::listen().map_err(|error| cannot("listen to signals", error))?;
        let stderr = StderrWriter::new(global.format()).map_err(|error| cannot("start a thread", error))?;
        let client = options.client(global, retries.then(|| ConnectionMessages::new(&stderr)))?;
        let session = client.session();
        let dir = RuntimeDir::create()?;
        let notify = bind_notify(&dir)?;
        let servers = global.variables()?;
        let (command, fences) = (&options.command, &options.fences);
        let (unkillable, interrupted, unresolved, unanswered) = (false, None, None, false);
        Ok(Self {
            client,
            name,
            command,
            fences,
            times,
            servers,
            signals,
            notify,
            dir,
            stderr,
            session,
            unkillable,
            interrupted,
            unresolved,
            unanswered,
        })
    }

    /// Starts a supervisor for the next run. It starts before the lease is granted, so that it costs no lease time.
    pub async fn start_supervisor(&mut self) -> Result<SupervisorHandle, CommandError> {
        if !self.dir.path().is_dir() {
            // Someone cleans up the directory for temporary files.
            self.dir = RuntimeDir::create()?;
            self.notify = bind_notify(&self.dir)?;
        }
        let socket = runtime_dir::progress(self.dir.path());
        let mut env = vec![(RESOURCE, OsStr::new(self.name)), ("LEASEHOLD_SOCKET", socket.as_os_str())];
        env.extend(self.servers.iter().map(|(name, value)| (*name, value.as_os_str())));
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
    pub async fn run_under_lease(
        &mut self,
        guard: Guard,
        supervisor: &mut SupervisorHandle,
        resigns: bool,
    ) -> SettledRun {
        // In an overlapping handoff the predecessor may still run.
        let end = match self.or_signal(guard.wait_claimable()).await {
            Ok(Ok(_claim)) => None,
            Ok(Err(_)) => {
                Some(RunEnd::Lost(if let GuardState::Lost(loss) = guard.state() { Some(loss) } else { None }))
            }
            Err(signal) => Some(RunEnd::Resigned(signal)),
        };
        if let Some(end) = end {
            return self.settle(guard, end, resigns).await;
        }
        // The forwarders end after the command.
        let claimed = match self.claim_fences(&guard).await {
            Ok(claimed) => claimed,
            Err(end) => return self.settle(guard, end, resigns).await,
        };
        if resigns {
            let number = guard.token_number().get();
            self.stderr.print(&format!("{}: elected leader with token number {number}", self.name));
        }
        let Self { signals, notify, times, stderr, .. } = self;
        let fence_env = &claimed.env;
        let run = CommandRun { guard: &guard, fence_env, signals, notify, stderr, times: *times, resigns };
        let FinishedRun { end, unkillable } = run.run(supervisor).await;
        if !unkillable.is_empty() {
            self.leave_to_expire(guard, &unkillable);
            return SettledRun { end, loss: None };
        }
        self.settle(guard, end, resigns).await
    }

    /// Claims all targets, unless the lease ends or a signal arrives in the meantime. A claim waits for at most one ttl for
    /// transactions of the predecessor: by then the database has ended those of a command of `leasehold run`.
    async fn claim_fences(&mut self, guard: &Guard) -> Result<ClaimedFences, RunEnd> {
        if self.fences.is_empty() {
            return Ok(ClaimedFences::default());
        }
        let (fences, stderr) = (self.fences, self.stderr.clone());
        let timeout = Duration::from_nanos(self.times.ttl);
        let claim = async {
            tokio::select! {
                claimed = ClaimedFences::claim(fences, guard, timeout, &stderr) => claimed.map_err(RunEnd::NotClaimed),
                loss = guard.wait_lost() => Err(RunEnd::Lost(Some(loss))),
            }
        };
        self.or_signal(claim).await.unwrap_or_else(|signal| Err(RunEnd::Resigned(signal)))
    }

    /// Releases the lease of a command that is dead, unless the grantor is about to end it. Learns how the lease ended if the
    /// command was terminated because of it, or if the caller needs to know.
    async fn settle(&mut self, guard: Guard, end: RunEnd, must_know: bool) -> SettledRun {
        let status = guard.status();
        let stopped = matches!(end, RunEnd::Lost(None));
        let loss = match status.state {
            GuardState::Lost(loss) => Some(loss),
            GuardState::Held | GuardState::Suspended => {
                let ending = if stopped { self.wait_fixed_end(&guard, &status).await } else { None };
                match ending {
                    Some(loss) => Some(loss),
                    None => self.release(guard, &status, stopped, stopped || must_know).await,
                }
            }
        };
        // A lease that is released late was not renewed in time: the grantor did not end it.
        let end = match loss {
            Some(loss) if stopped && loss != Loss::Ended(EndReason::Released) => RunEnd::Lost(Some(loss)),
            _ => end,
        };
        SettledRun { end, loss }
    }

    /// Waits until the grantor ends a lease whose end no renewal moves, so that it records why: missing progress, or the maximum
    /// hold. The command was terminated its grace period before.
    async fn wait_fixed_end(&self, guard: &Guard, status: &LeaseStatus) -> Option<Loss> {
        if status.fixed_end.is_none() || status.draining.is_some() {
            return None;
        }
        let left = Duration::from_nanos(status.deadline.latest.0.saturating_sub(now()));
        tokio::time::timeout(left + CLOSE_TIMEOUT, guard.wait_lost()).await.ok()
    }

    /// Exits without releasing the lease, because a process that may still write is alive. The lease ends with its ttl.
    fn leave_to_expire(&mut self, guard: Guard, unkillable: &[i32]) {
        let pids = unkillable.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        self.stderr.print(&format!(
            "cannot kill process {pids}: not permitted; only fences reject its writes; {} is not released and \
             expires with its ttl",
            self.name
        ));
        self.unkillable = true;
        // Dropping a guard releases its lease.
        std::mem::forget(guard);
        // The lease is renewed until this process exits. It exits soon, whether or not its messages are read.
        let exit = || {
            std::thread::sleep(STDERR_TIMEOUT);
            std::process::exit(1)
        };
        if std::thread::Builder::new().spawn(exit).is_err() {
            self.stderr.flush(STDERR_TIMEOUT);
            std::process::exit(1);
        }
    }

    /// Releases the lease, and asks how it ended. Returns that if a server replies. A signal cancels the wait.
    async fn release(&mut self, guard: Guard, status: &LeaseStatus, lost: bool, must_know: bool) -> Option<Loss> {
        self.unresolved = Some((guard.lease_id(), guard.token()));
        let draining = status.draining.is_some();
        let timeout = release_timeout(guard.is_held(), guard.remaining());
        let release = async {
            if must_know || draining {
                guard.release_with_reason().await
            } else {
                guard.release().await.map(|()| EndReason::Released).map_err(RequestError::into_error)
            }
        };
        let result = self.or_signal(tokio::time::timeout(timeout, release)).await;
        self.unanswered = !matches!(result, Ok(Ok(_)));
        let error = match result {
            Ok(Ok(Ok(reason))) => {
                self.unresolved = None;
                return Some(Loss::Ended(reason));
            }
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => Error::new(Code::Timeout, "no server replied in time; wait for the ttl"),
            Err(signal) => {
                self.interrupted = Some(signal);
                Error::new(Code::Cancelled, "a signal ended the wait for a reply; wait for the ttl")
            }
        };
        if !lost {
            self.stderr.print(&format!("{}: not released, expires with its ttl: {error}", self.name));
        }
        // An announced end may be a revocation, after which no one acquires again by itself (L6).
        draining.then_some(Loss::NotCurrent)
    }

    /// How the previous lease ended, if no server had replied that yet. It may have been revoked during the outage.
    pub async fn previous_loss(&mut self) -> Option<Loss> {
        let (lease, token) = self.unresolved.take()?;
        let held = HeldLease::select(LeaseSelector::Id(lease), token);
        let checked = tokio::time::timeout(RELEASE_TIMEOUT, self.client.check(&held)).await.ok()?;
        checked.err()?.end_reason().map(Loss::Ended)
    }

    /// Prints why the command did not start, and exits as a shell would.
    pub fn report_start_error(&self, error: StartError) -> CommandOutput {
        self.stderr.print(&error.message);
        CommandOutput::exit_code(error.exit)
    }

    /// Closes the session, so that no other holder waits for its ttl, and then shuts the supervisor down.
    pub async fn close(self, supervisor: SupervisorHandle, outcome: CommandResult) -> CommandResult {
        // Without a reply to the release there is none to this either.
        if !self.unkillable && !self.unanswered {
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

fn bind_notify(dir: &RuntimeDir) -> Result<NotifySocket, Error> {
    let socket = runtime_dir::progress(dir.path());
    NotifySocket::bind(&socket).map_err(|error| {
        let path = socket.display();
        Error::config("TMPDIR", format!("cannot create the socket {path}: {error}; set a shorter TMPDIR"))
    })
}

/// Timeout of a release. A release after the local deadline is only a courtesy, and so is one that takes longer than the lease.
fn release_timeout(held: bool, remaining: Duration) -> Duration {
    if held { RELEASE_TIMEOUT.min(remaining.max(CLOSE_TIMEOUT)) } else { CLOSE_TIMEOUT }
}

/// The error for a lease that was lost while its command ran.
pub fn lost_error(name: &str, loss: Option<Loss>) -> CommandError {
    match loss {
        Some(loss) => Error::from(RunError::Lost(loss)).into(),
        None => {
            let message = format!("{name} was not renewed in time; the command was terminated; acquire again");
            Error::new(Code::LeaseLost, message).into()
        }
    }
}

/// Runs a future on a single-threaded runtime. The client renews the lease on a thread of its own.
pub fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CommandError::Other(format!("cannot start: {error}")))?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_waits_no_longer_than_the_lease_lasts_and_is_short_after_its_deadline() {
        let seconds = Duration::from_secs;
        assert_eq!(release_timeout(true, seconds(600)), RELEASE_TIMEOUT);
        assert_eq!(release_timeout(true, seconds(3)), seconds(3));
        assert_eq!(release_timeout(true, Duration::ZERO), CLOSE_TIMEOUT);
        assert_eq!(release_timeout(false, seconds(600)), CLOSE_TIMEOUT);
    }
}
