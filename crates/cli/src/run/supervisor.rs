//! The supervisor process: terminates the command when its deadlines pass or when the wrapper dies.
//!
//! It is a second process of this binary between the wrapper and the command, in its own process group, so that a signal to
//! the wrapper's group does not stop it. It knows the command's deadlines and reads its own clock, so that a stopped wrapper
//! does not delay the kill.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use futures::FutureExt;
use leasehold::{FencingToken, HeldLease};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::exec_shim;
use super::ipc::{CommandExit, IpcChannel, StartError, SupervisorCommand, SupervisorReport};
use super::kill_schedule::{KillAction, KillSchedule};
use super::orphaned_session::SessionCleanup;
use super::process_tree;
use super::runtime_dir;
use super::signals;
use super::{RESOURCE, TOKEN};
use crate::global_args::{client_builder, endpoints_from_env};

/// Internal subcommand that starts a supervisor.
pub const SUBCOMMAND: &str = "__supervise";

/// How often the boot clock is read: it advances while the machine is suspended, but timers do not.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout of releasing the lease of a dead wrapper.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// `SUBCOMMAND DIRECTORY GROUP COMMAND…`. The command joins the process group, unless it is 0.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(directory), Some(group)) = (args.next(), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Some(group) = group.to_str().and_then(|text| text.parse().ok()) else {
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| runtime.block_on(supervise(Path::new(&directory), group, args.collect())));
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn supervise(directory: &Path, group: i32, command: Vec<OsString>) -> io::Result<()> {
    process_tree::become_subreaper()?;
    // A service manager signals every process of a service. Only the wrapper decides what that means for the command.
    signals::survive()?;
    let mut children = signal(SignalKind::child())?;
    let Ok(socket) = UnixStream::connect(runtime_dir::control(directory)).await else {
        runtime_dir::remove(directory);
        return Ok(());
    };
    let mut channel = IpcChannel::new(socket);
    let mut cleanup = None;
    let (env, deadlines) = loop {
        match channel.recv().await {
            Some(SupervisorCommand::Start { env, deadlines }) => break (env, deadlines),
            Some(SupervisorCommand::Session(session)) => cleanup = Some(session),
            Some(SupervisorCommand::Exit) => return Ok(()),
            Some(_) => {}
            None => {
                runtime_dir::remove(directory);
                close_session(cleanup).await;
                return Ok(());
            }
        }
    };
    let mut schedule = KillSchedule::new(deadlines);
    if schedule.is_due(now()) {
        for message in received(&mut channel).await.0 {
            apply_to_schedule(&mut schedule, &message);
        }
    }
    if schedule.is_due(now()) || schedule.is_stopping() {
        // The command must end before it has started: the wrapper or this process was stopped in between.
        let status = CommandExit::Signal(Signal::KILL.as_raw());
        let report = SupervisorReport::Exited { status, stopped: true, unkillable: Vec::new() };
        return report_and_wait(&mut channel, directory, &env, cleanup.as_ref(), report).await;
    }
    let mut shim = Command::new("/proc/self/exe");
    shim.arg0("leasehold").arg(exec_shim::SUBCOMMAND).arg(std::process::id().to_string()).arg(directory);
    shim.args(command).envs(env.iter().map(|(name, value)| (name, value)));
    if group != 0 {
        shim.process_group(group);
    }
    let child = match shim.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let message = format!("cannot start the command: {error}");
            let report = SupervisorReport::NotStarted(StartError { exit: exec_shim::NOT_RUN, message });
            return report_and_wait(&mut channel, directory, &env, cleanup.as_ref(), report).await;
        }
    };
    let mut command = SupervisedCommand { child, status: None, schedule };
    let wrapper_died = loop {
        if command.schedule.is_due(now()) && !command.apply_received(&mut channel).await {
            break true;
        }
        command.poll(&channel);
        if command.status.is_some() {
            break false;
        }
        tokio::select! {
            message = channel.recv() => match message {
                Some(message) => command.apply(&message),
                None => break true,
            },
            _ = children.recv() => {}
            () = tokio::time::sleep(command.pause()) => {}
        }
    };
    let stopped = wrapper_died || command.schedule.is_stopping();
    let unkillable = command.kill_all();
    let status = command.status.unwrap_or(CommandExit::Signal(Signal::KILL.as_raw()));
    let all_dead = unkillable.is_empty();
    let report = match exec_shim::take_start_error(directory) {
        Some(error) => SupervisorReport::NotStarted(error),
        None => SupervisorReport::Exited { status, stopped, unkillable },
    };
    let wrapper_died = wrapper_died || channel.send(&report).await.is_err() || !wait_for_exit(&mut channel).await;
    if wrapper_died {
        runtime_dir::remove(directory);
    }
    if wrapper_died && all_dead {
        release_lease(&env, cleanup.as_ref()).await;
    }
    Ok(())
}

/// Reports a command that never ran, and waits until the wrapper has released the lease.
async fn report_and_wait(
    channel: &mut IpcChannel,
    directory: &Path,
    env: &[(String, String)],
    cleanup: Option<&SessionCleanup>,
    report: SupervisorReport,
) -> io::Result<()> {
    if channel.send(&report).await.is_err() || !wait_for_exit(channel).await {
        runtime_dir::remove(directory);
        release_lease(env, cleanup).await;
    }
    Ok(())
}

/// Waits until the wrapper has released the lease. Returns false if the wrapper died before.
async fn wait_for_exit(channel: &mut IpcChannel) -> bool {
    loop {
        match channel.recv().await {
            Some(SupervisorCommand::Exit) => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Releases the lease of a dead wrapper, so that waiters need not wait for its ttl. If this fails, the ttl ends the lease. The secret of
/// the session proves the lease, which the session carries.
async fn release_lease(env: &[(String, String)], cleanup: Option<&SessionCleanup>) {
    let token = env.iter().find(|(name, _)| name == TOKEN).and_then(|(_, token)| FencingToken::parse(token).ok());
    if let (Some(token), Some(endpoints), Ok(resource)) = (token, endpoints_from_env(), std::env::var(RESOURCE)) {
        let held = HeldLease::new(&resource, token);
        let client = client_builder(endpoints).build();
        let client = cleanup.map_or_else(|| client.clone(), |cleanup| cleanup.present(&client));
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, client.release(&held)).await;
    }
}

/// Closes the session of a wrapper that died while it waited, so that the lease is not granted to a dead process.
async fn close_session(cleanup: Option<SessionCleanup>) {
    if let (Some(cleanup), Some(endpoints)) = (cleanup, endpoints_from_env()) {
        cleanup.run(endpoints, RELEASE_TIMEOUT).await;
    }
}

/// All messages that have arrived, and whether the wrapper is alive.
async fn received(channel: &mut IpcChannel) -> (Vec<SupervisorCommand>, bool) {
    // The runtime polls its sockets before this task continues.
    tokio::task::yield_now().await;
    let mut messages = Vec::new();
    while let Some(message) = channel.recv().now_or_never() {
        match message {
            Some(message) => messages.push(message),
            None => return (messages, false),
        }
    }
    (messages, true)
}

/// Applies a message to the deadlines. A supervisor runs one command until it is dead, and then releases the lease by its token.
fn apply_to_schedule(schedule: &mut KillSchedule, message: &SupervisorCommand) {
    match message {
        SupervisorCommand::SetDeadlines(deadlines) => schedule.renew(*deadlines),
        SupervisorCommand::Stop { within } => schedule.stop(now(), *within),
        SupervisorCommand::Signal(_)
        | SupervisorCommand::Start { .. }
        | SupervisorCommand::Session(_)
        | SupervisorCommand::Exit => {}
    }
}

/// A running command.
struct SupervisedCommand {
    child: Pid,
    status: Option<CommandExit>,
    schedule: KillSchedule,
}

impl SupervisedCommand {
    fn apply(&mut self, message: &SupervisorCommand) {
        apply_to_schedule(&mut self.schedule, message);
        if let SupervisorCommand::Signal(number) = message
            && let Some(signal) = Signal::from_named_raw(*number)
        {
            // The command may have exited in the meantime; it is reaped next.
            let _ = kill_process(self.child, signal);
        }
    }

    /// Applies every message that has arrived: a supervisor that was paused must not act on a deadline that was moved meanwhile.
    /// Returns false if the wrapper died.
    async fn apply_received(&mut self, channel: &mut IpcChannel) -> bool {
        let (messages, alive) = received(channel).await;
        messages.into_iter().for_each(|message| self.apply(&message));
        alive
    }

    /// Reaps dead children and performs the due action.
    fn poll(&mut self, channel: &IpcChannel) {
        self.reap();
        match self.schedule.poll(now()) {
            KillAction::Wait => {}
            KillAction::Terminate => {
                if self.schedule.lease_is_over() {
                    channel.try_send(&SupervisorReport::Terminating);
                }
                drop(process_tree::signal_all(Signal::TERM));
            }
            KillAction::Kill => {
                self.kill_all();
                // A command that cannot be killed is listed in the report, and counts as killed.
                self.status.get_or_insert(CommandExit::Signal(Signal::KILL.as_raw()));
            }
        }
    }

    fn reap(&mut self) {
        let (child, exit) = (self.child, &mut self.status);
        process_tree::reap(|pid, status| record_exit(child, exit, pid, status));
    }

    /// Kills all processes that are left: no descendant outlives the command. Returns those that this user may not kill.
    fn kill_all(&mut self) -> Vec<i32> {
        let (child, exit) = (self.child, &mut self.status);
        process_tree::kill_all(|pid, status| record_exit(child, exit, pid, status))
    }

    fn pause(&self) -> Duration {
        let left =
            self.schedule.next_deadline().map_or(POLL_INTERVAL, |at| Duration::from_nanos(at.saturating_sub(now())));
        left.min(POLL_INTERVAL)
    }
}

fn record_exit(child: Pid, exit: &mut Option<CommandExit>, pid: Pid, status: WaitStatus) {
    if pid == child {
        let code = status.exit_status().map(|code| CommandExit::Code(u8::try_from(code).unwrap_or(u8::MAX)));
        *exit = code.or(status.terminating_signal().map(CommandExit::Signal)).or(*exit);
    }
}

/// Nanoseconds of the boot clock, which advances while the machine is suspended.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
