//! `leasehold charter`: what is agreed about resources, from a file to the grantor and back.

mod check;
mod written;

use std::path::PathBuf;

use clap::Subcommand;
use leasehold::Error;
use leasehold::json::CharterEntryBody;
use leasehold_core::name::{Name, Prefix};
use leasehold_core::refusal::Refusal;
use serde_json::json;

use crate::connection::Everywhere;
use crate::operate::in_writing;
use crate::told::Outcome;

/// Set, show and question charters
///
/// A charter says what holds for every lease under a prefix. A file holds one (`prefix` and `charter`) or several
/// (`charters`), in TOML or JSON by its ending; what `show` prints is such a file.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold charter check settle.toml\n  leasehold charter apply settle.toml --reason \"agreed on Monday\""
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Set the charters of a file
    ///
    /// Each replaces the charter of its prefix. All are checked before the first is set.
    #[command(after_help = "Example:\n  leasehold charter apply settle.toml --reason \"agreed on Monday\"")]
    Apply {
        /// The file, *.toml or *.json
        file: PathBuf,
        /// Why; it goes on record
        #[arg(long, value_name = "TEXT", value_parser = in_writing)]
        reason: String,
    },
    /// Print charters as a file that can be applied
    #[command(after_help = "Example:\n  leasehold charter show team/a > team-a.toml")]
    Show {
        /// Only those at or under this prefix, and the one that covers it
        prefix: Option<String>,
    },
    /// Remove the charter of a prefix
    #[command(after_help = "Example:\n  leasehold charter remove team/a --reason \"the team is gone\"")]
    Remove {
        /// The prefix, exactly; empty for the one that covers everything
        prefix: String,
        /// Why; it goes on record
        #[arg(long, value_name = "TEXT", value_parser = in_writing)]
        reason: String,
    },
    /// Put all questions to the charters of a file
    ///
    /// No server is asked. Exit 8 if a question is left open; what is weak is told, and is no failure.
    #[command(after_help = "Example:\n  leasehold charter check settle.toml")]
    Check {
        /// The file, *.toml or *.json
        file: PathBuf,
    },
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    match &args.what {
        What::Apply { file, reason } => {
            let charters = written::read(file)?;
            ask.ask(async |client| {
                for (prefix, charter) in &charters {
                    client.set_charter(prefix, charter, reason).await?;
                }
                Ok(())
            })?;
            let prefixes: Vec<_> = charters.into_iter().map(|(prefix, _)| prefix).collect();
            Ok(ask.answer(&json!({ "done": true, "prefixes": prefixes }), || {
                let set = prefixes.iter().map(|prefix| format!("set the charter of {}", called(prefix)));
                set.collect::<Vec<_>>().join("\n")
            }))
        }
        What::Show { prefix } => show(prefix.as_deref(), ask),
        What::Remove { prefix, reason } => {
            ask.ask(async |client| client.remove_charter(prefix, reason).await)?;
            Ok(ask.done(format!("removed the charter of {}", called(prefix))))
        }
        What::Check { file } => Ok(check::run(&written::read(file)?, ask.json)),
    }
}

/// A prefix as people call it.
fn called(prefix: &str) -> &str {
    if prefix.is_empty() { "everything" } else { prefix }
}

fn show(prefix: Option<&str>, ask: &Everywhere) -> Outcome {
    if let Some(Err(error)) = prefix.map(Prefix::parse) {
        return Err(Error::from(&Refusal::Name(error)).into());
    }
    let all = ask.ask(async |client| client.charters(None).await)?;
    let is_meant = |of: &str| match prefix.map(|prefix| (Prefix::parse(prefix), Name::parse(prefix), Name::parse(of))) {
        None => true,
        Some((Ok(prefix), _, Ok(of))) if prefix.covers(of) => true,
        Some((_, Ok(name), _)) => covering(name, &all) == Some(of),
        Some(_) => false,
    };
    let meant: Vec<_> = all
        .iter()
        .filter(|(of, _)| is_meant(of))
        .map(|(of, charter)| CharterEntryBody { prefix: of.clone(), charter: charter.into() })
        .collect();
    Ok(ask.answer(&meant, || written::text(&meant)))
}

/// The longest prefix that covers a name.
fn covering<'a, T>(name: Name<'_>, all: &'a [(String, T)]) -> Option<&'a str> {
    let covers = |prefix: &&str| Prefix::parse(prefix).is_ok_and(|prefix| prefix.covers(name));
    all.iter().map(|(prefix, _)| prefix.as_str()).filter(covers).max_by_key(|prefix| prefix.len())
}
