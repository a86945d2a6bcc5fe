//! `leasehold revoke`: revokes all leases on a resource.

use leasehold::duration::HumanDuration;
use leasehold_core::command::{LeaseSelector, Revoke};
use leasehold_core::lease::EndReason;

use super::alone_arg::AloneArg;
use super::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Revoke all leases on a resource
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold revoke jobs/settle --comment \"wrong version deployed\" --grace 5s")]
pub struct Args {
    /// Resource whose leases end
    resource: String,
    /// Comment for the audit log
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    comment: String,
    /// Notify the holders and wait this long first
    #[arg(long, value_name = "DURATION")]
    grace: Option<HumanDuration>,
    #[command(flatten)]
    alone: AloneArg,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let revoke = Revoke {
        selector: LeaseSelector::Resource(&args.resource),
        reason: EndReason::Operator,
        comment: &args.comment,
        grace_ms: args.grace.map_or(0, HumanDuration::millis),
    };
    global.call(async |client| args.alone.apply(&client).revoke(&revoke).await)?;
    Ok(global.done(match args.grace {
        Some(grace) => format!("{} will be revoked within {grace}", args.resource),
        None => format!("revoked {}", args.resource),
    }))
}
