//! One run of the command under one lease: renewals extend its deadlines, and the loss of the lease terminates it.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use leasehold::{Guard, GuardState, LeaseStatus, Loss, StampedToken};
use rustix::process::Signal;

use super::TOKEN;
use super::ipc::{CommandExit, LeaseDeadlines, StartError, SupervisorCommand, SupervisorReport};
use super::kill_schedule::{KillAction, KillSchedule};
use super::notify_socket::NotifySocket;
use super::options::{CommandTimes, MARGIN, OnLost};
use super::signals::{ForwardedSignals, ReceivedSignal};
use super::stderr_writer::StderrWriter;
use super::supervisor::{POLL_INTERVAL, now};
use super::supervisor_handle::SupervisorHandle;
use crate::output::CommandError;

/// Minimum time in nanoseconds that the wrapper waits for the report of a supervisor that must stop the command.
const MIN_LATE: u64 = 250_000_000;

/// How a run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// The command exited, or was killed by someone else.
    Exited(CommandExit),
    /// The lease was lost. The reason is present if the grantor reported it, and absent if the local deadline passed.
    Lost(Option<Loss>),
    /// A signal requested this holder to resign.
    Resigned(ReceivedSignal),
    /// A target could not be claimed, so the command was not started.
    NotClaimed(CommandError),
    /// The command could not be started.
    NotStarted(StartError),
    /// The supervisor died; all processes of the command are dead.
    Failed(String),
}

/// A finished run. Its lease has not been released yet.
pub struct FinishedRun {
    pub end: RunEnd,
    /// Live processes of the command that this user may not kill.
    pub unkillable: Vec<i32>,
}

/// Inputs of one run.
pub struct CommandRun<'a> {
    pub guard: &'a Guard,
    /// Variables that fence the command.
    pub fence_env: &'a [(String, String)],
    pub signals: &'a mut ForwardedSignals,
    pub notify: &'a NotifySocket,
    pub stderr: &'a StderrWriter,
    pub times: CommandTimes,
    /// Whether SIGINT and SIGTERM end the run (`elect`), or are only forwarded (`run`).
    pub resigns: bool,
}

impl CommandRun<'_> {
    /// Runs the command until all its processes are dead, except those that this user may not kill.
    pub async fn run(self, supervisor: &mut SupervisorHandle) -> FinishedRun {
        let env = [
            (TOKEN, self.guard.token().to_string()),
            ("LEASEHOLD_TOKEN_NUMBER", self.guard.token_number().get().to_string()),
            ("LEASEHOLD_LEASE", self.guard.lease_id().to_string()),
        ];
        let mut env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        env.extend(stamped_variables(&self.guard.stamped_tokens()));
        env.extend_from_slice(self.fence_env);
        let mut state = RunState::default();
        let deadlines = self.deadlines(&self.guard.status(), &mut state);
        supervisor.send(&SupervisorCommand::Start { env, deadlines });
        let mut changes = self.guard.updates();
        let report = loop {
            tokio::select! {
                // An available report comes first: it shows that the supervisor was in time.
                biased;
                report = supervisor.report() => match report {
                    Some(SupervisorReport::Terminating) => state.terminating = true,
                    report => break report,
                },
                signal = self.signals.next() => self.forward_signal(supervisor, signal, &mut state),
                status = changes.next(), if !state.lost => {
                    if let Some(status) = status {
                        self.apply_status(supervisor, &status, &mut state);
                    }
                }
                progress = self.notify.progress() => match progress {
                    Ok(progress) => {
                        if let Some(report) = self.received_report(supervisor, &mut state).await {
                            break report;
                        }
                        if !state.terminating {
                            self.guard.progress(progress);
                        }
                    }
                    Err(error) => self.stderr.print(&format!("invalid notification: {error}")),
                },
                () = tokio::time::sleep(state.pause()) => {}
            }
            if state.schedule.is_due(now()) {
                // If this process wakes late, a supervisor that was in time has already reported, and the lease may have been
                // renewed.
                if let Some(report) = self.received_report(supervisor, &mut state).await {
                    break report;
                }
                while !state.lost
                    && let Some(Some(status)) = changes.next().now_or_never()
                {
                    self.apply_status(supervisor, &status, &mut state);
                }
            }
            if state.schedule.poll(now()) == KillAction::Kill {
                state.overdue = true;
                break None;
            }
        };
        let left = if report.is_none() { supervisor.kill_all() } else { Vec::new() };
        self.finish(report, left, &state)
    }

    /// The report that says that the command is dead, or none if it has not arrived. The supervisor reports SIGTERM before it
    /// sends it, so nothing that the command does afterwards precedes that report.
    async fn received_report(
        &self,
        supervisor: &mut SupervisorHandle,
        state: &mut RunState,
    ) -> Option<Option<SupervisorReport>> {
        // The runtime polls its sockets before this task continues.
        tokio::task::yield_now().await;
        loop {
            match supervisor.report().now_or_never()? {
                Some(SupervisorReport::Terminating) => state.terminating = true,
                report => return Some(report),
            }
        }
    }

    /// Deadlines of the command under this lease. The wrapper enforces them too, a little later.
    fn deadlines(&self, status: &LeaseStatus, state: &mut RunState) -> Option<LeaseDeadlines> {
        let (now, deadline) = (now(), status.deadline.earliest.0);
        state.longest = state.longest.max(deadline.saturating_sub(now));
        let end = LeaseTimes { deadline, fixed: status.fixed_end.map(|end| end.0), longest: state.longest };
        let deadlines = self.times.deadlines(now, end)?;
        state.schedule.renew(deadlines.wrapper_deadline(deadline));
        Some(deadlines)
    }

    /// Applies a renewal or a change of the lease to the command.
    fn apply_status(&self, supervisor: &mut SupervisorHandle, status: &LeaseStatus, state: &mut RunState) {
        let resource = self.guard.resource();
        match status.state {
            GuardState::Held => {
                if let Some(deadlines) = self.deadlines(status, state) {
                    supervisor.send(&SupervisorCommand::SetDeadlines(deadlines));
                }
                state.suspended = false;
            }
            GuardState::Suspended if self.times.on_lost == OnLost::Warn && !state.suspended => {
                state.suspended = true;
                self.stderr.print(&format!(
                    "{resource}: not renewed in time; from now on only fences reject the command's writes"
                ));
            }
            // The supervisor acts on its own clock.
            GuardState::Suspended => {}
            GuardState::Lost(loss) => {
                state.lost = true;
                if self.times.on_lost == OnLost::Warn {
                    let message = "from now on only fences reject the command's writes";
                    self.stderr.print(&format!("{resource}: {loss}; {message}"));
                }
            }
        }
        // A draining holder must finish before its deadline; a holder that lost its lease must stop now.
        if (status.draining.is_some() || state.lost) && !state.stopped {
            state.stopped = true;
            if let Some(within) = self.times.kill_delay(state.lost) {
                self.stop(supervisor, within, state);
            }
        }
    }

    fn forward_signal(&self, supervisor: &mut SupervisorHandle, signal: ReceivedSignal, state: &mut RunState) {
        if self.resigns && signal.resigns() {
            state.resigned.get_or_insert(signal);
            self.stop(supervisor, self.times.grace, state);
        } else if !signal.is_from_terminal() {
            supervisor.send(&SupervisorCommand::Signal(signal.number()));
        }
    }

    fn stop(&self, supervisor: &mut SupervisorHandle, within: u64, state: &mut RunState) {
        let late = (self.times.ttl / MARGIN / 2).max(MIN_LATE);
        state.schedule.stop(now(), within.saturating_add(late));
        supervisor.send(&SupervisorCommand::Stop { within });
    }

    fn finish(&self, report: Option<SupervisorReport>, left: Vec<i32>, state: &RunState) -> FinishedRun {
        let killed = CommandExit::Signal(Signal::KILL.as_raw());
        let (unkillable, end) = match report {
            Some(SupervisorReport::Exited { status, stopped, unkillable }) => {
                (unkillable, self.run_end(status, stopped, state))
            }
            Some(SupervisorReport::NotStarted(error)) => (left, RunEnd::NotStarted(error)),
            Some(SupervisorReport::Terminating) | None if state.overdue => {
                let message = "the supervisor did not report in time; the wrapper killed the command";
                self.stderr.print(&format!("{}: {message}", self.guard.resource()));
                (left, self.run_end(killed, true, state))
            }
            Some(SupervisorReport::Terminating) | None => {
                (left, RunEnd::Failed("the supervisor was killed; the command was killed".to_owned()))
            }
        };
        FinishedRun { end, unkillable }
    }

    fn run_end(&self, status: CommandExit, stopped: bool, state: &RunState) -> RunEnd {
        match (self.guard.state(), state.resigned) {
            (GuardState::Lost(loss), _) => RunEnd::Lost(Some(loss)),
            (_, Some(signal)) => RunEnd::Resigned(signal),
            _ if stopped => RunEnd::Lost(None),
            _ => RunEnd::Exited(status),
        }
    }
}

/// Progress of a run.
#[derive(Default)]
struct RunState {
    lost: bool,
    stopped: bool,
    /// The supervisor terminates the command because of its lease.
    terminating: bool,
    /// The warning about the suspended lease has been printed.
    suspended: bool,
    resigned: Option<ReceivedSignal>,
    /// The supervisor missed its deadline.
    overdue: bool,
    /// The most time that the lease was ever given, in nanoseconds.
    longest: u64,
    /// When the wrapper stops waiting for the supervisor and kills the command itself.
    schedule: KillSchedule,
}

impl RunState {
    fn pause(&self) -> Duration {
        let left =
            self.schedule.next_deadline().map_or(POLL_INTERVAL, |at| Duration::from_nanos(at.saturating_sub(now())));
        left.min(POLL_INTERVAL)
    }
}

impl LeaseDeadlines {
    /// When the wrapper kills a command that its supervisor should have killed: halfway between `kill_at` and the lease's end.
    const fn wrapper_deadline(self, deadline: u64) -> Self {
        let late = deadline.saturating_sub(self.kill_at) / 2;
        Self { terminate_at: None, kill_at: self.kill_at.saturating_add(late) }
    }
}

/// What a holder knows about the end of its lease, in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    /// The local deadline.
    deadline: u64,
    /// When the lease ends even if it is renewed.
    fixed: Option<u64>,
    /// The most time that the lease was ever given.
    longest: u64,
}

impl CommandTimes {
    /// Deadlines of the command under a lease; `None` if the command may outlive its lease.
    fn deadlines(&self, now: u64, end: LeaseTimes) -> Option<LeaseDeadlines> {
        let left = end.deadline.saturating_sub(now);
        // A charter's drain period can make a renewal shorter than the ttl. The lease is then renewed after a third of that
        // time, and the command receives SIGTERM after two thirds.
        let max_grace = if left < self.ttl / 10 * 9 { left / 3 } else { left / 2 };
        let renewable = self.deadlines_before(end.deadline, left.min(self.ttl) / MARGIN, max_grace);
        // No renewal moves a fixed end, so the margin and the grace period must not shrink with the time that is left. The
        // command may work before SIGTERM for as long as `--progress` says, or for half of the time.
        let max_grace = end.longest - self.progress.unwrap_or(u64::MAX).min(end.longest / 2);
        let margin = (self.ttl / MARGIN).min(end.longest / 4);
        let fixed = end.fixed.map(|at| self.deadlines_before(at, margin, max_grace));
        let earliest = fixed.map_or(renewable, |fixed| LeaseDeadlines {
            terminate_at: renewable.terminate_at.min(fixed.terminate_at),
            kill_at: renewable.kill_at.min(fixed.kill_at),
        });
        match self.on_lost {
            OnLost::Warn => None,
            OnLost::Kill => Some(LeaseDeadlines { terminate_at: None, ..earliest }),
            OnLost::Term => Some(earliest),
        }
    }

    fn deadlines_before(&self, end: u64, margin: u64, max_grace: u64) -> LeaseDeadlines {
        let kill_at = end.saturating_sub(margin);
        LeaseDeadlines { terminate_at: Some(kill_at.saturating_sub(self.grace.min(max_grace))), kill_at }
    }

    /// Delay until a command that must stop now is killed; `None` if it need not stop, or stops at its deadline.
    const fn kill_delay(&self, lost: bool) -> Option<u64> {
        match (self.on_lost, lost) {
            (OnLost::Warn, _) | (OnLost::Kill, false) => None,
            (OnLost::Kill, true) => Some(0),
            (OnLost::Term, true) => Some(self.grace),
            // While the lease drains, its deadline decides.
            (OnLost::Term, false) => Some(u64::MAX),
        }
    }
}

/// One variable for each target with a stamp. Targets whose names give one variable get none, so that no stamp is mistaken.
fn stamped_variables(stamped: &[StampedToken]) -> Vec<(String, String)> {
    let variable = |target: &str| {
        let name = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        format!("LEASEHOLD_STAMPED_TOKEN_{}", target.chars().map(name).collect::<String>())
    };
    let of_target = |one: &StampedToken| {
        let name = variable(one.target());
        let is_unique = stamped.iter().filter(|other| variable(other.target()) == name).count() == 1;
        is_unique.then(|| (name, one.as_str().to_owned()))
    };
    stamped.iter().filter_map(of_target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn deadlines_of(on_lost: OnLost, left: u64) -> Option<LeaseDeadlines> {
        let times = CommandTimes { on_lost, ttl: 10 * SECOND, grace: 5 * SECOND, progress: None };
        let deadline = (100 + left) * SECOND;
        times.deadlines(100 * SECOND, LeaseTimes { deadline, fixed: None, longest: left * SECOND })
    }

    #[test]
    fn a_fixed_end_leaves_the_whole_grace_period_however_often_the_lease_is_renewed() {
        let times =
            CommandTimes { on_lost: OnLost::Term, ttl: 10 * SECOND, grace: 2 * SECOND, progress: Some(4 * SECOND) };
        let (end, longest) = (108 * SECOND, 8 * SECOND);
        for now in [100 * SECOND, 104 * SECOND, 107 * SECOND, end - 1] {
            let end = LeaseTimes { deadline: end, fixed: Some(end), longest };
            let deadlines = times.deadlines(now, end).expect("has deadlines");
            let kill_at = 108 * SECOND - SECOND / 2;
            assert_eq!((deadlines.terminate_at, deadlines.kill_at), (Some(kill_at - 2 * SECOND), kill_at), "{now}");
        }
    }

    #[test]
    fn a_fixed_end_leaves_the_command_time_to_work_before_sigterm() {
        let times = |progress| CommandTimes { on_lost: OnLost::Term, ttl: 10 * SECOND, grace: 5 * SECOND, progress };
        let end = LeaseTimes { deadline: 104 * SECOND, fixed: Some(104 * SECOND), longest: 4 * SECOND };
        let kill_at = 104 * SECOND - SECOND / 2;
        for (progress, grace) in
            [(None, 2 * SECOND), (Some(SECOND), 3 * SECOND), (Some(3 * SECOND), 2 * SECOND), (Some(0), 4 * SECOND)]
        {
            let deadlines = times(progress).deadlines(100 * SECOND, end).expect("has deadlines");
            assert_eq!((deadlines.terminate_at, deadlines.kill_at), (Some(kill_at - grace), kill_at), "{progress:?}");
        }
    }

    #[test]
    fn sigterm_is_due_a_grace_period_before_sigkill_which_is_due_before_the_lease_deadline() {
        let deadlines = deadlines_of(OnLost::Term, 10).expect("has deadlines");
        assert_eq!(
            (deadlines.terminate_at, deadlines.kill_at),
            (Some(104 * SECOND + SECOND / 2), 109 * SECOND + SECOND / 2)
        );
        assert_eq!(
            deadlines_of(OnLost::Kill, 10).map(|deadlines| (deadlines.terminate_at, deadlines.kill_at)),
            Some((None, deadlines.kill_at))
        );
        assert_eq!(deadlines_of(OnLost::Warn, 10), None);
    }

    #[test]
    fn the_wrapper_waits_for_its_supervisor_for_half_of_the_kill_margin() {
        let last = deadlines_of(OnLost::Term, 10).expect("has deadlines").wrapper_deadline(110 * SECOND);
        assert_eq!((last.terminate_at, last.kill_at), (None, 109 * SECOND + 3 * SECOND / 4));
    }

    #[test]
    fn a_renewal_shorter_than_the_ttl_leaves_two_thirds_of_it_before_sigterm() {
        let deadlines = deadlines_of(OnLost::Term, 6).expect("has deadlines");
        assert_eq!(
            (deadlines.terminate_at, deadlines.kill_at),
            (Some(103 * SECOND + 7 * SECOND / 10), 105 * SECOND + 7 * SECOND / 10)
        );
        assert_eq!(
            deadlines_of(OnLost::Term, 0),
            Some(LeaseDeadlines { terminate_at: Some(100 * SECOND), kill_at: 100 * SECOND })
        );
    }
}
