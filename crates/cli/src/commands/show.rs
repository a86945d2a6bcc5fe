//! `leasehold show`: shows one resource and its leases.

use leasehold::json::ResourceBody;

use super::lease_text::{lease_table, used_units};
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::live::{self, WatchArgs};
use crate::output::CommandResult;
use crate::styled_text::StyledText;
use crate::table::key_values;

/// Show a resource and its leases
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold show jobs/settle\n  leasehold show jobs/settle --watch")]
pub struct Args {
    /// Resource to show
    resource: String,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    live::run(&args.watch, global, async |client| {
        let client = args.standby.apply(client);
        let resource = client.show(&args.resource).await?;
        let text = || resource_text(&resource, global.is_wide());
        let output = global.listing(&resource, [resource.resource.clone()], text);
        Ok(args.watch.result(&resource, output.with_note(args.standby.note(&client))))
    })
}

fn resource_text(resource: &ResourceBody, is_wide: bool) -> StyledText {
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
    if is_wide {
        lines.push(("capacity", resource.capacity.to_string()));
        lines.push(("floor", resource.floor.clone()));
    }
    let lines = StyledText::from(key_values(&lines));
    if resource.leases.is_empty() {
        return lines;
    }
    StyledText::join([lines, lease_table(&resource.leases, is_wide)], "\n\n")
}
