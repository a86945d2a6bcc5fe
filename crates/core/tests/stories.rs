//! Runs the story files against the grantor, and checks the index of stories.

mod support;

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use support::{Story, run, stories};

/// The index of stories.
const INDEX: &str = include_str!("../../../docs/internals/stories.md");

/// Tests of the client's recipes, which the index also refers to: holders and issuers are not part of the grantor.
const CLIENT: &[&str] = &[
    include_str!("../../client/src/recipes/credential/tests.rs"),
    include_str!("../../client/src/recipes/delivery/tests.rs"),
    include_str!("../../client/src/recipes/leader/tests.rs"),
    include_str!("../../client/src/recipes/reservation/tests.rs"),
    include_str!("../../client/src/recipes/shard/tests.rs"),
];

/// The promises that the core alone must demonstrate in a story.
const PROMISES: &[&str] = &[
    "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T9", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11",
    "L12", "W1", "W2", "W3", "W4", "D1", "D2", "D3", "P1", "P2", "C1", "C2", "C3", "C4", "Q1", "Q2", "Q3", "Q4", "Q5",
    "H1", "H2", "H3", "S1", "S2", "R1", "R2", "G1", "A4", "A5", "A6", "A9",
];

/// Every error code and end that the core can return.
const ANSWERS: &[&str] = &[
    "INVALID_ARGUMENT",
    "PERMISSION_DENIED",
    "TOKEN_INVALID",
    "TOKEN_IMPLAUSIBLE",
    "WRONG_CLUSTER",
    "NOT_FOUND lease|session|wait|charter|message|key|handoff|hold|quarantine",
    "CONFLICT request|message|key|intent|capacity|handoff|floor|hold|max_ttl",
    "LEASE_LOST expired released|ttl|session|stalled|max_hold|handed_off|restored",
    "LEASE_LOST revoked operator",
    "expired released|ttl|session|stalled|max_hold|handed_off|restored",
    "revoked operator|deadlock|priority|policy",
    "NOT_CURRENT unknown|not_holder|superseded",
    "STALE_TOKEN",
    "BUSY",
    "DEADLOCK",
    "ACCESS_CHANGE",
    "RESOURCE_EXHAUSTED",
    "TOKEN_EXHAUSTED",
    "TIMEOUT",
    "CANCELLED",
    "REQUEST_TOO_OLD",
    "QUARANTINED",
    "ROLLED_BACK",
    "HELD_FOR_OPERATOR",
    "STORAGE_FULL",
];

#[test]
fn every_story_passes() {
    let failure = |story: &Story| {
        let result = catch_unwind(|| run(story.text)).unwrap_or_else(|_| Err("the core panicked".to_owned()));
        result.err().map(|error| format!("{}, {}\n    {error}", story.file, story.title))
    };
    let wrong: Vec<String> = stories().iter().filter_map(failure).collect();
    assert!(wrong.is_empty(), "{} stories failed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_story_fails_with_the_line() {
    let table = [
        ("acquire a by w ttl 5s -> BUSY", "line 1", "expected `BUSY`, got `granted"),
        ("acquire a by w ttl 5s -> granted W1\nwait 5s\nstate of W1 -> held", "line 3", "got `expired ttl`"),
        ("acquire a by w ttl 5s -> granted W1\nacquire b by w ttl 5s -> granted W2 below W1", "line 2", "not below"),
        ("acquire a by w ttl 5s -> granted W1, for 4s", "line 1", "for 5s"),
        ("acquire a by w ttl 5s -> granted W1\nrelease W1", "line 2", "got `done`"),
        ("acquire a by w ttl 5s and quickly -> granted W1", "line 1", "and quickly"),
        ("renew W1 -> current W1", "line 1", "nothing is called W1"),
        ("dance -> done", "line 1", "unknown"),
    ];
    for (text, line, message) in table {
        let error = run(text).expect_err(text);
        assert!(error.contains(line) && error.contains(message), "{text}: {error}");
    }
}

#[test]
fn every_story_file_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder of stories exists")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain names"))
        .filter(|name| name.ends_with(".txt"))
        .collect();
    let played: BTreeSet<String> = stories().iter().map(|story| story.file.to_owned()).collect();
    assert_eq!(files, played);
}

#[test]
fn every_title_is_a_unique_sentence() {
    let mut seen = BTreeSet::new();
    for story in stories() {
        assert!(story.title.ends_with('.') && !story.title.contains('|'), "{}", story.title);
        assert!(seen.insert(story.title), "twice: {}", story.title);
    }
}

#[test]
fn every_promise_of_the_core_has_a_story() {
    let covered: BTreeSet<&str> = stories().iter().flat_map(|story| story.promises.split(' ')).collect();
    let missing: Vec<&&str> = PROMISES.iter().filter(|promise| !covered.contains(**promise)).collect();
    assert!(missing.is_empty(), "no story about {missing:?}");
}

#[test]
fn every_answer_of_the_core_is_expected_in_a_story() {
    let all = stories();
    let expected: Vec<String> = all
        .iter()
        .flat_map(|story| story.text.lines())
        .filter_map(|line| line.split_once("->"))
        .map(|(_, expected)| expected.trim().to_owned())
        .collect();
    for answer in ANSWERS {
        let (head, last) = answer.rsplit_once(' ').map_or(("", *answer), |(head, last)| (head, last));
        for detail in last.split('|') {
            let wanted = format!("{head} {detail}").trim_start().to_owned();
            let found = expected.iter().any(|line| line.starts_with(&wanted) || line.ends_with(&wanted));
            assert!(found, "no story expects {wanted}");
        }
    }
}

/// A row of the index: its subject, its stories, and the owner if there is no story.
struct Row {
    about: &'static str,
    stories: Vec<&'static str>,
    owed: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = INDEX.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [about, what, titles, owed] = cells[..] else { panic!("four cells: {line}") };
            assert!(!about.is_empty() && !what.is_empty(), "{line}");
            Row {
                about,
                stories: titles.split("<br>").map(str::trim).filter(|title| !title.is_empty()).collect(),
                owed,
            }
        })
        .collect()
}

#[test]
fn every_row_of_the_index_names_an_existing_story_or_an_owner() {
    let titles: BTreeSet<&str> = stories().iter().map(|story| story.title).collect();
    for row in rows() {
        assert!(!row.stories.is_empty() || !row.owed.is_empty(), "no story and no owner for {}", row.about);
        for title in row.stories {
            match title.strip_prefix("client: ") {
                Some(test) => {
                    let header = test_header(test);
                    assert!(CLIENT.iter().any(|tests| tests.contains(&header)), "the client has no such test: {test}");
                }
                None => assert!(titles.contains(title), "no such story: {title}"),
            }
        }
        for owed in row.owed.split(", ").filter(|owed| !owed.is_empty()) {
            assert!(["client", "fences", "etcd", "security", "simulator"].contains(&owed), "unknown owner {owed}");
        }
    }
}

/// The function header of a test that is named after a sentence.
fn test_header(sentence: &str) -> String {
    let words = sentence.trim_end_matches('.').to_lowercase().replace([',', '\''], "").replace(' ', "_");
    format!("#[test]\nfn {words}() {{")
}

#[test]
fn every_story_is_in_the_index() {
    let indexed: BTreeSet<&str> = rows().into_iter().flat_map(|row| row.stories).collect();
    let missing: Vec<&str> =
        stories().iter().map(|story| story.title).filter(|title| !indexed.contains(title)).collect();
    assert!(missing.is_empty(), "not in docs/internals/stories.md:\n{}", missing.join("\n"));
}

#[test]
fn every_configuration_lists_all_of_its_failures() {
    let count = |name: &str| rows().iter().filter(|row| row.about == name).count();
    let table = [
        ("lock", 3),
        ("leader", 3),
        ("delivery", 3),
        ("shard", 3),
        ("session", 3),
        ("reservation", 4),
        ("cache", 3),
        ("credential", 2),
        ("token", 3),
        ("renewal", 3),
        ("handoff", 4),
        ("lock service", 11),
        ("renewal refused", 4),
        ("three states", 8),
    ];
    for (name, failures) in table {
        assert_eq!(count(name), failures, "rows about {name}");
    }
}
