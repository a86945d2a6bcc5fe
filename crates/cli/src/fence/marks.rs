//! `leasehold fence marks`: what a target keeps, for people and for a survey by hand.

use leasehold_fence::{Kept, Mark};
use serde_json::{Value, json};

use crate::connection::Everywhere;
use crate::table::{Table, or_dash};
use crate::target::{Target, name_of};
use crate::told::Outcome;

/// List the marks that a target keeps
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence marks postgres://app@db/ledger")]
pub struct Args {
    /// The target
    #[arg(value_name = "TARGET", value_parser = Target::parse)]
    target: Target,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let marks = ask.run(async |_| args.target.marks().await)?;
    let body: Vec<Value> = marks.iter().map(in_json).collect();
    Ok(ask.answer(&body, || for_people(&marks)))
}

fn state(mark: Mark) -> &'static str {
    match mark {
        Mark::Armed(_) => "armed",
        Mark::Fresh => "fresh",
        Mark::Lost => "lost",
    }
}

/// The number of a mark, as JSON carries numbers.
fn number(mark: Mark) -> Option<String> {
    match mark {
        Mark::Armed(mark) => Some(mark.to_string()),
        Mark::Fresh | Mark::Lost => None,
    }
}

fn in_json(kept: &Kept) -> Value {
    json!({
        "cluster": kept.cluster.to_string(),
        "resource": kept.resource,
        "name": kept.name,
        "slot": kept.slot,
        "state": state(kept.mark),
        "mark": number(kept.mark),
        "incarnation": kept.incarnation.map(|incarnation| incarnation.to_string()),
        "strict": kept.strict,
    })
}

fn for_people(marks: &[Kept]) -> String {
    let mut table = Table::new(["RESOURCE", "SLOT", "STATE", "MARK", "CLUSTER", "INCARNATION", "STRICT"]);
    for kept in marks {
        table.row([
            name_of(kept).to_owned(),
            kept.slot.to_string(),
            state(kept.mark).to_owned(),
            or_dash(number(kept.mark)),
            kept.cluster.to_string(),
            or_dash(kept.incarnation),
            if kept.strict { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.text()
}
