//! `leasehold status`: the grantor in figures.

use leasehold::json::StatusBody;

use crate::connection::{Everywhere, MayStandBy};
use crate::table::{block, lasting};
use crate::told::Outcome;

/// Tell how the cluster is doing
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold status --json")]
pub struct Args {
    #[command(flatten)]
    may: MayStandBy,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let (status, as_of) = ask.look(&args.may, async |client| client.status().await)?;
    Ok(ask.answer(&status, || for_people(&status)).noting(as_of))
}

fn for_people(status: &StatusBody) -> String {
    let ended: Vec<_> = status.ended.iter().map(|row| format!("{} {}", row.ended, row.reason)).collect();
    let mut lines = vec![
        ("cluster", status.cluster.clone()),
        ("incarnation", status.incarnation.clone()),
        ("generation", status.generation.to_string()),
        ("tenure", status.tenure.to_string()),
        ("rung", status.rung.clone()),
        ("served for", lasting(status.time_ms)),
        ("stood still for", lasting(status.stalled_ms)),
        ("highest number", status.counter.clone()),
        ("longest ttl", lasting(status.max_ttl_ms)),
        ("held", status.held.to_string()),
        ("sessions", status.sessions.to_string()),
        ("waiters", status.waiters.to_string()),
        ("deadlocks", status.deadlocks.to_string()),
        ("ended", if ended.is_empty() { "0".to_owned() } else { ended.join(", ") }),
    ];
    if let Some(ms) = status.quarantine_ms {
        let why = if status.rolled_back { "a rollback" } else { "a restore" };
        lines.push(("quarantine", format!("nothing is granted for another {} after {why}", lasting(ms))));
    }
    block(&lines)
}
