//! `leasehold completions`: prints a completion script for a shell.

use clap_complete::Shell;

use crate::completion::script;
use crate::output::CommandResult;

/// Print a completion script for a shell
///
/// In bash, zsh and fish the script also completes names: resources, holders, targets, charters, proposals and profiles. It asks
/// the server that the line would call, for at most half a second, and offers what the caller may list.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold")]
pub struct Args {
    /// Shell to complete for
    shell: Shell,
}

pub fn run(args: &Args) -> CommandResult {
    Ok(script(args.shell).into())
}
