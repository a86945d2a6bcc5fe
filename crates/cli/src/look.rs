//! `leasehold ls`, `show` and `held-by`: what is held, by whom. Numbers of tokens only: a token is had by holding.

use leasehold::json::{LeaseBody, ResourceBody, ResourcesBody};

use crate::connection::{Everywhere, MayStandBy};
use crate::table::{Table, block, lasting, or_dash};
use crate::told::Outcome;

/// List resources and who holds them
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ls team/a")]
pub struct Ls {
    /// Only what lies under this prefix of whole segments
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// At most so many resources
    #[arg(long, value_name = "N")]
    most: Option<u32>,
    /// Where an earlier listing stopped
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u32,
    #[command(flatten)]
    may: MayStandBy,
}

pub fn ls(args: &Ls, ask: &Everywhere) -> Outcome {
    let (listed, as_of) = ask.look(&args.may, async |client| {
        let mut listing = client.list(&args.prefix, args.from);
        let mut resources = Vec::new();
        loop {
            let room = args.most.map_or(u32::MAX, |most| most.saturating_sub(resources.len() as u32));
            if room == 0 {
                break;
            }
            match listing.page(room).await? {
                Some(page) => resources.extend(page),
                None => break,
            }
        }
        Ok(ResourcesBody { resources, next: listing.next(), position: listing.position() })
    })?;
    let more = listed.next.map(|next| format!("there is more; go on with --from {next}"));
    let note: Vec<_> = as_of.into_iter().chain(more).collect();
    let note = (!note.is_empty()).then(|| note.join("; "));
    Ok(ask.answer(&listed, || resources(&listed.resources)).noting(note))
}

fn resources(resources: &[ResourceBody]) -> String {
    let mut table = Table::new(["RESOURCE", "HOLDER", "NUMBER", "SLOT", "REMAINING", "UNITS", "WAITERS"]);
    for resource in resources {
        // Who holds all of it, or reads beside others, takes no units.
        let counts = resource.used > 0 || resource.capacity > 1;
        let used = or_dash(counts.then(|| format!("{}/{}", resource.used, resource.capacity)));
        let waiters = resource.waiters.to_string();
        if resource.leases.is_empty() {
            let holder = if resource.held_for_operator { "(for an operator)" } else { "-" };
            let dash = || "-".to_owned();
            table.row([resource.resource.clone(), holder.to_owned(), dash(), dash(), dash(), used, waiters]);
            continue;
        }
        for lease in &resource.leases {
            table.row([
                lease.resource.clone(),
                lease.holder.clone(),
                lease.token_number.clone(),
                slot(lease),
                lasting(lease.remaining_ms),
                used.clone(),
                waiters.clone(),
            ]);
        }
    }
    table.text()
}

/// A slot's number, or what the lease has instead.
fn slot(lease: &LeaseBody) -> String {
    lease.slot.map_or_else(|| lease.access.clone(), |slot| slot.to_string())
}

/// Show a resource and everything that stands at it
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold show jobs/settle")]
pub struct Show {
    /// The resource
    name: String,
    #[command(flatten)]
    may: MayStandBy,
}

pub fn show(args: &Show, ask: &Everywhere) -> Outcome {
    let (resource, as_of) = ask.look(&args.may, async |client| client.show(&args.name).await)?;
    Ok(ask.answer(&resource, || one(&resource)).noting(as_of))
}

fn one(resource: &ResourceBody) -> String {
    let mut lines = vec![
        ("resource", resource.resource.clone()),
        ("units", format!("{} of {} taken", resource.used, resource.capacity)),
        ("held", resource.held.to_string()),
        ("waiters", resource.waiters.to_string()),
    ];
    if resource.confirmed > 0 {
        lines.push(("confirmed", resource.confirmed.to_string()));
    }
    if resource.draining {
        lines.push(("draining", "below its use; it lets nobody in".to_owned()));
    }
    if resource.held_for_operator {
        lines.push(("state", "held for an operator; free it with a reason".to_owned()));
    }
    let lines = block(&lines);
    if resource.leases.is_empty() { lines } else { format!("{lines}\n\n{}", leases(&resource.leases)) }
}

/// List everything that a holder holds
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold held-by worker-1")]
pub struct HeldBy {
    /// The holder's name
    holder: String,
    #[command(flatten)]
    may: MayStandBy,
}

pub fn held_by(args: &HeldBy, ask: &Everywhere) -> Outcome {
    let (held, as_of) = ask.look(&args.may, async |client| client.held_by(&args.holder).await)?;
    Ok(ask.answer(&held, || leases(&held)).noting(as_of))
}

fn leases(leases: &[LeaseBody]) -> String {
    let head = ["RESOURCE", "LEASE", "HOLDER", "NUMBER", "SLOT", "REMAINING", "RUNG", "SESSION", "DRAINING"];
    let mut table = Table::new(head);
    for lease in leases {
        let draining = lease.draining.as_ref().map(|why| format!("{why}, {}", lasting(lease.drain_ms.unwrap_or(0))));
        table.row([
            lease.resource.clone(),
            lease.lease.clone(),
            lease.holder.clone(),
            lease.token_number.clone(),
            slot(lease),
            lasting(lease.remaining_ms),
            lease.rung.clone(),
            or_dash(lease.session.as_ref()),
            or_dash(draining),
        ]);
    }
    table.text()
}
