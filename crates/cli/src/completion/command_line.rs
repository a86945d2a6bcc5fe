//! Which argument is being written, and what the words before it say about servers and credentials.

use clap::{Arg, Command, CommandFactory, Parser};
use leasehold::Endpoints;

/// What an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A resource with a lease or a waiter.
    Resource,
    /// A prefix of such resources.
    Prefix,
    /// A holder of a lease.
    Holder,
    /// A holder whose leases have ended.
    PastHolder,
    /// A waiter of the resource that the command names.
    Waiter,
    /// A target of the resource that the command names.
    Target,
    /// The prefix of a charter.
    Charter,
    /// A proposal that waits for an approval.
    Proposal,
    /// A profile of the command line.
    Profile,
}

/// The arguments that names complete: command, id of the argument, and what it names.
pub const COMPLETED_ARGS: [(&str, &str, NameKind); 39] = [
    ("", "profile", NameKind::Profile),
    ("acquire", "resource", NameKind::Resource),
    ("acquire", "holder", NameKind::Holder),
    ("approve", "proposal", NameKind::Proposal),
    ("charter remove", "prefix", NameKind::Charter),
    ("charter show", "prefix", NameKind::Charter),
    ("check", "resource", NameKind::Resource),
    ("coverage", "name", NameKind::Resource),
    ("coverage", "forget", NameKind::Target),
    ("elect", "name", NameKind::Resource),
    ("elect", "holder", NameKind::Holder),
    ("fence adopt", "resource", NameKind::Resource),
    ("fence arm", "resource", NameKind::Resource),
    ("fence http", "resource", NameKind::Resource),
    ("fence lost", "resource", NameKind::Resource),
    ("fence protect", "resource", NameKind::Resource),
    ("fence rearm", "resource", NameKind::Resource),
    ("fence seal", "resource", NameKind::Resource),
    ("fence stamp", "resource", NameKind::Resource),
    ("free", "resource", NameKind::Resource),
    ("handoff", "resource", NameKind::Resource),
    ("handoff", "to", NameKind::Waiter),
    ("held-by", "holder", NameKind::Holder),
    ("history", "resource", NameKind::Resource),
    ("ls", "holder", NameKind::Holder),
    ("ls", "prefix", NameKind::Prefix),
    ("ls", "prefix_option", NameKind::Prefix),
    ("proposals cancel", "proposal", NameKind::Proposal),
    ("release", "resource", NameKind::Resource),
    ("renew", "resource", NameKind::Resource),
    ("revoke", "resource", NameKind::Resource),
    ("run", "holder", NameKind::Holder),
    ("run", "name", NameKind::Resource),
    ("show", "resource", NameKind::Resource),
    ("token verify", "name", NameKind::Resource),
    ("trace", "resource", NameKind::Resource),
    ("usage", "holder", NameKind::PastHolder),
    ("waiters", "resource", NameKind::Resource),
    ("watch", "prefix", NameKind::Prefix),
];

/// A word that names complete.
#[derive(Debug, PartialEq, Eq)]
pub struct CompletedWord {
    pub kind: NameKind,
    /// What is written of the name.
    pub typed: String,
    /// The option before the name in the same word, for example `--holder=`.
    pub option: String,
    /// The first argument of the command, which is its resource if it has one.
    pub resource: Option<String>,
    /// Options of every command, before and after the command's name.
    global: Vec<String>,
}

impl CompletedWord {
    /// The servers that the line names, with the credentials that it names.
    pub fn endpoints(&self) -> Option<Endpoints> {
        let words = ["leasehold"].into_iter().chain(self.global.iter().map(String::as_str)).chain(["status"]);
        let mut args = crate::Args::try_parse_from(words).ok()?;
        args.global.apply_profile().ok()?;
        args.global.endpoints().ok()
    }
}

/// The argument that the last word is part of, if a name belongs there.
pub fn completed_word(words: &[String]) -> Option<CompletedWord> {
    let (current, before) = words.split_last()?;
    let mut root = crate::Args::command();
    root.build();
    let mut line = Line { at: &root, path: Vec::new(), positionals: Vec::new(), global: Vec::new(), is_escaped: false };
    let mut open = None;
    for word in before.iter().skip(1) {
        match open.take() {
            Some(option) => line.option_value(option, word),
            None => open = line.word(word),
        }
    }
    let (arg, typed, option) = line.argument(open, current)?;
    let path = line.path.join(" ");
    let is_meant = |(command, id, _): &&(&str, &str, NameKind)| {
        *id == arg.get_id() && (*command == path || arg.is_global_set() && command.is_empty())
    };
    let (_, _, kind) = COMPLETED_ARGS.iter().find(is_meant)?;
    Some(CompletedWord {
        kind: *kind,
        typed: typed.to_owned(),
        option: option.to_owned(),
        resource: line.positionals.first().cloned(),
        global: line.global,
    })
}

/// What was read of a line.
struct Line<'a> {
    at: &'a Command,
    path: Vec<&'a str>,
    positionals: Vec<String>,
    global: Vec<String>,
    /// After `--`, where no option follows.
    is_escaped: bool,
}

impl<'a> Line<'a> {
    /// Reads one word. Returns the option whose value follows.
    fn word(&mut self, word: &str) -> Option<&'a Arg> {
        if self.is_escaped {
            self.positionals.push(word.to_owned());
        } else if word == "--" {
            self.is_escaped = true;
        } else if let Some((arg, value)) = self.option(word) {
            match value {
                Some(value) => self.option_value(arg, value),
                None if takes_next_word(arg) => return Some(arg),
                None => {}
            }
        } else if let Some(command) = self.at.find_subcommand(word).filter(|_| self.positionals.is_empty()) {
            self.at = command;
            self.path.push(command.get_name());
        } else if !word.starts_with('-') || word == "-" {
            self.positionals.push(word.to_owned());
        }
        None
    }

    /// The option of a word, and its value if the word contains it.
    fn option<'w>(&self, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let arg = self.at.get_arguments().find(|arg| arg.get_long() == Some(name))?;
            return Some((arg, value));
        }
        let mut letters = word.strip_prefix('-')?.chars();
        let letter = letters.next()?;
        let arg = self.at.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
        Some((arg, Some(letters.as_str()).filter(|value| !value.is_empty())))
    }

    fn option_value(&mut self, arg: &Arg, value: &str) {
        // Only the addresses and the credentials matter; a wrong value of another option must not stop the completion.
        let names_server = ["addr", "tls_ca", "tls_cert", "tls_key", "bearer_file", "profile"];
        if let Some(long) = arg.get_long().filter(|_| names_server.contains(&arg.get_id().as_str())) {
            self.global.push(format!("--{long}={value}"));
        }
    }

    /// The argument that the last word belongs to, what is written of its value, and the option in the same word.
    fn argument<'w>(&self, open: Option<&'a Arg>, word: &'w str) -> Option<(&'a Arg, &'w str, &'w str)> {
        if let Some(arg) = open {
            return Some((arg, word, ""));
        }
        if !self.is_escaped && word.starts_with('-') {
            let (option, value) = word.split_at(word.find('=')? + 1);
            let (arg, _) = self.option(word).filter(|_| option.starts_with("--"))?;
            return Some((arg, value, option));
        }
        let arg = self.at.get_positionals().nth(self.positionals.len())?;
        Some((arg, word, ""))
    }
}

fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Option<CompletedWord> {
        completed_word(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn kind(line: &str) -> Option<NameKind> {
        completed(line).map(|found| found.kind)
    }

    #[test]
    fn every_completed_argument_exists() {
        let mut root = crate::Args::command();
        root.build();
        for (path, id, _) in COMPLETED_ARGS {
            let found =
                path.split(' ').filter(|word| !word.is_empty()).try_fold(&root, |at, word| at.find_subcommand(word));
            let found = found.and_then(|command| command.get_arguments().find(|arg| arg.get_id() == id));
            assert!(found.is_some(), "{path}: {id}");
        }
    }

    #[test]
    fn every_argument_that_names_a_resource_is_completed() {
        fn check(command: &Command, path: &str) {
            for arg in command.get_arguments() {
                let names = arg.get_value_names().unwrap_or_default();
                let is_resource = arg.get_id() == "resource" || names.iter().any(|name| name == "RESOURCE");
                let is_listed = COMPLETED_ARGS.iter().any(|(of, id, _)| *of == path && *id == arg.get_id());
                assert!(!is_resource || is_listed, "{path}: {} is not completed", arg.get_id());
            }
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                check(sub, format!("{path} {}", sub.get_name()).trim());
            }
        }
        check(&crate::Args::command(), "");
    }

    #[test]
    fn the_argument_at_the_cursor_is_found() {
        assert_eq!(kind("leasehold show jo"), Some(NameKind::Resource));
        assert_eq!(kind("leasehold show "), Some(NameKind::Resource));
        assert_eq!(kind("leasehold show a "), None, "there is no second argument");
        assert_eq!(kind("leasehold ls --holder w"), Some(NameKind::Holder));
        assert_eq!(kind("leasehold ls --holder=w"), Some(NameKind::Holder));
        assert_eq!(kind("leasehold ls --limit 3 te"), Some(NameKind::Prefix));
        assert_eq!(kind("leasehold ls --standby te"), Some(NameKind::Prefix), "its value needs =");
        assert_eq!(kind("leasehold -o json show j"), Some(NameKind::Resource));
        assert_eq!(kind("leasehold --json show -oyaml j"), Some(NameKind::Resource));
        assert_eq!(kind("leasehold proposals cancel 1"), Some(NameKind::Proposal));
        assert_eq!(kind("leasehold --as ad"), Some(NameKind::Profile));
        assert_eq!(kind("leasehold ls --as ad"), Some(NameKind::Profile));
        assert_eq!(kind("leasehold run jobs/a -- cat jo"), None, "the command's own arguments");
        assert_eq!(
            (kind("leasehold sh"), kind("leasehold show --j"), kind("leasehold nothing x"), kind("leasehold")),
            (None, None, None, None)
        );
    }

    #[test]
    fn servers_and_the_resource_come_from_the_words_before() {
        let found = completed("leasehold --addr a:1 coverage jobs/a --timeout 1x --forget=led").expect("a target");
        assert_eq!((found.kind, found.typed.as_str(), found.option.as_str()), (NameKind::Target, "led", "--forget="));
        assert_eq!(found.resource.as_deref(), Some("jobs/a"));
        assert_eq!(found.global, ["--addr=a:1"]);
        let addresses =
            found.endpoints().expect("an address").addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses, ["a:1"]);
    }
}
