//! `leasehold charter`: applies, shows, removes and checks charters.

mod check;
mod file;

use std::path::PathBuf;

use clap::Subcommand;
use leasehold::json::CharterEntryBody;
use leasehold::{Code, Error};
use leasehold_core::name::{Name, Prefix};
use leasehold_core::refusal::Refusal;
use serde_json::json;

use super::alone_arg::AloneArg;
use super::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Manage charters
///
/// A charter sets the rules for all leases under a prefix. A charter file contains one charter (`prefix` and `charter`) or
/// several (`charters`), in TOML or JSON by file extension. `show` prints such a file.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold charter check settle.toml\n  leasehold charter apply settle.toml --comment \"agreed on Monday\""
)]
pub struct Args {
    #[command(subcommand)]
    command: CharterCommand,
}

#[derive(Subcommand)]
enum CharterCommand {
    /// Apply the charters of a file
    ///
    /// Each charter replaces the one of its prefix. All are validated before the first is applied. A charter that leaves a question
    /// of `charter check` unanswered is applied with a warning.
    #[command(after_help = "Example:\n  leasehold charter apply settle.toml --comment \"agreed on Monday\"")]
    Apply {
        /// Charter file, *.toml or *.json
        file: PathBuf,
        /// Comment for the audit log
        #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
        comment: String,
        #[command(flatten)]
        alone: AloneArg,
    },
    /// Print charters as a charter file
    #[command(after_help = "Example:\n  leasehold charter show team/a > team-a.toml")]
    Show {
        /// Print only charters at or under this prefix, and the one that covers it
        prefix: Option<String>,
    },
    /// Remove the charter of a prefix
    #[command(after_help = "Example:\n  leasehold charter remove team/a --comment \"the team was dissolved\"")]
    Remove {
        /// Exact prefix of the charter; empty for the charter of all resources
        prefix: String,
        /// Comment for the audit log
        #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
        comment: String,
        #[command(flatten)]
        alone: AloneArg,
    },
    /// Check that the charters of a file answer every question
    ///
    /// Works without a server. Exits with 8 if a question is unanswered. Weak answers are reported but do not fail the
    /// check.
    #[command(after_help = "Example:\n  leasehold charter check settle.toml")]
    Check {
        /// Charter file, *.toml or *.json
        file: PathBuf,
        /// Print nothing on standard output; the exit code is the answer
        #[arg(long, short, conflicts_with_all = ["json", "output"])]
        quiet: bool,
    },
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        CharterCommand::Apply { file, comment, alone } => {
            let charters = file::read(file)?;
            global.call(async |client| {
                let client = alone.apply(&client);
                let mut proposed = Vec::new();
                for (prefix, charter) in &charters {
                    match client.set_charter(prefix, charter, comment).await {
                        Err(error) if error.code() == Some(Code::ApprovalRequired) => proposed.push(error),
                        applied => applied?,
                    }
                }
                all_proposed(proposed)
            })?;
            let unanswered: usize = charters.iter().map(|(_, charter)| check::unanswered(charter)).sum();
            let prefixes: Vec<_> = charters.into_iter().map(|(prefix, _)| prefix).collect();
            let body = json!({ "done": true, "prefixes": prefixes, "unanswered": unanswered });
            let output = global.output(&body, || {
                let applied = prefixes.iter().map(|prefix| format!("applied the charter of {}", prefix_text(prefix)));
                applied.collect::<Vec<_>>().join("\n")
            });
            let file = file.display();
            Ok(output.with_note((unanswered > 0).then(|| {
                format!("warning: {}; run leasehold charter check {file}", check::unanswered_text(unanswered))
            })))
        }
        CharterCommand::Show { prefix } => show(prefix.as_deref(), global),
        CharterCommand::Remove { prefix, comment, alone } => {
            global.call(async |client| alone.apply(&client).remove_charter(prefix, comment).await)?;
            Ok(global.done(format!("removed the charter of {}", prefix_text(prefix))))
        }
        CharterCommand::Check { file, quiet } => Ok(check::run(&file::read(file)?, *quiet, global)),
    }
}

/// The error of charters that wait for an approval: all of them, so that one approver can approve the whole file.
fn all_proposed(mut errors: Vec<Error>) -> Result<(), Error> {
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let numbers: Vec<_> = errors.iter().filter_map(|error| error.body().proposal).map(|id| id.to_string()).collect();
    let message = format!(
        "these charters need a second identity; ask an approver to run leasehold approve for each of {} within 15 minutes",
        numbers.join(", ")
    );
    Err(Error::new(Code::ApprovalRequired, message))
}

/// A prefix for messages: the empty one needs a name.
fn prefix_text(prefix: &str) -> &str {
    if prefix.is_empty() { "all resources" } else { prefix }
}

fn show(prefix: Option<&str>, global: &GlobalArgs) -> CommandResult {
    if let Some(Err(error)) = prefix.map(Prefix::parse) {
        return Err(Error::from(&Refusal::Name(error)).into());
    }
    let all = global.call(async |client| client.charters(None).await)?;
    let matches = |of: &str| match prefix.map(|prefix| (Prefix::parse(prefix), Name::parse(prefix), Name::parse(of))) {
        None => true,
        Some((Ok(prefix), _, Ok(of))) if prefix.covers(of) => true,
        Some((_, Ok(name), _)) => covering_prefix(name, &all) == Some(of),
        Some(_) => false,
    };
    let charters: Vec<_> = all
        .iter()
        .filter(|(of, _)| matches(of))
        .map(|(of, charter)| CharterEntryBody { prefix: of.clone(), charter: charter.into() })
        .collect();
    let output =
        global.listing(&charters, charters.iter().map(|entry| entry.prefix.clone()), || file::format(&charters));
    Ok(global.or_empty(output, charters.is_empty(), || match prefix {
        Some(prefix) => {
            format!("no charter covers {prefix} or is under it; `leasehold charter show` lists all charters")
        }
        None => "no charters; write one and apply it with `leasehold charter apply FILE --comment TEXT`".to_owned(),
    }))
}

/// The longest prefix that covers a name.
fn covering_prefix<'a, T>(name: Name<'_>, all: &'a [(String, T)]) -> Option<&'a str> {
    let covers = |prefix: &&str| Prefix::parse(prefix).is_ok_and(|prefix| prefix.covers(name));
    all.iter().map(|(prefix, _)| prefix.as_str()).filter(covers).max_by_key(|prefix| prefix.len())
}
