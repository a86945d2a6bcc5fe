//! `leasehold run`, `elect` and `progress`: run any command under a lease, without changing the command.
//!
//! Three processes take part:
//! - The wrapper is the process that the user starts. It acquires, renews and releases the lease.
//! - The supervisor terminates the command before its lease ends, or when the wrapper dies.
//! - The exec shim sets its parent death signal, and then executes the command.

mod command_run;
mod connection_messages;
mod elect;
mod exec_shim;
mod fences;
mod ipc;
mod kill_schedule;
mod notify_socket;
mod options;
mod orphaned_session;
mod process_tree;
mod progress;
mod runtime_dir;
mod signals;
mod stderr_writer;
mod supervisor;
mod supervisor_handle;
mod wrapper;

pub use elect::{Args as Elect, elect};
pub use exec_shim::{pdeathsig_program, pdeathsig_self};
pub use progress::{Args as Progress, progress};

use std::process::ExitCode;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::{Code, Error};
use leasehold_core::limits::WAIT_MAX;
use leasehold_core::refusal::Refusal;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use command_run::RunEnd;
use options::RunOptions;
use supervisor_handle::SupervisorHandle;
use wrapper::Wrapper;

/// Environment variables of the command and of its supervisor.
const TOKEN: &str = "LEASEHOLD_TOKEN";
const RESOURCE: &str = "LEASEHOLD_RESOURCE";

/// Default of `--wait`.
const WAIT: HumanDuration = HumanDuration::from_millis(30_000);

/// Run a command while holding a lease
///
/// Acquires the lease, runs the command, renews the lease while the command runs, and releases it when the command has exited.
/// If the lease cannot be renewed, or if this process is killed, the command and all its descendants are terminated before
/// another holder can start. Descendants that outlive the command are killed. Signals are forwarded to the command.
///
/// The command's environment contains LEASEHOLD_TOKEN, LEASEHOLD_TOKEN_NUMBER, LEASEHOLD_RESOURCE, LEASEHOLD_LEASE,
/// LEASEHOLD_ADDR, LEASEHOLD_SOCKET, and with TLS LEASEHOLD_TLS_CA, LEASEHOLD_TLS_CERT and LEASEHOLD_TLS_KEY.
/// For each target whose stamp key the server has, LEASEHOLD_STAMPED_TOKEN_<TARGET> is the token with its stamp; the name of the
/// target is in upper case, with _ for other characters.
///
/// With --fence the target is claimed before the command starts, and refuses the command's late writes, without a change to the
/// command. For postgres://, PGOPTIONS sets the token and timeouts; existing options are kept. For http://, LEASEHOLD_FENCE_URL is
/// the address of a local forwarder that adds the token to each request.
///
/// Exits with the command's exit code; 128 + n if signal n ended it; 127 if the command is not found, 126 if it cannot
/// be started; 3 if the lease was lost; 4 if the lease was not acquired within --wait.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold run jobs/settle --ttl 10s --wait 30s -- ./settle --all
  leasehold run jobs/settle --fence postgres://app@db/shop -- python3 settle.py")]
pub struct Args {
    /// Resource to hold while the command runs
    #[arg(value_name = "RESOURCE")]
    name: String,
    /// Wait this long if the lease is held
    #[arg(long, value_name = "DURATION", default_value_t = WAIT)]
    wait: HumanDuration,
    /// Fail immediately if the lease is held
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Exit code if the lease is not acquired
    #[arg(long, value_name = "N", default_value_t = Code::Busy.exit())]
    exit_code_busy: u8,
    #[command(flatten)]
    options: RunOptions,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let wait = if args.no_wait { 0 } else { args.wait.millis() };
    if wait > WAIT_MAX {
        return Err(Error::from(&Refusal::Invalid { field: "wait", reason: "longer than 24h; choose less" }).into());
    }
    wrapper::block_on(async {
        let mut wrapper = Wrapper::new(&args.name, &args.options, global, false)?;
        let mut supervisor = wrapper.start_supervisor().await?;
        let outcome = run_once(args, Duration::from_millis(wait), &mut wrapper, &mut supervisor).await;
        wrapper.close(supervisor, outcome).await
    })
}

async fn run_once(
    args: &Args,
    wait: Duration,
    wrapper: &mut Wrapper<'_>,
    supervisor: &mut SupervisorHandle,
) -> CommandResult {
    let lock = args.options.lock(&wrapper.client, &args.name, wait);
    let guard = match wrapper.acquire_or_signal(supervisor, lock.acquire()).await {
        Ok(Ok(guard)) => guard,
        Ok(Err(failure)) => {
            let error = failure.into_error();
            let busy = matches!(error.code(), Some(Code::Busy | Code::Timeout));
            return Err(if busy { CommandError::WithExitCode(error, args.exit_code_busy) } else { error.into() });
        }
        Err(signal) => return Ok(CommandOutput::exit_code(signal.exit())),
    };
    match wrapper.run_under_lease(guard, supervisor, false).await.end {
        RunEnd::Exited(status) => Ok(CommandOutput::exit_code(status.exit())),
        RunEnd::Resigned(signal) => Ok(CommandOutput::exit_code(signal.exit())),
        RunEnd::NotClaimed(error) => Err(error),
        RunEnd::NotStarted(error) => Ok(wrapper.report_start_error(error)),
        RunEnd::Lost(loss) => Err(wrapper::lost_error(&args.name, loss)),
        RunEnd::Failed(message) => Err(CommandError::Other(message)),
    }
}

/// Runs the supervisor or the exec shim if this process was started as one of them.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let subcommand = args.next()?;
    if subcommand == supervisor::SUBCOMMAND {
        return Some(supervisor::main(args));
    }
    (subcommand == exec_shim::SUBCOMMAND).then(|| exec_shim::main(args))
}
