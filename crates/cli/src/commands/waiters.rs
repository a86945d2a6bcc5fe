//! `leasehold waiters`: lists the wait queue of a resource.

use leasehold::json::WaiterBody;

use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::live::{self, WatchArgs};
use crate::output::CommandResult;
use crate::shell_text::quote;
use crate::styled_text::StyledText;
use crate::table::{TextTable, format_duration};

/// List the waiters of a resource in the order in which they are served
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold waiters jobs/settle\n  leasehold waiters jobs/settle --watch")]
pub struct Args {
    /// Resource that they wait for
    resource: String,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    live::run(&args.watch, global, async |client| {
        let client = args.standby.apply(client);
        let waiters = client.waiters(&args.resource).await?;
        let names = waiters.iter().map(|waiter| waiter.holder.clone());
        let output = global.listing(&waiters, names, || waiter_table(&waiters, global.is_wide()));
        let output = global.or_empty(output, waiters.is_empty(), || {
            format!("no one waits for {}; `leasehold show {}` shows its holders", args.resource, quote(&args.resource))
        });
        Ok(args.watch.result(&waiters, output.with_note(args.standby.note(&client))))
    })
}

fn waiter_table(waiters: &[WaiterBody], is_wide: bool) -> StyledText {
    let header = ["POSITION", "HOLDER", "SESSION", "ACCESS", "PRIORITY", "REMAINING"];
    let mut table = TextTable::new(header).with_wide(is_wide, ["OWN PRIORITY", "SEEN IN TENURE"]);
    for (position, waiter) in (1..).zip(waiters) {
        let access = waiter.units.map_or_else(|| waiter.access.clone(), |units| format!("{units} units"));
        let cells = [
            position.to_string(),
            waiter.holder.clone(),
            waiter.session.clone(),
            access,
            waiter.effective_priority.to_string(),
            format_duration(waiter.remaining_ms),
        ];
        let seen = if waiter.seen_in_tenure { "yes" } else { "no" };
        table.row_with(cells, [waiter.priority.to_string(), seen.to_owned()]);
    }
    table.text()
}
