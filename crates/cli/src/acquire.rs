//! `leasehold acquire`: take a lease, now or after waiting.

use leasehold::duration::Lasting;
use leasehold::json::GrantBody;
use leasehold_core::command::{Acquire, Terms};
use leasehold_core::lease::Access;

use crate::connection::Everywhere;
use crate::table::{block, lasting, or_dash};
use crate::told::Outcome;

/// Take a lease
///
/// Prints the grant with the token that fences take. Keep it alive with `renew`, give it back with `release`. The answer
/// carries no retry protection: if the outcome is unknown (exit 5), look with `show` before asking again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold acquire jobs/settle --holder worker-1 --ttl 30s --wait 5s")]
pub struct Args {
    /// The resource
    name: String,
    /// Who takes it
    #[arg(long)]
    holder: String,
    /// How long a renewal lasts
    #[arg(long, value_name = "DURATION")]
    ttl: Lasting,
    /// How long to wait for it; without, it is tried once
    #[arg(long, value_name = "DURATION")]
    wait: Option<Lasting>,
    /// As a reader among readers
    #[arg(long, group = "access")]
    shared: bool,
    /// One of N slots
    #[arg(long, group = "access", value_name = "N")]
    slots: Option<u32>,
    /// N units of the capacity, none of them by name
    #[arg(long, group = "access", value_name = "N")]
    units: Option<u32>,
    /// Higher goes first, from 0 to 255
    #[arg(long, value_name = "P", default_value_t = Terms::PRIORITY)]
    priority: u8,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let access = match (args.shared, args.slots, args.units) {
        (true, ..) => Access::Shared,
        (_, Some(_), _) => Access::Slot,
        (_, _, Some(units)) => Access::Units(units),
        _ => Access::Exclusive,
    };
    let wait_ms = args.wait.map_or(0, Lasting::millis);
    let acquire = Acquire {
        access,
        slots: args.slots,
        terms: Terms { wait_ms, priority: args.priority, ..Terms::DEFAULT },
        ..Acquire::exclusive(&args.name, &args.holder, args.ttl.millis())
    };
    let granted = ask.ask(async |client| client.acquire(&acquire).await)?.body();
    Ok(ask.answer(&granted, || for_people(&granted)))
}

fn for_people(grant: &GrantBody) -> String {
    let mut lines = vec![
        ("resource", grant.resource.clone()),
        ("holder", grant.holder.clone()),
        ("lease", grant.lease.clone()),
        ("token", grant.token.clone()),
        ("number", grant.token_number.clone()),
        ("slot", or_dash(grant.slot)),
        ("ttl", lasting(grant.ttl_ms)),
        ("remaining", lasting(grant.remaining_ms)),
        ("rung", grant.rung.clone()),
    ];
    if let Some(ms) = grant.overlaps_ms {
        lines.push(("overlaps", format!("the predecessor drains for {}", lasting(ms))));
    }
    block(&lines)
}
