//! The page `docs/cli.md` is what the commands say about themselves.

use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory};

const HEAD: &str = "\
# The command line

One binary, `leasehold`: `serve` runs a server ([how it is set up](configuration.md)), the other commands ask one. This page is what `--help` says, and a test
compares the two.

- `--addr HOST:PORT[,HOST:PORT...]` or `LEASEHOLD_ADDR` names the servers. The next one is asked when one cannot be
  reached, and a hint to the leader is followed.
- `--json` prints one JSON document for each answer (`watch`: one line for each event), with the field names of the HTTP
  interface. Token numbers are texts. What looks at leases tells numbers only: a token is had by holding.
- A token is passed with `--token TEXT`, with `--token -` on standard input, or in `LEASEHOLD_TOKEN`.
- A duration is a whole number with its unit: `1500ms`, `10s`, `5m`, `1h`, `7d`.
- A failure is one line on standard error, `leasehold: CODE{what it carries}: message; next step`, or a JSON problem with
  `--json`. The codes and what the command line ends with stand in [errors.md](errors.md):
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| exit | means |\n|---|---|\n");
    for (exit, means) in EXITS {
        writeln!(page, "| {exit} | {means} |").expect("a string takes all");
    }
    let mut root = crate::Args::command().term_width(100);
    root.build();
    for command in root.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        tell(command, &mut page);
    }
    page
}

const EXITS: [(u8, &str); 14] = [
    (0, "done"),
    (1, "another error"),
    (2, "wrong usage, or a field that holds what it may not"),
    (3, "the lease is lost, or the token stale"),
    (4, "busy, or not granted within the wait"),
    (5, "no server answers, or the outcome is unknown"),
    (6, "not allowed"),
    (7, "a limit is reached"),
    (8, "a question of a charter is left open, or a demonstration failed"),
    (65, "stored data is damaged"),
    (78, "the configuration says what it may not"),
    (126, "`run` and `elect`: the command was found and cannot be run"),
    (127, "`run` and `elect`: the command was not found"),
    (128, "`run`: 128 + n, signal n ended the command; otherwise `run` ends with the command's own code"),
];

fn tell(command: &mut Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()).expect("a string takes all");
    for below in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        tell(below, page);
    }
}

#[test]
fn the_page_is_what_the_commands_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("LEASEHOLD_WRITE").is_some() {
        std::fs::write(&path, page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("the page is there");
    let hint = "docs/cli.md is not what --help says; run this test with LEASEHOLD_WRITE=1 and look at the difference";
    assert!(written == page(), "{hint}");
}

#[test]
fn every_command_shows_an_example_and_every_option_says_what_it_does() {
    fn look(command: &Command, seen: &mut usize) {
        let name = command.get_name();
        let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(example.contains(&format!("leasehold {}", if *seen == 0 { "serve" } else { "" })), "{name}");
        *seen += 1;
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some_and(|help| !help.to_string().is_empty()), "{name}: {}", arg.get_id());
        }
        command.get_subcommands().for_each(|below| look(below, seen));
    }
    let mut seen = 0;
    look(&crate::Args::command(), &mut seen);
    assert!(seen > 20, "only {seen} commands were looked at");
}

#[test]
fn every_setting_of_a_server_stands_on_its_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = std::fs::read_to_string(&path).expect("the page is there");
    let rows: Vec<_> = written.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let told = crate::serve::settings::Chosen::from(&Default::default(), None).expect("nothing is given").told();
    assert_eq!(rows, told.iter().map(|(key, _)| *key).collect::<Vec<_>>());
    let root = crate::Args::command();
    let serve = root.find_subcommand("serve").expect("it is a command");
    for key in rows {
        let flag = key.replace('_', "-");
        assert!(serve.get_arguments().any(|arg| arg.get_long() == Some(&flag)), "--{flag} is no flag");
    }
}
