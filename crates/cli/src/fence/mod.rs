//! `leasehold fence`: fences that stand before a target, and what an operator does to their marks.

mod http;
mod marks;
mod tend;

pub use tend::number;

use crate::connection::Everywhere;
use crate::told::Outcome;

/// Tend the fences that stand at targets
///
/// TARGET is an address: postgres://USER@HOST/DATABASE, redis://HOST[:PORT][/DB], etcd://HOST:PORT[,HOST:PORT][/PREFIX],
/// nats://HOST[:PORT]/STREAM[/SUBJECT], sqlite:PATH, or file:PATH for an append log or a replaced file.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence marks sqlite:/var/lib/app/ledger.db")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Http(http::Args),
    Marks(marks::Args),
    Arm(tend::Arm),
    Rearm(tend::Rearm),
    Lost(tend::Lose),
    Adopt(tend::Adopt),
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    match &args.command {
        Command::Http(args) => http::run(args, ask),
        Command::Marks(args) => marks::run(args, ask),
        Command::Arm(args) => tend::arm(args, ask),
        Command::Rearm(args) => tend::rearm(args, ask),
        Command::Lost(args) => tend::lose(args, ask),
        Command::Adopt(args) => tend::adopt(args, ask),
    }
}
