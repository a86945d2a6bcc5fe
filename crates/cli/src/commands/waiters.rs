//! `leasehold waiters`: lists the wait queue of a resource.

use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::output::CommandResult;
use crate::table::{TextTable, format_duration};

/// List the waiters of a resource in the order in which they are served
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold waiters jobs/settle")]
pub struct Args {
    /// Resource that they wait for
    resource: String,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (waiters, as_of) = global.query(&args.standby, async |client| client.waiters(&args.resource).await)?;
    let table = || {
        let mut table = TextTable::new(["POSITION", "HOLDER", "SESSION", "ACCESS", "PRIORITY", "REMAINING"]);
        for (position, waiter) in (1..).zip(&waiters) {
            let access = waiter.units.map_or_else(|| waiter.access.clone(), |units| format!("{units} units"));
            table.row([
                position.to_string(),
                waiter.holder.clone(),
                waiter.session.clone(),
                access,
                waiter.effective_priority.to_string(),
                format_duration(waiter.remaining_ms),
            ]);
        }
        table.text()
    };
    Ok(global.output(&waiters, table).with_note(as_of))
}
