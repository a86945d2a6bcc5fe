//! `leasehold fence`: manage the fences of targets and their marks.

mod adopt;
mod arm;
mod http;
mod key_files;
mod lost;
mod marks;
mod protect;
mod rearm;
mod seal;
mod selection;
mod stamp;

pub use rearm::parse_number;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Manage fences in targets
///
/// TARGET is an address: postgres://USER@HOST/DATABASE, redis://HOST[:PORT][/DB], etcd://HOST:PORT[,HOST:PORT][/PREFIX],
/// nats://HOST[:PORT]/STREAM[/SUBJECT], sqlite:PATH, or file:PATH for an append log or a replaced file.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence marks sqlite:/var/lib/app/ledger.db")]
pub struct Args {
    #[command(subcommand)]
    command: FenceCommand,
}

#[derive(clap::Subcommand)]
enum FenceCommand {
    Http(http::Args),
    Marks(marks::Args),
    Arm(arm::Args),
    Protect(protect::Args),
    Rearm(rearm::Args),
    Lost(lost::Args),
    Adopt(adopt::Args),
    Seal(seal::Args),
    Stamp(stamp::Args),
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        FenceCommand::Http(args) => http::run(args, global),
        FenceCommand::Marks(args) => marks::run(args, global),
        FenceCommand::Arm(args) => arm::run(args, global),
        FenceCommand::Protect(args) => protect::run(args, global),
        FenceCommand::Rearm(args) => rearm::run(args, global),
        FenceCommand::Lost(args) => lost::run(args, global),
        FenceCommand::Adopt(args) => adopt::run(args, global),
        FenceCommand::Seal(args) => seal::run(args, global),
        FenceCommand::Stamp(args) => stamp::run(args, global),
    }
}
