//! Runs the code blocks of the documentation: shell blocks against a server, charters through `charter check`, JSON through a parser.
//!
//! Rust blocks are copies of code in other tests, which run it: `RUN_IN` names them. Blocks marked `sh postgres` run in the tests of
//! the PostgreSQL fence. A block marked `text` is not run: it is output, or needs a second terminal.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Server, leasehold, run};

/// Languages a block may name, and what runs it.
const LANGUAGES: [(&str, &str); 11] = [
    ("", "a diagram"),
    ("text", "not run"),
    ("sh", "this file"),
    ("sh postgres", "crates/cli/tests/fences/pages.rs"),
    ("sh secure", "crates/cli/tests/secure_server.rs"),
    ("sql", "crates/fence/tests"),
    ("rust", "the tests in RUN_IN"),
    ("toml", "this file"),
    ("json", "this file"),
    ("python", "crates/cli/tests/run_fences/drivers.rs"),
    ("nginx", "crates/cli/tests/dashboard_in_browser/actions.rs"),
];

/// Tests that contain the Rust blocks of the pages, each in one function.
const RUN_IN: [&str; 3] =
    ["crates/cli/tests/recipes/pages.rs", "crates/cli/tests/fences/pages.rs", "crates/fence/tests/pages/main.rs"];

/// Literals of the pages, and what a test writes instead of each.
const LITERALS: [(&str, &str); 2] = [("\"127.0.0.1:7421\"", "&server.address"), ("\"ledger.db\"", "&ledger.path")];

/// One fenced code block.
struct Block {
    language: String,
    text: String,
    line: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page below `docs/`, without the generated reference of the command line and the decision records.
fn pages() -> Vec<(String, Vec<Block>)> {
    let mut folders = vec![root().join("docs")];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder exists").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root()).expect("it is below the root").to_string_lossy().into_owned();
            if path.is_dir() && !name.ends_with("decisions") {
                folders.push(path);
            } else if name.ends_with(".md") && !name.ends_with("reference/cli.md") {
                pages.push((name, blocks(&fs::read_to_string(&path).expect("the page is UTF-8"))));
            }
        }
    }
    pages.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(pages.len() > 50, "only {} pages were found", pages.len());
    pages
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<usize> = None;
    for (number, line) in page.lines().enumerate() {
        let text = line.trim_start();
        match (open, text.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(line.len() - text.len());
                blocks.push(Block { language: language.to_owned(), text: String::new(), line: number + 1 });
            }
            (Some(_), Some("")) => open = None,
            (Some(indent), _) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line.get(indent..).unwrap_or(""));
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a code block does not end");
    blocks
}

#[test]
fn every_block_names_a_language_that_a_test_runs() {
    for (page, blocks) in pages() {
        for Block { language, line, .. } in blocks {
            let known = LANGUAGES.iter().any(|(known, _)| *known == language);
            assert!(known, "{page}:{line}: {language:?} is none of the languages that are run");
        }
    }
}

#[test]
fn every_shell_block_runs() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("the binary is in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut ran = 0;
    for (page, blocks) in pages() {
        let script: String =
            blocks.iter().filter(|block| block.language == "sh").map(|block| block.text.as_str()).collect();
        if script.is_empty() {
            continue;
        }
        let server = Server::start();
        // Every page finds a lease to look at, a charter file, and a folder for backups.
        server.acquire("jobs/example", "worker-0");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let here = folder.path().to_str().expect("the folder's name is UTF-8");
        for charter in blocks.iter().filter(|block| block.language == "toml" && block.text.starts_with("prefix")) {
            fs::write(folder.path().join("settle.toml"), &charter.text).expect("the folder is writable");
        }
        server.run(&["backup", &format!("{here}/monday.backup")]).ok();
        let script = script.replace("localhost:7421", &server.address).replace("/backups", here);
        let mut shell = Command::new("sh");
        shell.args(["-euc", &script]).current_dir(folder.path());
        shell.env("PATH", &path).env("LEASEHOLD_ADDR", &server.address);
        let result = run(&mut shell);
        // A server in the foreground is started with a time limit by the page's own test environment.
        assert_eq!(result.exit, 0, "{page}: {script}\n{result:?}");
        ran += 1;
    }
    assert!(ran >= 10, "only {ran} pages have shell blocks");
}

/// Lines without indentation and alignment.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty())
}

/// Whether one function of `source` contains all lines of the block in their order. Between them a test may check results.
fn is_run_by(block: &str, source: &str) -> bool {
    let block = LITERALS.iter().fold(block.to_owned(), |block, (literal, own)| block.replace(literal, own));
    source.split("\n}\n").any(|function| {
        let mut own = lines(function);
        lines(&block).all(|line| own.any(|other| other == line))
    })
}

#[test]
fn every_rust_block_is_run_by_a_test() {
    let sources = RUN_IN.map(|path| fs::read_to_string(root().join(path)).expect("the test exists"));
    let readme = ("README.md".to_owned(), blocks(&fs::read_to_string(root().join("README.md")).expect("it exists")));
    let (mut found, mut missing) = (0, Vec::new());
    for (page, blocks) in pages().into_iter().chain([readme]) {
        for block in blocks.iter().filter(|block| block.language == "rust") {
            found += 1;
            if !sources.iter().any(|source| is_run_by(&block.text, source)) {
                missing.push(format!("{page}:{}", block.line));
            }
        }
    }
    assert!(missing.is_empty(), "no test in {RUN_IN:?} contains the Rust block of {}", missing.join(", "));
    assert!(found >= 20, "only {found} Rust blocks were found");
}

#[test]
fn a_rust_block_that_no_test_contains_is_found() {
    let source = "fn one() {\n    let a = 1;   // first\n    assert_eq!(a, 1);\n    let b = 2;\n}\nfn two() {\n    let c = 3;\n}\n";
    assert!(is_run_by("let a = 1; // first\nlet b = 2;\n", source));
    assert!(!is_run_by("let b = 2;\nlet a = 1; // first\n", source), "another order");
    assert!(!is_run_by("let b = 2;\nlet c = 3;\n", source), "two functions");
}

#[test]
fn every_charter_on_a_page_is_complete() {
    let mut checked = 0;
    for (page, blocks) in pages() {
        for charter in blocks.iter().filter(|block| block.language == "toml" && block.text.starts_with("prefix")) {
            let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
            fs::write(file.path(), &charter.text).expect("the file is writable");
            let result = run(&mut leasehold(&["charter", "check", file.path().to_str().expect("the name is UTF-8")]));
            assert_eq!(result.exit, 0, "{page}:{}: {result:?}", charter.line);
            checked += 1;
        }
    }
    assert!(checked >= 2, "only {checked} charters were found");
}

#[test]
fn every_json_block_parses() {
    for (page, blocks) in pages() {
        for block in blocks.iter().filter(|block| block.language == "json") {
            for line in block.text.lines() {
                let parsed = serde_json::from_str::<serde_json::Value>(line);
                assert!(parsed.is_ok(), "{page}:{}: {parsed:?}", block.line);
            }
        }
    }
}
