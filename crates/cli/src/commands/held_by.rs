//! `leasehold held-by`: lists the leases of one holder.

use super::lease_text::lease_table;
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::live::{self, WatchArgs};
use crate::output::CommandResult;
use crate::shell_text::quote;

/// List all leases of a holder
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold held-by worker-1")]
pub struct Args {
    /// Name of the holder
    holder: String,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    live::run(&args.watch, global, async |client| {
        let client = args.standby.apply(client);
        let leases = client.held_by(&args.holder).await?;
        let names = leases.iter().map(|lease| lease.resource.clone());
        let output = global.listing(&leases, names, || lease_table(&leases, global.is_wide()));
        let output = global.or_empty(output, leases.is_empty(), || {
            format!(
                "{} holds no lease; `leasehold usage {}` shows what it held before",
                args.holder,
                quote(&args.holder)
            )
        });
        Ok(args.watch.result(&leases, output.with_note(args.standby.note(&client))))
    })
}
