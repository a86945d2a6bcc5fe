//! `leasehold completions`: what a shell needs to complete commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::told::Outcome;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold")]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Args::command(), "leasehold", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(script.trim_end().to_owned().into())
}
