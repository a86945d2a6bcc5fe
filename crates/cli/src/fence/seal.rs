//! `leasehold fence seal`: let a fence accept sealed tokens only, permanently.

use std::path::PathBuf;

use leasehold_fence::FenceId;

use super::key_files::read_stamp_key;
use super::selection::{FenceSelection, describe};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Let fences accept only sealed tokens, permanently
///
/// Give the public keys (`leasehold keys export`) to every process that writes first: afterwards a process without them is
/// refused. In SQLite each connection needs the function leasehold_verify. PostgreSQL verifies stamps instead; see
/// `leasehold fence stamp`. Redis, etcd and NATS verify nothing themselves: their own access rights must keep other writers away.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold fence seal file:/var/lib/app/events.log --resource jobs/settle
  leasehold fence seal postgres://owner@db/ledger --resource jobs/settle --stamp-key ledger.stamp")]
pub struct Args {
    #[command(flatten)]
    selection: FenceSelection,
    /// File with the stamp key of a PostgreSQL database, mode 0600 (openssl rand -hex 32)
    #[arg(long, value_name = "FILE")]
    stamp_key: Option<PathBuf>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let key = args.stamp_key.as_deref().map(read_stamp_key).transpose()?;
    let fences = global.with_client(async |_| {
        let fences = args.selection.resolve().await?;
        let seal = async |fence: &FenceId| args.selection.target.seal(fence, key.as_ref()).await;
        args.selection.change_each(&fences, seal).await?;
        Ok(fences)
    })?;
    Ok(global.done(describe(&fences, "accepts sealed tokens only")))
}
