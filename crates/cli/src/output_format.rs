//! Formats of results (`--output`) and colors (`--color`), and which commands print names (`-o name`).

use std::io::IsTerminal;

use clap::error::{Error, ErrorKind};
use clap::{ArgMatches, Command, ValueEnum};

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for people; tables are fitted to the terminal.
    #[default]
    Table,
    /// Like table, with more columns and without a limit of their width.
    Wide,
    /// One JSON document on one line per result.
    Json,
    /// The same document in YAML.
    Yaml,
    /// One name per line, for scripts.
    Name,
}

impl OutputFormat {
    /// Whether programs read the result, which is then one document.
    pub const fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Whether people read the result.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// The format that a command line asks for, even if the rest of it is wrong.
    pub fn of_raw_args(args: impl IntoIterator<Item = String>) -> Self {
        let mut args = args.into_iter().skip(1).peekable();
        let mut found = Self::default();
        while let Some(arg) = args.next() {
            let value = match arg.as_str() {
                "--" => break,
                "--json" => Some("json".to_owned()),
                "-o" | "--output" => args.peek().cloned(),
                _ => arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")).map(str::to_owned),
            };
            let format = value.and_then(|word| Self::from_str(word.trim_start_matches('='), false).ok());
            found = format.unwrap_or(found);
        }
        found
    }
}

/// When colors are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorWhen {
    /// Whether standard output gets colors.
    pub fn applies(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !no_color && !is_dumb_terminal() && std::io::stdout().is_terminal()
            }
        }
    }
}

/// Whether the terminal has no cursor control and no colors.
pub fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|value| value == "dumb")
}

/// How everything that one run prints is printed.
#[derive(Clone, Copy, Debug)]
pub struct OutputStyle {
    pub format: OutputFormat,
    pub has_color: bool,
}

/// The commands whose results have names: resources, holders, or ids that other commands accept.
const COMMANDS_WITH_NAMES: [&str; 16] = [
    "audit denials",
    "bearer list",
    "ca list",
    "charter show",
    "cluster status",
    "coverage",
    "deadlocks",
    "fence marks",
    "held-by",
    "history",
    "keys list",
    "ls",
    "proposals",
    "show",
    "usage",
    "waiters",
];

/// Commands that print names while they run.
const STREAMS_WITH_NAMES: [&str; 1] = ["watch"];

/// Fails if the output options contradict each other, or if the command has no names to print.
pub fn check(root: &mut Command, matches: &ArgMatches, output: Option<OutputFormat>, json: bool) -> Result<(), Error> {
    if json && let Some(other) = output.filter(|format| *format != OutputFormat::Json) {
        let word = other.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let message = format!("--json means -o json and cannot be used with -o {word}; pass one of them");
        return Err(root.error(ErrorKind::ArgumentConflict, message));
    }
    let command = command_path(matches);
    let has_names = COMMANDS_WITH_NAMES.contains(&command.as_str()) || STREAMS_WITH_NAMES.contains(&command.as_str());
    if output == Some(OutputFormat::Name) && !has_names {
        let message = format!("the result of leasehold {command} has no names; use -o table, wide, json or yaml");
        return Err(root.error(ErrorKind::InvalidValue, message));
    }
    Ok(())
}

/// The words of the command, for example `ca list`.
fn command_path(matches: &ArgMatches) -> String {
    let mut words = Vec::new();
    let mut at = matches;
    while let Some((word, inner)) = at.subcommand() {
        words.push(word);
        at = inner;
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_format_of_a_wrong_command_line_is_known() {
        let of = |line: &str| OutputFormat::of_raw_args(line.split(' ').map(str::to_owned));
        assert_eq!(of("leasehold ls --jso"), OutputFormat::Table);
        assert_eq!(of("leasehold ls --json --wrong"), OutputFormat::Json);
        assert_eq!(of("leasehold ls -o yaml --wrong"), OutputFormat::Yaml);
        assert_eq!((of("leasehold ls -oyaml x"), of("leasehold -o=yaml")), (OutputFormat::Yaml, OutputFormat::Yaml));
        assert_eq!(
            (of("leasehold ls --output=json"), of("leasehold --output json")),
            (OutputFormat::Json, OutputFormat::Json)
        );
        assert_eq!(
            of("leasehold run a -- cat --json"),
            OutputFormat::Table,
            "the command's own arguments do not count"
        );
        assert_eq!(of("leasehold ls -o xml"), OutputFormat::Table);
    }

    #[test]
    fn every_command_with_names_exists() {
        let root = crate::Args::command();
        for path in COMMANDS_WITH_NAMES.iter().chain(&STREAMS_WITH_NAMES) {
            let found = path.split(' ').try_fold(&root, |at, word| at.find_subcommand(word));
            assert!(found.is_some(), "{path}");
        }
        assert!(COMMANDS_WITH_NAMES.is_sorted());
    }
}
