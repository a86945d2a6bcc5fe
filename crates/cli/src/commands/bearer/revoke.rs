//! `leasehold bearer revoke`: ends tokens by their id, name or principal.

use leasehold::Error;
use serde_json::json;

use super::BearerDirectoryArgs;
use super::bearer_directory::{BearerDirectory, now, state};
use crate::file_set::FileSet;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Revoke one bearer token by its id, or all of a name or principal
///
/// Open streams of the token end when the server has read the file again. Grants in access.toml stay, for other tokens and
/// certificates of the same principal.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold bearer revoke 3f9c0a1b2c4d\n  leasehold bearer revoke ci")]
pub struct Args {
    /// Id of one token, name, or principal
    token: String,
    #[command(flatten)]
    directory: BearerDirectoryArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut directory = BearerDirectory::open(&args.directory.dir)?;
    let now = now();
    let named = format!("bearer:{}", args.token);
    // An id takes precedence, so that a name in the form of an id revokes no more than one token.
    let is_id = directory.file.entries.iter().any(|entry| entry.id == args.token);
    let mut revoked = Vec::new();
    for entry in &mut directory.file.entries {
        let is_meant = match is_id {
            true => entry.id == args.token,
            false => entry.principal == args.token || entry.principal == named,
        };
        if is_meant && state(entry, now) == "valid" {
            entry.revoked = Some(now);
            revoked.push(entry.id.clone());
        }
    }
    if revoked.is_empty() {
        let message = format!(
            "token: no valid token has the id, name or principal {:?}; nothing was changed, see leasehold bearer list",
            args.token
        );
        return Err(Error::config("token", message).into());
    }
    let mut files = FileSet::default();
    directory.write(&mut files)?;
    files.commit()?;
    let note = "a running server applies this within 60 seconds, or at once after SIGHUP".to_owned();
    let text = || format!("revoked {}", revoked.join(", "));
    Ok(global.output(&json!({ "revoked": revoked }), text).with_note(Some(note)))
}
