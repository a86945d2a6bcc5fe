//! `leasehold status`: the state of the grantor in numbers.

use leasehold::json::StatusBody;

use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::live::{self, WatchArgs};
use crate::output::CommandResult;
use crate::table::{format_duration, key_values};

/// Show the state of the cluster
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold status -o json\n  leasehold status --watch")]
pub struct Args {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    live::run(&args.watch, global, async |client| {
        let client = args.standby.apply(client);
        let status = client.status().await?;
        let output = global.output(&status, || status_text(&status, global.is_wide()));
        Ok(args.watch.result(&status, output.with_note(args.standby.note(&client))))
    })
}

fn status_text(status: &StatusBody, is_wide: bool) -> String {
    let ended: Vec<_> = status.ended.iter().map(|row| format!("{} {}", row.count, row.reason)).collect();
    let mut lines = vec![
        ("cluster", status.cluster.clone()),
        ("incarnation", status.incarnation.clone()),
        ("generation", status.generation.to_string()),
        ("tenure", status.tenure.to_string()),
        ("validity", status.validity.clone()),
        ("served for", format_duration(status.time_ms)),
        ("stalled for", format_duration(status.stalled_ms)),
        ("highest number", status.counter.clone()),
        ("max ttl", format_duration(status.max_ttl_ms)),
        ("held", status.held.to_string()),
        ("sessions", status.sessions.to_string()),
        ("waiters", status.waiters.to_string()),
        ("deadlocks", status.deadlocks.to_string()),
        ("ended", if ended.is_empty() { "0".to_owned() } else { ended.join(", ") }),
    ];
    if is_wide {
        lines.push(("position", status.position.to_string()));
        lines.extend(status.ended.iter().map(|row| {
            let mean = row.held_ms.checked_div(row.count).unwrap_or_default();
            ("held for", format!("{} on average, {}: {}", format_duration(mean), row.state, row.reason))
        }));
    }
    if let Some(ms) = status.quarantine_ms {
        let cause = if status.rolled_back { "a rollback" } else { "a restore" };
        lines.push(("quarantine", format!("no grants for another {} after {cause}", format_duration(ms))));
    }
    key_values(&lines)
}
