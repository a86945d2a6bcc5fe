//! `leasehold fence stamp`: stamp a sealed token for a PostgreSQL database.

use std::path::PathBuf;

use leasehold_fence::SealVerifier;
use serde_json::json;

use super::seal_keys::{read_seal_keys, read_stamp_key};
use crate::commands::token_arg::TokenArg;
use crate::global_args::GlobalArgs;
use crate::output::{CommandResult, error_with_code};
use crate::target::fence_id;

/// Stamp a sealed token for a PostgreSQL database
///
/// Prints the token with its stamp, which the holder presents to the database instead of the token. Run it where holders
/// cannot read the stamp key. A token that none of the public keys signed for the resource gets no stamp.
#[derive(clap::Args)]
#[command(after_help = "Example:
  leasehold fence stamp --resource jobs/settle --seal-keys seal-keys.json --stamp-key ledger.stamp --token -")]
pub struct Args {
    #[command(flatten)]
    token: TokenArg,
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
    let token = args.token.read()?;
    let id = fence_id(token.parsed().cluster, &args.resource, args.slot)?;
    let stamped = key.stamp(&verifier, &id, token.as_str()).map_err(|error| error_with_code(error.code(), &error))?;
    Ok(global.output(&json!({ "token": stamped }), || stamped.clone()))
}
