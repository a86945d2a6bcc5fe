//! Completion scripts: commands and options from the parser, names from `leasehold complete-names`.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::command_line::COMPLETED_ARGS;

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let mut root = visible(crate::Args::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "leasehold", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    match shell {
        Shell::Bash => script.replace("complete -F _leasehold -o", "complete -F _leasehold_names -o").replacen(
            BASH_END,
            &format!("{BASH_NAMES}\n{BASH_END}"),
            1,
        ),
        Shell::Zsh => {
            let script = script.replacen("\n_leasehold() {", "\n_leasehold_options() {", 1);
            script.replacen(ZSH_END, &format!("{ZSH_NAMES}\n{ZSH_END}"), 1)
        }
        Shell::Fish => format!("{script}\n{FISH_NAMES}\n{}", fish_arguments(&root)).trim_end().to_owned(),
        _ => script,
    }
}

/// The command without its hidden subcommands, which the generators would offer.
fn visible(root: Command) -> Command {
    let subcommands = root.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("leasehold")
        .version(env!("CARGO_PKG_VERSION"))
        .args(root.get_arguments().cloned())
        .subcommands(subcommands)
}

/// The first line after the functions in the script for bash.
const BASH_END: &str = "if [[ \"${BASH_VERSINFO[0]}\" -eq 4 && \"${BASH_VERSINFO[1]}\" -ge 4";

/// Names first; where there are none, options and files.
const BASH_NAMES: &str = r#"_leasehold_names() {
    mapfile -t COMPREPLY < <("${1/#\~/$HOME}" complete-names "--line=${COMP_LINE:0:COMP_POINT}" "--word=$2" 2>/dev/null)
    if ((${#COMPREPLY[@]} == 0)); then
        _leasehold "$@"
    fi
}
"#;

/// The last lines of the script for zsh.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_leasehold\" ]; then";

const ZSH_NAMES: &str = r#"_leasehold() {
    local -a names
    names=("${(@f)$("${(Q)words[1]}" complete-names -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    names=("${(@)names:#}")
    if (( ${#names} )); then
        compadd -a names
    else
        _leasehold_options "$@"
    fi
}
"#;

const FISH_NAMES: &str = r#"
function __leasehold_names
    set -l words (commandline -opc)
    $words[1] complete-names --values -- $words (commandline -ct) 2>/dev/null
end
"#;

/// One line for each argument that names complete.
fn fish_arguments(root: &Command) -> String {
    let mut lines = BTreeSet::new();
    for (path, id, _) in COMPLETED_ARGS {
        let words: Vec<_> = path.split(' ').filter(|word| !word.is_empty()).collect();
        let Some(command) = words.iter().try_fold(root, |at, word| at.find_subcommand(word)) else { continue };
        let Some(arg) = command.get_arguments().find(|arg| arg.get_id() == id) else { continue };
        let option = arg.get_long().map(|long| format!(" -l {long} -r")).unwrap_or_default();
        let mut condition =
            words.first().map_or_else(String::new, |word| format!("__fish_leasehold_using_subcommand {word}"));
        for word in words.iter().skip(1) {
            write!(condition, "; and __fish_seen_subcommand_from {word}").expect("writing to a string cannot fail");
        }
        let condition = if condition.is_empty() { condition } else { format!(" -n \"{condition}\"") };
        lines.insert(format!("complete -c leasehold{condition}{option} -f -a \"(__leasehold_names)\""));
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_asks_for_names() {
        let bash = script(Shell::Bash);
        assert!(
            bash.contains("\n_leasehold_names() {") && bash.contains("\n_leasehold() {")
                || bash.starts_with("_leasehold() {"),
            "{bash}"
        );
        assert_eq!(bash.matches("complete -F _leasehold_names ").count(), 2);
        assert!(!bash.contains("complete -F _leasehold -o"));
        let zsh = script(Shell::Zsh);
        assert!(
            zsh.contains("\n_leasehold_options() {") && zsh.contains("\n_leasehold() {\n    local -a names"),
            "{zsh}"
        );
        let fish = script(Shell::Fish);
        assert!(fish.contains("using_subcommand show\" -f -a \"(__leasehold_names)\""), "{fish}");
        assert!(fish.contains("using_subcommand ls\" -l holder -r -f -a"), "{fish}");
        assert!(fish.contains("complete -c leasehold -l as -r -f -a"), "{fish}");
    }

    #[test]
    fn hidden_commands_are_not_completed() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let lines: Vec<_> =
                script(shell).lines().filter(|line| line.contains("complete-names")).map(str::to_owned).collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
        }
    }
}
