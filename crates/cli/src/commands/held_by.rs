//! `leasehold held-by`: lists the leases of one holder.

use super::lease_text::lease_table;
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::output::CommandResult;

/// List all leases of a holder
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold held-by worker-1")]
pub struct Args {
    /// Name of the holder
    holder: String,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (leases, as_of) = global.query(&args.standby, async |client| client.held_by(&args.holder).await)?;
    Ok(global.output(&leases, || lease_table(&leases)).with_note(as_of))
}
