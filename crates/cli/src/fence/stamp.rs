//! `leasehold fence stamp`: stamp a sealed token for a PostgreSQL database.

use std::io::Read;
use std::path::PathBuf;

use leasehold::FencingToken;
use leasehold_core::refusal::Refusal;
use leasehold_fence::{SealVerifier, postgres};
use serde_json::json;

use super::key_files::{read_seal_keys, read_stamp_key};
use crate::global_args::GlobalArgs;
use crate::output::{CommandResult, error_with_code};
use crate::target::fence_id;

/// Limit for standard input. Every token is shorter.
const MAX_INPUT_BYTES: u64 = 1_024;

/// Stamp a sealed token for a PostgreSQL database
///
/// Prints the token with its stamp, which the holder presents to the database instead of the token. Run it where holders
/// cannot read the stamp key. A token that none of the public keys signed for the resource gets no stamp.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold fence stamp --resource jobs/settle --seal-keys seal-keys.json --stamp-key ledger.stamp --token -")]
pub struct Args {
    /// Token of the grant; `-` reads it from standard input
    #[arg(long, env = "LEASEHOLD_TOKEN", hide_env_values = true, value_name = "TOKEN", allow_hyphen_values = true)]
    token: String,
    /// Resource of the token
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Slot of the resource
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// Public seal keys, as `leasehold keys export` writes them
    #[arg(long, value_name = "FILE")]
    seal_keys: PathBuf,
    /// Stamp key of the database, mode 0600
    #[arg(long, value_name = "FILE")]
    stamp_key: PathBuf,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let key = read_stamp_key(&args.stamp_key)?;
    let verifier = SealVerifier::new(read_seal_keys(&args.seal_keys)?);
    let token = token(&args.token)?;
    let id = fence_id(token.parsed().cluster, &args.resource, args.slot)?;
    let stamped = postgres::stamp(&key, &verifier, &id, token.as_str());
    let stamped = stamped.map_err(|error| error_with_code(error.code(), &error))?;
    Ok(global.output(&json!({ "token": stamped }), || stamped.clone()))
}

/// The token of the option, or of standard input.
fn token(option: &str) -> Result<FencingToken, leasehold::Error> {
    let mut text = option.to_owned();
    if option == "-" {
        text.clear();
        let read = std::io::stdin().lock().take(MAX_INPUT_BYTES).read_to_string(&mut text);
        let invalid = Refusal::Invalid { field: "token", reason: "standard input is not UTF-8 text" };
        read.map_err(|_| leasehold::Error::from(&invalid))?;
    }
    let token = FencingToken::parse(text.strip_suffix('\n').unwrap_or(&text));
    token.map_err(|error| leasehold::Error::from(&Refusal::Token(error)))
}
