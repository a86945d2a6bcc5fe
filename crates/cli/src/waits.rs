//! `leasehold waiters` and `deadlocks`: who waits, and who waited in vain.

use crate::connection::{Everywhere, MayStandBy};
use crate::table::{Table, lasting, or_dash};
use crate::told::Outcome;

/// List who waits for a resource, in the order in which they are served
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold waiters jobs/settle")]
pub struct Waiters {
    /// The resource
    name: String,
    #[command(flatten)]
    may: MayStandBy,
}

pub fn waiters(args: &Waiters, ask: &Everywhere) -> Outcome {
    let (waiting, as_of) = ask.look(&args.may, async |client| client.waiters(&args.name).await)?;
    Ok(ask
        .answer(&waiting, || {
            let mut table = Table::new(["PLACE", "HOLDER", "SESSION", "ACCESS", "PRIORITY", "WAITS FOR"]);
            for (place, waiter) in (1..).zip(&waiting) {
                let access = waiter.units.map_or_else(|| waiter.access.clone(), |units| format!("{units} units"));
                table.row([
                    place.to_string(),
                    waiter.holder.clone(),
                    waiter.session.clone(),
                    access,
                    waiter.effective.to_string(),
                    lasting(waiter.remaining_ms),
                ]);
            }
            table.text()
        })
        .noting(as_of))
}

/// List the last deadlocks, latest last
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold deadlocks")]
pub struct Deadlocks {}

pub fn deadlocks(ask: &Everywhere) -> Outcome {
    let found = ask.ask(async |client| client.deadlocks().await)?;
    Ok(ask.answer(&found, || {
        let mut table = Table::new(["AT", "ACTORS", "VICTIM", "CYCLE"]);
        for one in &found {
            let members = one.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
            let cycle = members.collect::<Vec<_>>().join(", ");
            table.row([lasting(one.at_ms), one.length.to_string(), or_dash(one.victim.as_ref()), cycle]);
        }
        table.text()
    }))
}
