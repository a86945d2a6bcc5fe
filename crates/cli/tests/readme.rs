//! Tests that the commands in README.md, the docs, and the files in `deploy/` work.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{CommandRun, Server, leasehold, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The shell blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Runs a block in a shell with the binary in `PATH`, against a test server.
fn run_block(server: &Server, block: &str) -> CommandRun {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("the binary is in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &block.replace("localhost:7421", &server.address)]);
    shell.env("PATH", format!("{}:{path}", binary.display())).env("LEASEHOLD_ADDR", &server.address);
    run(&mut shell)
}

#[test]
fn the_readme_starts_a_server() {
    let first = blocks("README.md").into_iter().next().expect("a first block");
    let serve = first.lines().next().and_then(|line| line.split('#').next()).expect("a command").trim();
    assert_eq!(serve, "cargo run --release -- serve", "its arguments are tested below");
    let words: Vec<_> = serve.rsplit(" -- ").next().expect("arguments").split(' ').collect();
    assert_eq!(words, ["serve"]);
    let help = run(&mut leasehold(&["serve", "--help"])).ok().out;
    assert!(help.contains("[default: 127.0.0.1:7421]") && help.contains("./leasehold-data"), "{help}");
}

#[test]
fn the_readme_acquires_renews_and_releases_with_curl() {
    let server = Server::start();
    let block = blocks("README.md").into_iter().find(|block| block.contains("curl")).expect("a block with curl");
    let result = run_block(&server, &block).ok();
    let responses: Vec<Value> = serde_json::Deserializer::from_str(&result.out)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("the responses are JSON");
    let [renewed, released] = &responses[..] else { panic!("expected two responses: {result:?}") };
    assert_eq!((&renewed["state"], &renewed["resource"]), (&"held".into(), &"jobs/settle".into()), "{result:?}");
    assert_eq!(released["done"], true, "{result:?}");
    let history = server.json(&["history", "jobs/settle"]);
    assert_eq!(history["entries"].as_array().map(Vec::len), Some(2), "granted and ended: {history}");
}

#[test]
fn the_readme_acquires_renews_and_releases_with_the_binary() {
    let server = Server::start();
    let begins = |block: &String| block.starts_with("TOKEN=$(leasehold acquire");
    let block = blocks("README.md").into_iter().find(begins).expect("a block with the binary");
    let result = run_block(&server, &block).ok();
    for text in ["worker-1", "released jobs/settle"] {
        assert!(result.out.contains(text), "{text}: {result:?}");
    }
}

#[test]
fn the_readme_runs_a_command_under_a_lease() {
    let server = Server::start();
    let block =
        blocks("README.md").into_iter().find(|block| block.contains("leasehold run")).expect("a block that runs");
    let result = run_block(&server, &block).ok();
    let number = result.out.trim().strip_prefix("running with token number ").unwrap_or_else(|| panic!("{result:?}"));
    assert!(number.parse::<u64>().is_ok_and(|number| number > 0), "{result:?}");
    let history = server.json(&["history", "jobs/nightly"]);
    assert!(history.to_string().contains(number), "{history}");
}

/// Languages of the clients: the test that runs the README's block, and how that test writes the address of the server.
const SNIPPETS: [(&str, &str, &str); 4] = [
    ("python", "clients/python/tests/test_readme.py", "server.address"),
    ("ts", "clients/typescript/test/project-readme.test.ts", "server.address"),
    ("go", "clients/go/pgxfence/readme_test.go", "server.Addr"),
    ("java", "clients/java/jdbc/src/test/java/io/github/leasehold/jdbc/ProjectReadmeTest.java", "server.address()"),
];

/// Lines without indentation.
fn plain_lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// Whether a source contains the lines of a block, one after the other.
fn contains_lines(source: &str, block: &str) -> bool {
    let (source, block) = (plain_lines(source), plain_lines(block));
    !block.is_empty() && source.windows(block.len()).any(|lines| lines == block)
}

#[test]
fn the_readmes_snippet_of_each_language_is_run_by_a_test_of_its_client() {
    let page = read("README.md");
    for (language, test, address) in SNIPPETS {
        let blocks: Vec<_> = page.split(&format!("```{language}\n")).skip(1).collect();
        assert_eq!(blocks.len(), 1, "{language}");
        let block = blocks[0].split("```").next().expect("it ends").replace("\"127.0.0.1:7421\"", address);
        assert!(contains_lines(&read(test), &block), "{test} does not contain the snippet of README.md:\n{block}");
    }
    assert!(contains_lines("a\n  b\n\nc\n", "b\nc"));
    assert!(!contains_lines("a\nb\nx\nc\n", "b\nc") && !contains_lines("a", ""));
}

#[test]
fn the_systemd_unit_and_its_configuration_file_are_valid() {
    let unit = read("deploy/leasehold.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let words: Vec<_> = start.split(' ').collect();
    assert_eq!(words[1..], ["serve", "--config", "/etc/leasehold/leasehold.toml"]);
    assert!(unit.contains("\nType=notify\n"), "the server notifies when it is ready");
    let settings = root().join("deploy/leasehold.toml");
    let checked =
        run(&mut leasehold(&["config", "check", settings.to_str().expect("a UTF-8 path"), "--json"])).ok().json();
    assert_eq!(checked["data"], "/var/lib/leasehold");
    assert!(unit.contains("\nStateDirectory=leasehold\n"), "systemd creates that directory");
    // The settings in comments are valid too.
    let all: String = read("deploy/leasehold.toml")
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line).to_owned() + "\n")
        .collect();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("all.toml");
    // With files like those that the comments name.
    let created = folder.path().join("created");
    let created = created.to_str().expect("a UTF-8 path");
    run(leasehold(&["init", created]).env("XDG_CONFIG_HOME", folder.path())).ok();
    let all = all.replace("/etc/leasehold/clients.pem", "/etc/leasehold/ca.pem").replace("/etc/leasehold", created);
    fs::write(&path, all).expect("the directory exists");
    let checked = run(&mut leasehold(&["config", "check", path.to_str().expect("a UTF-8 path"), "--json"])).ok().json();
    assert_eq!(checked["audit_max_age"], "90d");
}

/// Names of the client's examples, with the features that each requires.
fn examples() -> Vec<(String, Vec<String>)> {
    let manifest: toml::Table = read("crates/client/Cargo.toml").parse().expect("a manifest");
    assert_eq!(manifest["package"]["name"].as_str(), Some("leasehold"), "the commands below name the package");
    let declared = manifest["example"].as_array().expect("an array");
    let needs = |name: &str| {
        let of = declared.iter().find(|example| example["name"].as_str() == Some(name));
        let features = of.and_then(|example| example.get("required-features")?.as_array());
        features.into_iter().flatten().filter_map(|feature| Some(feature.as_str()?.to_owned())).collect()
    };
    let files = fs::read_dir(root().join("crates/client/examples")).expect("the examples exist").flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
    names.map(|name| (name.clone(), needs(&name))).collect()
}

/// The command that runs an example from the root, without its arguments.
fn cargo_run(name: &str, features: &[String]) -> String {
    let features = if features.is_empty() { String::new() } else { format!("--features {} ", features.join(",")) };
    format!("`cargo run -p leasehold {features}--example {name}")
}

#[test]
fn every_recipe_names_an_existing_example_and_the_command_to_run_it() {
    let pages = fs::read_dir(root().join("docs/how-to/recipes")).expect("the pages exist").flatten();
    let page: String = pages.map(|page| fs::read_to_string(page.path()).expect("the page is UTF-8")).collect();
    let programs: Vec<&str> = page.lines().filter(|line| line.starts_with("Program: ")).collect();
    let examples = examples();
    assert_eq!(programs.len(), page.matches("`cargo run").count(), "every command is in a program line");
    for line in &programs {
        let is_one = |(name, features): &(String, Vec<String>)| {
            let wanted = cargo_run(name, features);
            line.contains(&format!("{wanted} ")) || line.contains(&format!("{wanted}`"))
        };
        assert!(examples.iter().any(is_one), "{line}");
    }
    for (name, features) in &examples {
        let head = read(&format!("crates/client/examples/{name}.rs"));
        // One example is a benchmark.
        let head = head.replace("-p leasehold --release --example", "-p leasehold --example");
        assert!(head.contains(&cargo_run(name, features)), "{name} documents how to run it");
        assert_eq!(head.matches("cargo run").count(), 1, "{name} documents it once");
        assert!(page.contains(&format!("--example {name}")) || name == "many_guards_cpu", "no recipe mentions {name}");
    }
}
