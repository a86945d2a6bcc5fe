//! Without fences, the bank pays twice and no reconciliation finds it; with fences, it pays once.

use std::process::{Command, Output};

use leasehold_testkit::postgres::PostgresServer;

fn settlement(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settlement"));
    command.args(args).env_remove("SETTLEMENT_POSTGRES");
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("the binary exists")
}

#[test]
fn fences_refuse_every_late_row_and_without_them_the_bank_pays_twice_unnoticed() {
    both_runs_end_as_expected(settlement);
}

#[test]
fn fences_refuse_every_late_row_with_the_table_in_postgres() {
    let mut server = PostgresServer::start(&[]).expect("PostgreSQL starts; ./test installs it");
    server.wait_until_ready();
    let connection_string = format!("host={} user=leasehold dbname=postgres", server.socket_dir().display());
    both_runs_end_as_expected(|args| {
        let mut command = settlement(args);
        command.env("SETTLEMENT_POSTGRES", &connection_string);
        command
    });
}

#[track_caller]
fn both_runs_end_as_expected(settlement: impl Fn(&[&str]) -> Command) {
    let temp_dir = tempfile::tempdir().expect("a directory");
    let dir = temp_dir.path().join("run");
    let output = run(settlement(&[dir.to_str().expect("UTF-8")]));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (unfenced, fenced) = text.split_once("With fences").expect("both runs");
    for part in [unfenced, fenced] {
        assert!(part.contains("reconciled: no difference"), "{part}");
        assert!(part.contains("checks its lease now, too late for its rows: held false"), "{part}");
    }
    assert!(unfenced.contains("0 late rows are refused, 10 are written"), "{unfenced}");
    assert!(unfenced.contains("10 merchants were paid twice, 3121.15 too much"), "{unfenced}");
    assert!(fenced.contains("10 late rows are refused, 0 are written"), "{fenced}");
    assert!(fenced.contains("0 merchants were paid twice, 0.00 too much"), "{fenced}");
    let payments = |part: &str| {
        std::fs::read_to_string(dir.join(part).join("bank.csv")).expect("the file is kept").lines().count()
    };
    assert_eq!((payments("unfenced"), payments("fenced")), (30, 20));
}

#[test]
fn an_unknown_option_prints_the_usage_and_an_existing_directory_is_refused() {
    let output = run(settlement(&["--unknown"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: settlement"));
    let temp_dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(temp_dir.path().join("unfenced")).expect("the directory is created");
    let output = run(settlement(&[temp_dir.path().to_str().expect("UTF-8")]));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("name a new directory"));
}
