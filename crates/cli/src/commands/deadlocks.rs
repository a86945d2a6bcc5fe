//! `leasehold deadlocks`: lists the most recent deadlocks.

use leasehold::json::DeadlockBody;

use crate::global_args::GlobalArgs;
use crate::live::{self, WatchArgs};
use crate::output::CommandResult;
use crate::styled_text::StyledText;
use crate::table::{TextTable, format_duration, or_dash};

/// List recent deadlocks, newest last
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold deadlocks")]
pub struct Args {
    #[command(flatten)]
    watch: WatchArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    live::run(&args.watch, global, async |client| {
        let deadlocks = client.deadlocks().await?;
        let victims = deadlocks.iter().filter_map(|deadlock| deadlock.victim.clone());
        let output = global.listing(&deadlocks, victims, || deadlock_table(&deadlocks, global.is_wide()));
        let output = global.or_empty(output, deadlocks.is_empty(), || {
            "no deadlock in the memory of the server; `leasehold waiters NAME` shows who waits".to_owned()
        });
        Ok(args.watch.result(&deadlocks, output))
    })
}

fn deadlock_table(deadlocks: &[DeadlockBody], is_wide: bool) -> StyledText {
    let mut table = TextTable::new(["AT", "ACTORS", "VICTIM", "CYCLE"]).with_wide(is_wide, ["RESOURCES"]);
    for deadlock in deadlocks {
        let edges = deadlock.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
        let resources: Vec<_> = deadlock.cycle.iter().map(|member| member.waits_for.clone()).collect();
        let cells = [
            format_duration(deadlock.at_ms),
            deadlock.length.to_string(),
            or_dash(deadlock.victim.as_ref()),
            edges.collect::<Vec<_>>().join(", "),
        ];
        table.row_with(cells, [resources.join(", ")]);
    }
    table.text()
}
