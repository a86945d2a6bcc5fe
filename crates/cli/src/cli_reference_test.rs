//! Tests that `docs/reference/cli.md` matches `--help`, and that every setting of a server is documented.

use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::serve::settings::{ServeSettings, SettingsArgs};

const HEAD: &str = "\
# Command-line reference

`leasehold serve` runs a server ([configuration](configuration.md)); most other commands call one. This page is generated from `--help`.

- `--addr HOST:PORT[,HOST:PORT...]` or `LEASEHOLD_ADDR` lists the servers. If one cannot be reached, the next one is tried. Redirects
  to the leader are followed.
- `-o FORMAT` or `--output FORMAT` chooses the format of results: `table`, `wide` (more columns), `json` (one document on one line;
  `--json` is short for it), `yaml` (the same document) or `name` (one name per line, for scripts). Documents have the field names of
  the HTTP API, and token numbers are strings. Commands that list leases show token numbers, never tokens: only the holder receives
  the token. See [Script the command line](../how-to/script-the-command-line.md).
- `--watch` repeats a listing until interrupted, every second or every `--interval`.
- Tables have colors on a terminal only, unless NO_COLOR is set or TERM is `dumb`; `--color always` and `--color never` override that.
- Pass a token with `--token TEXT`, on standard input with `--token -`, or in `LEASEHOLD_TOKEN`.
- A duration is a whole number with a unit: `1500ms`, `10s`, `5m`, `1h`, `7d`.
- An error is one line on standard error, `leasehold: CODE{fields}: message; next step`, or a problem as a document with `-o json` and `-o yaml`. All codes are
  listed in [errors.md](errors.md).

## Exit codes
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        writeln!(page, "| {code} | {meaning} |").expect("writing to a string cannot fail");
    }
    let mut root = crate::Args::command().term_width(100);
    root.build();
    for command in root.get_subcommands_mut().filter(|command| is_listed(command)) {
        write_command(command, &mut page);
    }
    page
}

const EXIT_CODES: [(u8, &str); 14] = [
    (0, "success"),
    (1, "other error"),
    (2, "wrong usage, or an invalid value"),
    (3, "the lease is lost, or the token is stale"),
    (4, "busy, or not granted within the wait"),
    (5, "no server is available, or the outcome is unknown"),
    (6, "not allowed"),
    (7, "a limit is reached"),
    (
        8,
        "a check failed: an unanswered charter question, a coverage hole, an error that `doctor` found, or a failed demo",
    ),
    (65, "stored data is damaged"),
    (78, "invalid configuration"),
    (126, "`run` and `elect`: the command cannot be executed"),
    (127, "`run` and `elect`: the command was not found"),
    (128, "`run`: 128 + n if signal n ended the command; otherwise `run` exits with the command's own code"),
];

fn write_command(command: &mut Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end())
        .expect("writing to a string cannot fail");
    for subcommand in command.get_subcommands_mut().filter(|command| is_listed(command)) {
        write_command(subcommand, page);
    }
}

fn is_listed(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

#[test]
fn the_cli_reference_matches_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, page()).expect("the page is writable");
    }
    let written = std::fs::read_to_string(&path).expect("the page exists");
    let hint = "docs/reference/cli.md does not match --help; run this test with LEASEHOLD_BLESS=1 and review the diff";
    assert!(written == page(), "{hint}");
}

#[test]
fn every_command_has_an_example_and_every_option_has_help() {
    fn check(command: &Command, count: &mut usize) {
        let name = command.get_name();
        let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(example.contains(&format!("leasehold {}", if *count == 0 { "serve" } else { "" })), "{name}");
        *count += 1;
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some_and(|help| !help.to_string().is_empty()), "{name}: {}", arg.get_id());
        }
        command.get_subcommands().for_each(|subcommand| check(subcommand, count));
    }
    let mut count = 0;
    check(&crate::Args::command(), &mut count);
    assert!(count > 20, "only {count} commands were checked");
}

#[test]
fn every_setting_of_a_server_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let settings = ServeSettings::resolve(&SettingsArgs::default(), None).expect("the defaults are valid").entries();
    assert_eq!(rows, settings.iter().map(|(key, _)| *key).collect::<Vec<_>>());
    let root = crate::Args::command();
    let serve = root.find_subcommand("serve").expect("serve is a command");
    // Issuers are tables of the file only.
    for key in rows.into_iter().filter(|key| *key != "jwt") {
        let flag = key.replace('_', "-");
        assert!(serve.get_arguments().any(|arg| arg.get_long() == Some(&flag)), "--{flag} is not a flag of serve");
    }
}
