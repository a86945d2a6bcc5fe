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
