//! `leasehold complete-names`: names for completion scripts, from the servers that the command line would call.
//!
//! It never reports an error and ends within [`TIME_LIMIT`]: a completion must not disturb the line that a person writes. The servers
//! apply their access rules, so that it offers only what the caller may list.

mod command_line;
mod names;
mod scripts;
mod words;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::Client;
use leasehold_core::unicode::is_misleading;

use crate::output::{CommandOutput, CommandResult};
use crate::shell_text::quote;
use command_line::CompletedWord;
pub use scripts::script;

/// Print names for a completion script
#[derive(clap::Args)]
#[command(hide = true, after_help = "Example:\n  leasehold complete-names -- leasehold show jobs/")]
pub struct Args {
    /// Line before the cursor, from a shell that splits words at `=` and `:` (bash)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "word")]
    line: Option<String>,
    /// The word that this shell completes
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "line")]
    word: Option<String>,
    /// Print the values of an option without the option (fish)
    #[arg(long)]
    values: bool,
    /// The words before the cursor; the last one is completed
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

/// Longest time for all requests.
const TIME_LIMIT: Duration = Duration::from_millis(500);
/// Most names that are printed; more help no one.
const MAX_NAMES: usize = 200;

pub fn run(args: &Args) -> CommandResult {
    let (words, raw) = match &args.line {
        Some(line) => words::split(line),
        None => (args.words.clone(), String::new()),
    };
    let Some(completed) = command_line::completed_word(&words) else { return Ok(CommandOutput::EMPTY) };
    let found = find_names(&completed);
    let offered = found.iter().filter(|name| name.starts_with(&completed.typed) && !name.contains(is_misleading));
    let option = if args.values { "" } else { completed.option.as_str() };
    let lines = offered.take(MAX_NAMES).map(|name| match &args.word {
        Some(word) => bash_reply(word, &raw, option, name),
        None => Some(format!("{option}{name}")),
    });
    let lines: Vec<_> = lines.flatten().collect();
    Ok(if lines.is_empty() { CommandOutput::EMPTY } else { lines.join("\n").into() })
}

/// What bash puts in the place of the word that it completes. `raw` is the whole last argument, as it is written.
fn bash_reply(word: &str, raw: &str, option: &str, name: &str) -> Option<String> {
    // At a break bash completes an empty word after it.
    let word = if matches!(word, "=" | ":") { "" } else { word };
    if raw.starts_with(['\'', '"']) {
        return Some(name.to_owned());
    }
    let whole = format!("{option}{}", quote(name));
    let kept = raw.strip_suffix(word)?;
    // A quoted name does not begin with what was written, so it can replace only a whole word.
    if kept.is_empty() { Some(whole) } else { whole.strip_prefix(kept).map(str::to_owned) }
}

/// The names of the kind that belongs at the word; those that were found when the time ended.
fn find_names(completed: &CompletedWord) -> BTreeSet<String> {
    if let Some(names) = names::local(completed) {
        return names;
    }
    let Some(endpoints) = completed.endpoints() else { return BTreeSet::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return BTreeSet::new();
    };
    let found = RefCell::new(BTreeSet::new());
    runtime.block_on(async {
        let query = names::query(Client::from(endpoints), completed, &found);
        // An error and the end of the time are the same here: nothing more is known.
        let _ = tokio::time::timeout(TIME_LIMIT, query).await;
    });
    // A name that is being resolved must not delay the shell.
    runtime.shutdown_background();
    found.into_inner()
}

#[cfg(test)]
mod tests {
    use super::bash_reply;

    #[test]
    fn bash_gets_the_part_after_its_breaks() {
        let reply = |word: &str, raw: &str, option: &str, name: &str| bash_reply(word, raw, option, name);
        assert_eq!(reply("jo", "jo", "", "jobs/a").as_deref(), Some("jobs/a"));
        assert_eq!(reply("", "", "", "jobs/a").as_deref(), Some("jobs/a"));
        assert_eq!(reply("w", "--holder=w", "--holder=", "w1").as_deref(), Some("w1"));
        assert_eq!(reply("=", "--holder=", "--holder=", "w1").as_deref(), Some("w1"));
        assert_eq!(reply("b", "a:b", "", "a:bc").as_deref(), Some("bc"));
        assert_eq!(reply(":", "a:", "", "a:bc").as_deref(), Some("bc"));
        assert_eq!(reply("a", "a", "", "a b").as_deref(), Some("'a b'"));
        assert_eq!(reply("'a", "'a", "", "a b").as_deref(), Some("a b"), "the shell closes the quote");
        assert_eq!(reply("c", "a:c", "", "a:c d"), None, "it cannot be written after the break");
    }
}
