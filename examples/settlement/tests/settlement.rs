//! The story ends as it must: a double credit that no reconciling finds, and with fences none.

#[path = "../../../crates/fence/tests/postgres/server.rs"]
#[allow(dead_code, reason = "the fence's own tests use more of it")]
mod server;

use std::process::{Command, Output};

fn settlement(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settlement"));
    command.args(args).env_remove("SETTLEMENT_POSTGRES");
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("it was built for this test")
}

#[test]
fn without_fences_the_bank_pays_twice_and_nothing_shows_it_and_with_fences_every_late_row_is_refused() {
    both_nights_end_as_they_must(settlement);
}

#[test]
fn the_same_with_the_table_in_postgres() {
    let server = server::Server::start(&[]);
    let given = format!("host={} user=leasehold dbname=postgres", server.socket().display());
    both_nights_end_as_they_must(|args| {
        let mut command = settlement(args);
        command.env("SETTLEMENT_POSTGRES", &given);
        command
    });
}

#[track_caller]
fn both_nights_end_as_they_must(play: impl Fn(&[&str]) -> Command) {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("night");
    let done = run(play(&[dir.to_str().expect("text")]));
    let said = String::from_utf8(done.stdout).expect("text");
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let (unfenced, fenced) = said.split_once("With fences").expect("both nights");
    for night in [unfenced, fenced] {
        assert!(night.contains("reconciled: no difference"), "{night}");
        assert!(night.contains("looks now, too late for its rows: held false"), "{night}");
    }
    assert!(unfenced.contains("0 late rows are refused, 10 are written"), "{unfenced}");
    assert!(unfenced.contains("10 merchants were paid twice, 3121.15 too much"), "{unfenced}");
    assert!(fenced.contains("10 late rows are refused, 0 are written"), "{fenced}");
    assert!(fenced.contains("0 merchants were paid twice, 0.00 too much"), "{fenced}");
    let bank = |night: &str| std::fs::read_to_string(dir.join(night).join("bank.csv")).expect("kept").lines().count();
    assert_eq!((bank("unfenced"), bank("fenced")), (30, 20));
}

#[test]
fn what_it_does_not_know_is_told_with_the_usage_and_a_used_directory_is_left_alone() {
    let done = run(settlement(&["--unknown"]));
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("usage: settlement"));
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(place.path().join("unfenced")).expect("made");
    let done = run(settlement(&[place.path().to_str().expect("text")]));
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("name a new directory"));
}
