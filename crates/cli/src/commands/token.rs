//! `leasehold token`: prints the parts of a token, for example of one found in a log.

use leasehold_core::token::{Token, TokenScope};
use serde_json::{Value, json};

use super::token_arg::parse_token;
use crate::output::CommandResult;
use crate::table::key_values;

/// Parse a token and print its parts
///
/// Works without a server. Only the form is checked; whether the token is stale is decided by the fence in the target.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold token lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73")]
pub struct Args {
    /// Token of a grant
    #[arg(allow_hyphen_values = true)]
    token: String,
}

pub fn run(args: &Args, json: bool) -> CommandResult {
    let token = parse_token(&args.token)?;
    Ok(if json { token_json(&token).to_string() } else { token_text(&token) }.into())
}

fn token_text(token: &Token) -> String {
    let scope = match token.scope {
        TokenScope::Slot(slot) => format!("writes, slot {slot}"),
        TokenScope::Shared => "reads, shared with other readers".to_owned(),
        TokenScope::Units => "units of a capacity; does not write".to_owned(),
    };
    key_values(&[
        ("number", token.number.to_string()),
        ("cluster", token.cluster.to_string()),
        ("incarnation", token.incarnation.to_string()),
        ("resource", format!("{} (hash of the name)", resource_hash(token))),
        ("scope", scope),
    ])
}

/// The number is a string, because many JSON parsers round large numbers.
fn token_json(token: &Token) -> Value {
    let (scope, slot) = match token.scope {
        TokenScope::Slot(slot) => ("slot", Some(slot)),
        TokenScope::Shared => ("shared", None),
        TokenScope::Units => ("units", None),
    };
    json!({
        "number": token.number.to_string(),
        "cluster": token.cluster.to_string(),
        "incarnation": token.incarnation.to_string(),
        "resource": resource_hash(token),
        "scope": scope,
        "slot": slot,
    })
}

fn resource_hash(token: &Token) -> String {
    format!("{:016x}", u64::from_be_bytes(token.resource))
}
