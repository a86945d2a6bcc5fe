//! `leasehold fence arm`: arm a fence for a resource that has not been written to under a lease.

use leasehold_core::token::Cluster;

use super::selection::cluster_and_counter;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::target::{AddressParser, TargetAddress, fence_id};

/// Arm a fence for a new resource
///
/// Installs the fence in the target if necessary. An existing mark is kept. Use `leasehold fence rearm` for a target that was
/// written to under a lease before.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence arm sqlite:/var/lib/app/ledger.db --resource jobs/settle")]
pub struct Args {
    /// Address of the target
    #[arg(value_name = "TARGET", value_parser = AddressParser::new(TargetAddress::parse))]
    target: TargetAddress,
    /// Resource that the fence protects
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Slot of the resource
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// Cluster whose tokens the fence accepts [default: the server's cluster]
    #[arg(long, value_name = "ID")]
    cluster: Option<Cluster>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    global.with_client(async |client| {
        let cluster = match args.cluster {
            Some(cluster) => cluster,
            None => cluster_and_counter(&client).await?.0,
        };
        args.target.arm(&fence_id(cluster, &args.resource, args.slot)?).await
    })?;
    Ok(global.done(format!("armed the fence of {} in {}", args.resource, args.target.redacted())))
}
