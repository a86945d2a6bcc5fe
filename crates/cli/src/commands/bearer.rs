//! `leasehold bearer`: creates, lists and revokes bearer tokens in the file that a server reads (`bearers`).

mod bearer_directory;
mod create;
mod list;
mod revoke;

use std::path::PathBuf;

use clap::Subcommand;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Create, list and revoke bearer tokens
///
/// Works without a server, on bearers.toml and access.toml in one directory. A server with the setting `bearers` applies changes
/// within 60 seconds, or at once after SIGHUP. The file contains digests: a token cannot be read from it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold bearer create ci --role holder --prefix builds --out ci.token")]
pub struct Args {
    #[command(subcommand)]
    command: BearerCommand,
}

#[derive(Subcommand)]
enum BearerCommand {
    Create(create::Args),
    List(list::Args),
    Revoke(revoke::Args),
}

/// The directory of a bearer file
#[derive(clap::Args)]
struct BearerDirectoryArgs {
    /// Directory with access.toml and bearers.toml; `bearer create` creates bearers.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        BearerCommand::Create(args) => create::run(args, global),
        BearerCommand::List(args) => list::run(args, global),
        BearerCommand::Revoke(args) => revoke::run(args, global),
    }
}
