//! `leasehold renew`: extends a lease.

use leasehold::HeldLease;
use leasehold::duration::HumanDuration;

use super::lease_text::current_lease;
use super::secret_arg::SecretArg;
use super::token_arg::TokenArg;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Renew a lease
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold renew jobs/settle --token \"$LEASEHOLD_TOKEN\"")]
pub struct Args {
    /// Resource of the lease
    resource: String,
    #[command(flatten)]
    token: TokenArg,
    #[command(flatten)]
    secret: SecretArg,
    /// Change the ttl from this renewal on
    #[arg(long, value_name = "DURATION")]
    ttl: Option<HumanDuration>,
    /// Report progress of the work; the number must increase
    #[arg(long, value_name = "N")]
    progress: Option<u64>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let lease = HeldLease::new(&args.resource, args.token.read()?);
    let ttl = args.ttl.map(HumanDuration::millis);
    let renewal = global.call(async |client| args.secret.present(&client)?.renew(&lease, ttl, args.progress).await)?;
    let mut body = renewal.body(&args.resource);
    if let Some(secret) = renewal.secret()
        && args.secret.update(secret)?
    {
        body.secret = None;
    }
    Ok(global.output(&body, || current_lease(&body)))
}
