//! `leasehold config check`: whether a file of settings can be served with.

use std::path::PathBuf;

use clap::Subcommand;

use crate::connection::Everywhere;
use crate::serve::settings::{Chosen, Given};
use crate::table::block;
use crate::told::Outcome;

/// Check files of settings
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold config check /etc/leasehold.toml")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Read a file of settings and print what would hold
    ///
    /// Nothing is opened and nobody is asked.
    #[command(after_help = "Example:\n  leasehold config check /etc/leasehold.toml")]
    Check {
        /// The file, in TOML
        file: PathBuf,
    },
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let What::Check { file } = &args.what;
    let told = Chosen::from(&Given::default(), Some(file))?.told();
    let body: serde_json::Map<_, _> =
        told.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect();
    Ok(ask.answer(&body, || block(&told)))
}
