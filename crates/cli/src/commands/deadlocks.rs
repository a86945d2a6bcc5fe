//! `leasehold deadlocks`: lists the most recent deadlocks.

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::{TextTable, format_duration, or_dash};

/// List recent deadlocks, newest last
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold deadlocks")]
pub struct Args {}

pub fn run(_args: &Args, global: &GlobalArgs) -> CommandResult {
    let deadlocks = global.call(async |client| client.deadlocks().await)?;
    Ok(global.output(&deadlocks, || {
        let mut table = TextTable::new(["AT", "ACTORS", "VICTIM", "CYCLE"]);
        for deadlock in &deadlocks {
            let edges = deadlock.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
            table.row([
                format_duration(deadlock.at_ms),
                deadlock.length.to_string(),
                or_dash(deadlock.victim.as_ref()),
                edges.collect::<Vec<_>>().join(", "),
            ]);
        }
        table.text()
    }))
}
