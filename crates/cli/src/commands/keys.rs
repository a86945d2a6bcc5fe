//! `leasehold keys`: creates, lists, exports and retires the keys that seal and stamp tokens.

mod create;
mod create_stamp;
mod export;
mod list;
mod retire;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use leasehold::Error;
use leasehold_server::sealing::SealKeyRing;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Create, list, export and retire the keys that seal and stamp tokens
///
/// A server whose key directory has a seal key signs every token (`lh2-…`), and fences with the public keys refuse all others.
/// The commands work without a server, on its key directory. A running server applies changes within 60 seconds, or at once
/// after SIGHUP. All servers of a cluster need the same keys.
///
/// To replace a key: create a new one, export the public keys to every fence before the new one becomes active, and retire the
/// old one when no holder presents its tokens any more.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold keys create --keys /etc/leasehold/keys")]
pub struct Args {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Subcommand)]
enum KeysCommand {
    Create(create::Args),
    CreateStamp(create_stamp::Args),
    List(list::Args),
    Export(export::Args),
    Retire(retire::Args),
}

/// The key directory of a server
#[derive(clap::Args)]
struct KeyDirectoryArgs {
    /// Key directory of the server (its setting `keys`)
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        KeysCommand::Create(args) => create::run(args, global),
        KeysCommand::CreateStamp(args) => create_stamp::run(args, global),
        KeysCommand::List(args) => list::run(args, global),
        KeysCommand::Export(args) => export::run(args, global),
        KeysCommand::Retire(args) => retire::run(args, global),
    }
}

/// Time after which a further key becomes active, so that every fence can learn it first.
const LATER_MS: u64 = 3_600_000;

/// What remains to do after a file of the server has changed.
const RELOAD: &str = "a running server applies this within 60 seconds, or at once after SIGHUP";

fn load(directory: &Path) -> Result<SealKeyRing, Error> {
    if !directory.is_dir() {
        let at = directory.display();
        return Err(Error::config("keys", format!("{at} is not a directory; name the key directory of the server")));
    }
    SealKeyRing::load(directory).map_err(|error| Error::config("keys", error.to_string()))
}

fn key_error(error: &leasehold_seal::SealKeyError) -> Error {
    Error::config("keys", error.to_string())
}
