//! `leasehold token`: prints the parts of a token, for example of one found in a log, and verifies its seal.

use std::path::PathBuf;

use leasehold::Error;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Token, TokenScope};
use leasehold_seal::{SealError, SealKeys, SealedToken, verify};
use serde_json::{Value, json};

use super::token_arg::parse_token;
use crate::global_args::GlobalArgs;
use crate::input_file;
use crate::output::{CommandError, CommandResult, error_with_code};
use crate::table::key_values;

/// Parse a token and print its parts
///
/// Works without a server. Only the form is checked; whether the token is stale is decided by the fence in the target.
/// `leasehold token verify` also verifies the seal of a sealed token (`lh2-…`).
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example:
  leasehold token lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    /// Token of a grant
    #[arg(allow_hyphen_values = true, required = true)]
    token: Option<String>,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    Verify(VerifyTokenArgs),
}

/// Verify the seal of a token
///
/// Works without a server. The token must be sealed by a key of the file for exactly this resource, and the key must not have
/// ended. A plain token is refused.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold keys export > keys.json
  leasehold token verify --keys keys.json --name db/orders \"$LEASEHOLD_TOKEN\"")]
pub struct VerifyTokenArgs {
    /// Public keys, as `leasehold keys export` prints them
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Name of the resource
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Sealed token of a grant
    #[arg(allow_hyphen_values = true)]
    token: String,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let text = match (&args.command, &args.token) {
        (Some(TokenCommand::Verify(args)), _) => return verify_token(args, global),
        (None, Some(text)) => text,
        (None, None) => return Err(Error::from(&Refusal::Token(leasehold_core::token::TokenError::Absent)).into()),
    };
    let token = parse_token(text)?.parsed();
    let kid = SealedToken::parse(text).ok().map(|sealed| sealed.seal.kid.to_string());
    Ok(global.output(&token_json(&token, kid.as_deref()), || token_text(&token, kid.as_deref())))
}

fn verify_token(args: &VerifyTokenArgs, global: &GlobalArgs) -> CommandResult {
    let keys = SealKeys::from_json(&input_file::read(&args.keys)?)
        .map_err(|error| Error::config("keys", format!("{}: {error}", args.keys.display())))?;
    let token = verify(&keys, &args.token, &args.name).map_err(seal_error)?;
    let kid = SealedToken::parse(&args.token).ok().map(|sealed| sealed.seal.kid.to_string());
    Ok(global.output(&token_json(&token, kid.as_deref()), || token_text(&token, kid.as_deref())))
}

/// The refusal of a fence that verifies.
fn seal_error(error: SealError) -> CommandError {
    match error {
        SealError::Token(error) => Error::from(&Refusal::Token(error)).into(),
        error => error_with_code(error.code(), &error),
    }
}

fn token_text(token: &Token, kid: Option<&str>) -> String {
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
        ("sealed", kid.map_or_else(|| "no".to_owned(), |kid| format!("by key {kid}"))),
    ])
}

/// The number is a string, because many JSON parsers round large numbers.
fn token_json(token: &Token, kid: Option<&str>) -> Value {
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
        "kid": kid,
    })
}

fn resource_hash(token: &Token) -> String {
    format!("{:016x}", u64::from_be_bytes(token.resource))
}
