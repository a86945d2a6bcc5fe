//! `leasehold token`: what a token's text says, for someone who found one in a log.

use crate::{EXIT_USAGE, Failure, Outcome};
use leasehold_core::token::{Reach, Token, TokenError};
use serde_json::{Value, json};

/// Read a token's text and print its parts
///
/// A token is checked for its form only. Whether it is stale is for the fence at its target to say.
#[derive(clap::Args)]
pub struct Args {
    /// The token as the grant carries it, for example from a log line
    #[arg(allow_hyphen_values = true)]
    text: String,
    /// Print JSON; the number stands in quotes, because JSON readers round large ones
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Outcome {
    match Token::parse(&args.text) {
        Ok(token) if args.json => Ok(in_json(&token).to_string()),
        Ok(token) => Ok(for_people(&token)),
        Err(error) => Err(refusal(&error, args.json)),
    }
}

fn for_people(token: &Token) -> String {
    let reach = match token.reach {
        Reach::Slot(slot) => format!("writes, slot {slot}"),
        Reach::Shared => "reads, beside other readers".to_owned(),
        Reach::Units => "units of a capacity; it does not write".to_owned(),
    };
    [
        format!("number       {}", token.number),
        format!("cluster      {}", token.cluster),
        format!("incarnation  {}", token.incarnation),
        format!("resource     {} (hash of the name)", resource(token)),
        format!("reach        {reach}"),
    ]
    .join("\n")
}

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

fn refusal(error: &TokenError, in_json: bool) -> Failure {
    let (code, why) = (error.code(), error.why());
    let text = if in_json {
        json!({ "code": code, "why": why, "message": error.to_string() }).to_string()
    } else {
        format!("leasehold: {code}{{{why}}}: {error}")
    };
    Failure { exit: EXIT_USAGE, text }
}
