//! `leasehold release`: releases a lease before its ttl ends.

use leasehold::HeldLease;

use super::secret_arg::SecretArg;
use super::token_arg::TokenArg;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Release a lease
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold release jobs/settle --token \"$LEASEHOLD_TOKEN\"")]
pub struct Args {
    /// Resource of the lease
    resource: String,
    #[command(flatten)]
    token: TokenArg,
    #[command(flatten)]
    secret: SecretArg,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let lease = HeldLease::new(&args.resource, args.token.read()?);
    global.call(async |client| args.secret.present(&client)?.release(&lease).await)?;
    Ok(global.done(format!("released {}", args.resource)))
}
