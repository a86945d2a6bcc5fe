//! What the first page, the unit and the settings beside it say is what happens.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{Server, Told, leasehold, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The commands of a page, block by block.
fn blocks(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Types a block into a shell that knows the binary, for a server on a port of its own.
fn typed(server: &Server, block: &str) -> Told {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("it lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &block.replace("localhost:7421", &server.address)]);
    shell.env("PATH", format!("{}:{path}", binary.display())).env("LEASEHOLD_ADDR", &server.address);
    run(&mut shell)
}

#[test]
fn the_first_page_starts_a_server() {
    let first = blocks("README.md").into_iter().next().expect("a first block");
    let serve = first.lines().next().and_then(|line| line.split('#').next()).expect("a command").trim();
    assert_eq!(serve, "cargo run --release -- serve", "the binary's own arguments are tried below");
    let words: Vec<_> = serve.rsplit(" -- ").next().expect("what cargo passes on").split(' ').collect();
    assert_eq!(words, ["serve"]);
    let help = run(&mut leasehold(&["serve", "--help"])).ok().out;
    assert!(help.contains("[default: 127.0.0.1:7421]") && help.contains("./leasehold-data"), "{help}");
}

#[test]
fn the_first_page_takes_keeps_and_gives_back_with_curl() {
    let server = Server::start();
    let block = blocks("README.md").into_iter().find(|block| block.contains("curl")).expect("a block with curl");
    let told = typed(&server, &block).ok();
    let answers: Vec<Value> =
        serde_json::Deserializer::from_str(&told.out).into_iter().collect::<Result<_, _>>().expect("answers are JSON");
    let [renewed, released] = &answers[..] else { panic!("two answers: {told:?}") };
    assert_eq!((&renewed["state"], &renewed["resource"]), (&"held".into(), &"jobs/settle".into()), "{told:?}");
    assert_eq!(released["done"], true, "{told:?}");
    let happened = server.json(&["history", "jobs/settle"]);
    assert_eq!(happened["entries"].as_array().map(Vec::len), Some(2), "granted and ended: {happened}");
}

#[test]
fn the_first_page_does_the_same_with_the_binary() {
    let server = Server::start();
    let begins = |block: &String| block.starts_with("TOKEN=$(leasehold acquire");
    let block = blocks("README.md").into_iter().find(begins).expect("a block with the binary");
    let told = typed(&server, &block).ok();
    for said in ["worker-1", "released jobs/settle", "expired: released"] {
        assert!(told.out.contains(said), "{said}: {told:?}");
    }
}

#[test]
fn the_first_page_runs_a_command_under_a_lease() {
    let server = Server::start();
    let block =
        blocks("README.md").into_iter().find(|block| block.contains("leasehold run")).expect("a block that runs");
    let told = typed(&server, &block).ok();
    let number = told.out.trim().strip_prefix("settling under ").unwrap_or_else(|| panic!("{told:?}"));
    assert!(number.parse::<u64>().is_ok_and(|number| number > 0), "{told:?}");
    let happened = server.json(&["history", "jobs/settle"]);
    assert!(happened.to_string().contains(number), "{happened}");
}

#[test]
fn what_operators_are_told_to_type_is_there() {
    let server = Server::start();
    server.acquire("jobs/settle", "worker-1");
    let look = blocks("docs/operating.md").into_iter().find(|block| block.contains("leasehold status"));
    typed(&server, &look.expect("a block that looks")).ok();
    let folder = tempfile::tempdir().expect("a directory");
    let backup = blocks("docs/operating.md").into_iter().find(|block| block.contains("leasehold backup"));
    let there = folder.path().to_str().expect("a text");
    typed(&server, &backup.expect("a block that backs up").replace("/backups", there)).ok();
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
}

#[test]
fn the_unit_and_its_settings_are_what_this_binary_takes() {
    let unit = read("deploy/leasehold.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let words: Vec<_> = start.split(' ').collect();
    assert_eq!(words[1..], ["serve", "--config", "/etc/leasehold/leasehold.toml"]);
    assert!(unit.contains("\nType=notify\n"), "the server tells when it serves");
    let settings = root().join("deploy/leasehold.toml");
    let checked = run(&mut leasehold(&["config", "check", settings.to_str().expect("a text"), "--json"])).ok().json();
    assert_eq!(checked["data"], "/var/lib/leasehold");
    assert!(unit.contains("\nStateDirectory=leasehold\n"), "and systemd makes that directory");
    // What is written there as a comment can be taken in as it is.
    let all: String = read("deploy/leasehold.toml")
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line).to_owned() + "\n")
        .collect();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("all.toml");
    fs::write(&path, all).expect("the directory is there");
    let checked = run(&mut leasehold(&["config", "check", path.to_str().expect("a text"), "--json"])).ok().json();
    assert_eq!(checked["trail_age"], "90d");
}

/// The examples of the client by their names, with the features that each needs.
fn examples() -> Vec<(String, Vec<String>)> {
    let manifest: toml::Table = read("crates/client/Cargo.toml").parse().expect("a manifest");
    assert_eq!(manifest["package"]["name"].as_str(), Some("leasehold"), "the lines below name the package");
    let declared = manifest["example"].as_array().expect("a list");
    let needs = |name: &str| {
        let of = declared.iter().find(|example| example["name"].as_str() == Some(name));
        let features = of.and_then(|example| example.get("required-features")?.as_array());
        features.into_iter().flatten().filter_map(|feature| Some(feature.as_str()?.to_owned())).collect()
    };
    let files = fs::read_dir(root().join("crates/client/examples")).expect("they are there").flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
    names.map(|name| (name.clone(), needs(&name))).collect()
}

/// What is to be typed at the root for an example, up to its own words.
fn line_of(name: &str, features: &[String]) -> String {
    let features = if features.is_empty() { String::new() } else { format!("--features {} ", features.join(",")) };
    format!("`cargo run -p leasehold {features}--example {name}")
}

#[test]
fn every_recipe_names_a_program_that_is_there_and_how_to_run_it_from_the_root() {
    let page = read("docs/recipes.md");
    let programs: Vec<&str> = page.lines().filter(|line| line.starts_with("- **Program.**")).collect();
    let examples = examples();
    assert_eq!(programs.len(), page.matches("`cargo run").count(), "a command stands in a line for programs");
    for line in &programs {
        let is_one = |(name, features): &(String, Vec<String>)| {
            let wanted = line_of(name, features);
            line.contains(&format!("{wanted} ")) || line.contains(&format!("{wanted}`"))
        };
        assert!(examples.iter().any(is_one), "{line}");
    }
    for (name, features) in &examples {
        let head = read(&format!("crates/client/examples/{name}.rs"));
        // One of them is a measurement.
        let head = head.replace("-p leasehold --release --example", "-p leasehold --example");
        assert!(head.contains(&line_of(name, features)), "{name} says how it is run");
        assert_eq!(head.matches("cargo run").count(), 1, "{name} says it once");
        assert!(page.contains(&format!("--example {name}")) || name == "guards", "{name} belongs to a recipe");
    }
}
