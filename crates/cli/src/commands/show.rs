//! `leasehold show`: shows one resource and its leases.

use leasehold::json::ResourceBody;

use super::lease_text::{lease_table, used_units};
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::output::CommandResult;
use crate::table::key_values;

/// Show a resource and its leases
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold show jobs/settle")]
pub struct Args {
    /// Resource to show
    resource: String,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (resource, as_of) = global.query(&args.standby, async |client| client.show(&args.resource).await)?;
    Ok(global.output(&resource, || resource_text(&resource)).with_note(as_of))
}

fn resource_text(resource: &ResourceBody) -> String {
    let mut lines = vec![
        ("resource", resource.resource.clone()),
        ("held", resource.held.to_string()),
        ("waiters", resource.waiters.to_string()),
    ];
    if let Some(units) = used_units(resource) {
        lines.push(("units", units));
    }
    if resource.confirmed > 0 {
        lines.push(("confirmed", resource.confirmed.to_string()));
    }
    if resource.draining {
        lines.push(("draining", "capacity is below use; no lease is granted".to_owned()));
    }
    if resource.held_for_operator {
        lines.push(("state", "held for an operator; run leasehold free with a comment".to_owned()));
    }
    let lines = key_values(&lines);
    if resource.leases.is_empty() { lines } else { format!("{lines}\n\n{}", lease_table(&resource.leases)) }
}
