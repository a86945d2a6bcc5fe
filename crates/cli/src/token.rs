//! `leasehold token`: what a token's text says, for someone who found one in a log.

use leasehold_core::token::{Reach, Token};
use serde_json::{Value, json};

use crate::hold;
use crate::table::block;
use crate::told::Outcome;

/// Read a token's text and print its parts
///
/// A token is checked for its form only. Whether it is stale is for the fence at its target to say. No server is asked.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold token lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73")]
pub struct Args {
    /// The token as the grant carries it, for example from a log line
    #[arg(allow_hyphen_values = true)]
    text: String,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let token = hold::parse(&args.text)?;
    Ok(if json { in_json(&token).to_string() } else { for_people(&token) }.into())
}

fn for_people(token: &Token) -> String {
    let reach = match token.reach {
        Reach::Slot(slot) => format!("writes, slot {slot}"),
        Reach::Shared => "reads, beside other readers".to_owned(),
        Reach::Units => "units of a capacity; it does not write".to_owned(),
    };
    block(&[
        ("number", token.number.to_string()),
        ("cluster", token.cluster.to_string()),
        ("incarnation", token.incarnation.to_string()),
        ("resource", format!("{} (hash of the name)", resource(token))),
        ("reach", reach),
    ])
}

/// The number stands in quotes, because JSON readers round large ones.
fn in_json(token: &Token) -> Value {
    let (reach, slot) = match token.reach {
        Reach::Slot(slot) => ("slot", Some(slot)),
        Reach::Shared => ("shared", None),
        Reach::Units => ("units", None),
    };
    json!({
        "number": token.number.to_string(),
        "cluster": token.cluster.to_string(),
        "incarnation": token.incarnation.to_string(),
        "resource": resource(token),
        "reach": reach,
        "slot": slot,
    })
}

fn resource(token: &Token) -> String {
    format!("{:016x}", u64::from_be_bytes(token.resource))
}
