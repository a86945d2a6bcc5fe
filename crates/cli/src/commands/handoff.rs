//! `leasehold handoff`: transfers a lease to a successor.

use leasehold::duration::HumanDuration;
use leasehold_core::charter::HandoffMode;
use leasehold_core::command::{Handoff, LeaseSelector};

use super::alone_arg::AloneArg;
use super::secret_arg::SecretArg;
use super::token_arg::parse_token;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Hand a lease off to a successor
///
/// The server notifies the holder to finish and release. With --gap the successor is granted after the release. With
/// --overlap it is granted immediately and waits for the predecessor before it claims.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold handoff shards/7 --to worker-2 --gap")]
pub struct Args {
    /// Resource to hand off
    resource: String,
    /// Successor; the first waiter if omitted
    #[arg(long, value_name = "HOLDER")]
    to: Option<String>,
    /// Leave the resource without a holder for a moment; two never hold it
    #[arg(long, conflicts_with = "overlap")]
    gap: bool,
    /// Let both hold it for a moment; it is never without a holder
    #[arg(long)]
    overlap: bool,
    /// Time the predecessor may drain [default: from the charter]; an unresponsive holder keeps the time it was promised
    #[arg(long, value_name = "DURATION")]
    drain: Option<HumanDuration>,
    /// Token of the grant, if the holder itself starts the handoff
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    token: Option<String>,
    #[command(flatten)]
    secret: SecretArg,
    #[command(flatten)]
    alone: AloneArg,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let token = args.token.as_deref().map(parse_token).transpose()?;
    let mode = match (args.gap, args.overlap) {
        (true, _) => Some(HandoffMode::Gap),
        (_, true) => Some(HandoffMode::Overlap),
        _ => None,
    };
    let handoff = Handoff {
        selector: LeaseSelector::Resource(&args.resource),
        number: None,
        to: args.to.as_deref(),
        mode,
        drain_ms: args.drain.map(HumanDuration::millis),
    };
    global.call(async |client| args.alone.apply(&args.secret.present(&client)?).handoff(&handoff, token).await)?;
    Ok(global.done(format!("handoff of {} started", args.resource)))
}
