//! `leasehold fence protect`: force a table of a database to refuse writes without a current token.

use leasehold_core::token::Cluster;

use super::selection::{cluster_and_counter, name_failure};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::target::{AddressParser, TargetAddress, fence_id};

/// Protect tables of a database, so that they refuse every write without a current token
///
/// The fence of the resource must be armed. From then on, all writers must present a token: those that do not are refused.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold fence protect sqlite:/var/lib/app/ledger.db --resource jobs/settle --table paid"
)]
pub struct Args {
    /// Address of the database: postgres://USER@HOST/DATABASE or sqlite:PATH
    #[arg(value_name = "TARGET", value_parser = AddressParser::new(TargetAddress::parse))]
    target: TargetAddress,
    /// Resource whose token is required
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Slot of the resource
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// Table to protect; may be repeated
    #[arg(long = "table", value_name = "TABLE", required = true)]
    tables: Vec<String>,
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
        let fence = fence_id(cluster, &args.resource, args.slot)?;
        for (done, table) in args.tables.iter().enumerate() {
            let protected = args.target.protect(&fence, table).await;
            protected.map_err(|error| name_failure(error, table, args.tables[..done].to_vec()))?;
        }
        Ok(())
    })?;
    let tables = args.tables.join(", ");
    Ok(global.done(format!("{} protects {tables} in {}", args.resource, args.target.redacted())))
}
