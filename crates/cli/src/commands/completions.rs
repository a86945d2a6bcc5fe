//! `leasehold completions`: prints a completion script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::CommandResult;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold")]
pub struct Args {
    /// Shell to complete for
    shell: Shell,
}

pub fn run(args: &Args) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Args::command(), "leasehold", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(script.trim_end().to_owned().into())
}
