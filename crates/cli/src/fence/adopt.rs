//! `leasehold fence adopt`: let a strict fence accept a new incarnation of its cluster.

use leasehold_core::token::Incarnation;
use leasehold_fence::FenceId;

use super::selection::{FenceSelection, describe};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Let strict fences accept the new incarnation of a restored cluster
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence adopt sqlite:/var/lib/app/ledger.db --incarnation 0badcafe")]
pub struct Args {
    #[command(flatten)]
    selection: FenceSelection,
    /// Incarnation of the cluster, as `leasehold status` prints it
    #[arg(long, value_name = "ID")]
    incarnation: Incarnation,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let fences = global.with_client(async |_| {
        let fences = args.selection.resolve().await?;
        let adopt = async |fence: &FenceId| args.selection.target.adopt(fence, args.incarnation).await;
        args.selection.change_each(&fences, adopt).await?;
        Ok(fences)
    })?;
    Ok(global.done(describe(&fences, &format!("accepts incarnation {}", args.incarnation))))
}
