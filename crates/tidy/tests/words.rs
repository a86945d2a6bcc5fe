//! The word list of `crates/tidy/words.txt`, over code, strings and pages.
//!
//! Names count too: `told_to_stop` and `ToldToStop` contain the word "told". A short allow-list names the places where a word is
//! meant literally.

mod source;

use std::collections::BTreeMap;

use source::{files, read, root};

/// Where a word may stay, and why.
const ALLOWED: [(&str, &str, &str); 8] = [
    ("crates/tidy/words.txt", "", "the list itself"),
    ("crates/tidy/tests/words.rs", "", "the tests of the list"),
    ("crates/fence/tests/postgres/version1.sql", "", "the schema of version 1, as it was installed"),
    ("crates/fence/tests/sqlite/version1.sql", "", "the schema of version 1, as it was installed"),
    ("crates/core/tests/support/story_events.rs", "told", "a command of the story format"),
    ("docs/internals/stories.md", "told", "a command of the story format"),
    ("crates/cli/tests/cluster/incompatible_etcd.rs", "somebody", "a value in etcd"),
    ("crates/tidy/tests/type_names.rs", "", "the list of names that are not nouns"),
];

/// Endings of the files that people read.
const ENDINGS: [&str; 9] = [".rs", ".md", ".proto", ".sql", ".lua", ".toml", ".service", ".py", ".sh"];

/// Folders and files at the root that are checked.
const ROOTS: [&str; 12] = [
    "crates",
    "clients/conformance",
    "clients/python",
    "docs",
    "examples",
    "deploy",
    ".ci",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "test",
];

/// The rows of the list: phrase and replacement.
fn list() -> Vec<(Vec<String>, String)> {
    let text = read(&root().join("crates/tidy/words.txt"));
    let rows = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<_> = rows
        .map(|row| row.split_once(": ").unwrap_or_else(|| panic!("words.txt: no replacement in {row:?}")))
        .map(|(phrase, instead)| (phrase.split(' ').map(str::to_lowercase).collect(), instead.to_owned()))
        .collect();
    assert!(rows.len() >= 30, "the list has at least thirty rows");
    rows
}

/// The words of a line in lower case: split at everything that is not a letter, and inside `CamelCase`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("there is always one word").extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// The phrases of the list that occur in a line.
fn found_in<'a>(line: &str, list: &'a [(Vec<String>, String)]) -> Vec<(String, &'a str)> {
    let words = words(line);
    let rows = list.iter().filter(|(phrase, _)| words.windows(phrase.len()).any(|window| window == phrase.as_slice()));
    rows.map(|(phrase, instead)| (phrase.join(" "), instead.as_str())).collect()
}

fn is_allowed(file: &str, phrase: &str) -> bool {
    ALLOWED.iter().any(|(path, word, _)| file.starts_with(path) && (word.is_empty() || *word == phrase))
}

#[test]
fn no_word_of_the_list_is_used() {
    let list = list();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut checked = 0;
    for start in ROOTS {
        let start = root().join(start);
        let paths = if start.is_dir() { files(&start, &ENDINGS) } else { vec![start] };
        for path in paths {
            let name = path.strip_prefix(root()).expect("the file is in the workspace").to_string_lossy().into_owned();
            checked += 1;
            for (number, line) in read(&path).lines().enumerate() {
                for (phrase, instead) in found_in(line, &list) {
                    if !is_allowed(&name, &phrase) {
                        let row = format!("{name}:{}: {phrase:?}; write {instead}", number + 1);
                        found.entry(phrase).or_default().push(row);
                    }
                }
            }
        }
    }
    assert!(checked > 500, "only {checked} files were checked");
    let count: usize = found.values().map(Vec::len).sum();
    let rows: Vec<_> = found.into_values().flat_map(|rows| rows.into_iter().take(20)).collect();
    assert!(
        rows.is_empty(),
        "{count} uses of words from crates/tidy/words.txt, at most 20 of each shown:\n{}",
        rows.join("\n")
    );
}

#[test]
fn words_are_found_in_prose_and_in_names() {
    let list =
        [(vec!["told".to_owned()], "reported".to_owned()), (vec!["for".into(), "ever".into()], "forever".into())];
    let found = |line: &str| found_in(line, &list).into_iter().map(|(phrase, _)| phrase).collect::<Vec<_>>();
    assert_eq!(found("// It is Told what happened."), ["told"]);
    assert_eq!(found("let was_told = 1;"), ["told"]);
    assert_eq!(found("struct NotTold;"), ["told"]);
    assert_eq!(found("waits for ever"), ["for ever"]);
    assert_eq!(found("forever untold stories"), Vec::<String>::new());
}

#[test]
fn every_allowed_place_exists() {
    for (path, _, reason) in ALLOWED {
        assert!(root().join(path).exists() && !reason.is_empty(), "{path} is allowed and does not exist");
    }
}
