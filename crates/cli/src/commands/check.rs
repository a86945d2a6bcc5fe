//! `leasehold check`: tests whether a lease is current.

use leasehold::HeldLease;

use super::lease_text::current_lease;
use super::token_arg::TokenArg;
use crate::global_args::GlobalArgs;
use crate::output::{CommandOutput, CommandResult};

/// Check whether a lease is current
///
/// Exits with 0 if the lease was current at some moment during the call, and with 3 if it was not; standard error gives the
/// reason. This is not a fence: only the check inside the target stops a late write.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold check jobs/settle --token - < token.txt")]
pub struct Args {
    /// Resource of the lease
    resource: String,
    #[command(flatten)]
    token: TokenArg,
    /// Print nothing on standard output; the exit code is the answer
    #[arg(long, short, conflicts_with_all = ["json", "output"])]
    quiet: bool,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let lease = HeldLease::new(&args.resource, args.token.read()?);
    let body = global.call(async |client| client.check(&lease).await)?.body(&args.resource);
    if args.quiet {
        return Ok(CommandOutput::EMPTY);
    }
    Ok(global.output(&body, || current_lease(&body)))
}
