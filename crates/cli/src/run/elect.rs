//! `leasehold elect`: leader election; one of many candidates runs the command, and another takes over when it fails.

use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::{Error, Guard, NextStep, RunError};
use leasehold_core::limits::WAIT_MAX;

use super::command_run::RunEnd;
use super::options::RunOptions;
use super::stderr_writer::StderrWriter;
use super::supervisor_handle::SupervisorHandle;
use super::wrapper::{self, SettledRun, Wrapper};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};

/// Default of `--pause`.
const PAUSE: HumanDuration = HumanDuration::from_millis(1_000);

/// Run a command while elected leader, and campaign again when it ends
///
/// Waits for the lease without a time limit, even while no server replies, and runs the command under it as `leasehold run`
/// does. When the command exits, or the lease expires, the lease is released and this candidate campaigns again after a pause.
///
/// SIGTERM or Ctrl-C terminates the command (SIGTERM, then SIGKILL after the grace period), releases the lease and exits with
/// 0. If the lease is revoked, with or without a grace period, the command does not campaign again and exits with 3. If the
/// command cannot be started, it exits with 126 or 127.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold elect services/scheduler -- ./scheduler")]
pub struct Args {
    /// Resource that the candidates compete for
    #[arg(value_name = "RESOURCE")]
    name: String,
    /// Time to wait before campaigning again
    #[arg(long, value_name = "DURATION", default_value_t = PAUSE)]
    pause: HumanDuration,
    #[command(flatten)]
    options: RunOptions,
}

pub fn elect(args: &Args, global: &GlobalArgs) -> CommandResult {
    wrapper::block_on(async {
        let mut wrapper = Wrapper::new(&args.name, &args.options, global, true)?;
        let mut supervisor = wrapper.start_supervisor().await?;
        let outcome = campaign(args, &mut wrapper, &mut supervisor).await;
        wrapper.close(supervisor, outcome).await
    })
}

async fn campaign(args: &Args, wrapper: &mut Wrapper<'_>, supervisor: &mut SupervisorHandle) -> CommandResult {
    let Args { name, options, .. } = args;
    let pause = Duration::from_millis(args.pause.millis());
    loop {
        let lock = options.lock(&wrapper.client, name, Duration::from_millis(WAIT_MAX));
        let stderr = wrapper.stderr.clone();
        let acquired = wrapper.acquire_or_signal(supervisor, acquire(|| lock.acquire(), pause, &stderr)).await;
        let Ok(guard) = acquired else {
            return Ok(CommandOutput::exit_code(0));
        };
        let guard = guard?;
        if let Some(loss) = wrapper.previous_loss().await.filter(|loss| loss.next_step() == NextStep::LeaveToCaller) {
            // Dropping the guard releases the lease.
            return Err(wrapper::lost_error(name, Some(loss)));
        }
        let SettledRun { end, loss } = wrapper.run_under_lease(guard, supervisor, true).await;
        let revoked = loss.filter(|loss| loss.next_step() == NextStep::LeaveToCaller);
        let cause = match end {
            RunEnd::Resigned(_) => return Ok(CommandOutput::exit_code(0)),
            RunEnd::NotStarted(error) => return Ok(wrapper.report_start_error(error)),
            // A target that cannot be reached may return; anything else needs an operator.
            RunEnd::NotClaimed(CommandError::Coded(error)) if error.is_retryable() && revoked.is_none() => {
                error.to_string()
            }
            RunEnd::NotClaimed(error) => return Err(error),
            RunEnd::Lost(Some(loss)) if RunError::Lost(loss).next_step() == NextStep::LeaveToCaller => {
                return Err(wrapper::lost_error(name, Some(loss)));
            }
            // The command may exit before it learns that its lease is being revoked.
            RunEnd::Exited(_) | RunEnd::Lost(_) | RunEnd::Failed(_) if revoked.is_some() => {
                return Err(wrapper::lost_error(name, revoked));
            }
            RunEnd::Exited(status) => format!("the command exited with {}", status.exit()),
            RunEnd::Lost(Some(loss)) => loss.to_string(),
            RunEnd::Lost(None) => "the lease was not renewed in time".to_owned(),
            RunEnd::Failed(message) => message,
        };
        if wrapper.unkillable {
            let message = "does not campaign again while a process of the command is alive that cannot be killed";
            return Err(CommandError::Other(format!("{name}: {cause}; {message}")));
        }
        if wrapper.interrupted.is_some() {
            return Ok(CommandOutput::exit_code(0));
        }
        stderr.print(&format!("{name}: {cause}; campaigns again"));
        // One supervisor must always run: it removes the directory if this process is killed.
        let next = wrapper.start_supervisor().await?;
        std::mem::replace(supervisor, next).shut_down();
        if wrapper.or_signal(tokio::time::sleep(pause)).await.is_err() {
            return Ok(CommandOutput::exit_code(0));
        }
    }
}

/// Retries until the lease is granted, or refused permanently.
async fn acquire<F>(attempt: impl Fn() -> F, pause: Duration, stderr: &StderrWriter) -> Result<Guard, Error>
where
    F: Future<Output = Result<Guard, leasehold::RequestError<Guard>>>,
{
    let mut printed = None;
    loop {
        let error = match attempt().await {
            Ok(guard) => return Ok(guard),
            Err(failure) => failure.into_error(),
        };
        if error.is_permanent() {
            return Err(error);
        }
        // Print each reason once: an outage may be long.
        if printed.replace(error.code_name().to_owned()).as_deref() != Some(error.code_name()) {
            stderr.print(&format!("{error}; retrying"));
        }
        tokio::time::sleep(pause).await;
    }
}
