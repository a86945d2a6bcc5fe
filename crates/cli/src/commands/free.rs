//! `leasehold free`: frees a resource that a revocation left to an operator.

use super::alone_arg::AloneArg;
use super::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Free a resource that a revocation left to an operator
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold free jobs/settle --comment \"books were compared by hand\"")]
pub struct Args {
    /// Resource to free
    resource: String,
    /// Comment for the audit log
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    comment: String,
    #[command(flatten)]
    alone: AloneArg,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    global.call(async |client| args.alone.apply(&client).free(&args.resource, &args.comment).await)?;
    Ok(global.done(format!("freed {}", args.resource)))
}
