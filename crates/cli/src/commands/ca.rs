//! `leasehold ca`: issues, renews, lists and revokes certificates of the CA that `leasehold init` created.

mod issue;
mod list;
mod renew;
mod revoke;

use std::path::PathBuf;

use clap::Subcommand;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Issue, renew, list and revoke certificates
///
/// Works without a server, on the directory that `leasehold init` wrote. A running server applies changes within 60 seconds,
/// or at once after SIGHUP.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ca issue worker --role holder --prefix jobs")]
pub struct Args {
    #[command(subcommand)]
    command: CaCommand,
}

#[derive(Subcommand)]
enum CaCommand {
    Issue(issue::Args),
    Renew(renew::Args),
    List(list::Args),
    Revoke(revoke::Args),
}

/// The directory of a CA
#[derive(clap::Args)]
struct DirectoryArgs {
    /// Directory that `leasehold init` wrote
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// The key of a CA
#[derive(clap::Args)]
struct CaKeyArgs {
    /// Private key of the CA [default: ca.key in the directory]
    #[arg(long, value_name = "FILE")]
    ca_key: Option<PathBuf>,
}

/// How long a certificate is valid
#[derive(clap::Args)]
struct ValidityArgs {
    /// Days until the certificate ends
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(i64).range(1..=crate::pki::MAX_DAYS))]
    days: i64,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        CaCommand::Issue(args) => issue::run(args, global),
        CaCommand::Renew(args) => renew::run(args, global),
        CaCommand::List(args) => list::run(args, global),
        CaCommand::Revoke(args) => revoke::run(args, global),
    }
}

/// What remains to do after a file of the server has changed.
const RELOAD: &str = "a running server applies this within 60 seconds, or at once after SIGHUP";
