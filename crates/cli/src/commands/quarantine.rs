//! `leasehold quarantine`: ends the quarantine that follows a restore or a rollback.

use clap::Subcommand;

use super::alone_arg::AloneArg;
use super::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Manage the quarantine after a restore or a rollback
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold quarantine waive --comment \"every old holder is switched off\"")]
pub struct Args {
    #[command(subcommand)]
    command: QuarantineCommand,
}

#[derive(Subcommand)]
enum QuarantineCommand {
    /// End the quarantine early
    ///
    /// Holders from before the restore may still act. Waive the quarantine only if you know that every one of them has
    /// stopped.
    #[command(after_help = "Example:\n  leasehold quarantine waive --comment \"every old holder is switched off\"")]
    Waive {
        /// Comment for the audit log
        #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
        comment: String,
        #[command(flatten)]
        alone: AloneArg,
    },
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let QuarantineCommand::Waive { comment, alone } = &args.command;
    global.call(async |client| alone.apply(&client).waive_quarantine(comment).await)?;
    Ok(global.done("quarantine waived".to_owned()))
}
