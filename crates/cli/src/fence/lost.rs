//! `leasehold fence lost`: declare the marks of a restored target lost.

use super::selection::{FenceSelection, describe};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Declare marks lost, so that the target rejects all writes until re-armed
///
/// Run this after the target was restored from a copy: the copy contains old marks, and no fence can detect that by itself.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence lost sqlite:/var/lib/app/ledger.db")]
pub struct Args {
    #[command(flatten)]
    selection: FenceSelection,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let fences = global.with_client(async |_| {
        let fences = args.selection.resolve().await?;
        args.selection.change_each(&fences, async |fence| args.selection.target.declare_lost(fence).await).await?;
        Ok(fences)
    })?;
    Ok(global.done(describe(&fences, "rejects all writes until re-armed")))
}
