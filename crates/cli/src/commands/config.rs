//! `leasehold config check`: validates a configuration file of `leasehold serve`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::serve::settings::{ServeSettings, SettingsArgs};
use crate::table::key_values;

/// Check a configuration file
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold config check /etc/leasehold.toml")]
pub struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Validate a configuration file and print the resulting settings
    ///
    /// Works without a server. It reads the files for TLS and the access file as the server does, so run it as the user of the
    /// server. It does not open the journal, and does not check that other files exist.
    #[command(after_help = "Example:\n  leasehold config check /etc/leasehold.toml")]
    Check {
        /// Configuration file of `leasehold serve`, in TOML
        file: PathBuf,
        /// Print nothing on standard output; the exit code is the answer
        #[arg(long, short, conflicts_with_all = ["json", "output"])]
        quiet: bool,
    },
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let ConfigCommand::Check { file, quiet } = &args.command;
    let settings = ServeSettings::resolve(&SettingsArgs::default(), Some(file))?;
    settings.access.check_files()?;
    let settings = settings.entries();
    let body: serde_json::Map<_, _> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect();
    let output = global.output(&body, || key_values(&settings));
    Ok(if *quiet { output.without_text() } else { output })
}
