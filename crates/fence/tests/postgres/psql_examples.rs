//! Installation, claims and writes from psql, with the statements of the example files.

use std::process::{Command, Output};

use crate::database::Database;
use crate::support::token;

/// Runs psql with statements (`-c`) or a file (`-f`).
fn psql(base: &Database, option: &str, value: &str) -> Output {
    Command::new("psql")
        .arg("-h")
        .arg(base.server.socket())
        .args(["-U", "leasehold", "-X", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", option, value])
        .arg(&base.name)
        .output()
        .expect("psql can be started; ./test installs it")
}

const PAGE: &str = include_str!("../../../../docs/how-to/fence/postgres.md");

const CLAIM: &str = "-- postgres: claim";
const WRITE: &str = "-- postgres: write";
const SESSION: &str = "-- postgres: or once per connection";
const CONNECTION: &str = "-- postgres: or in the connection string";

/// The block of the page that starts with `title`, with a token and a row with its number.
fn fill(title: &str, number: u64) -> String {
    let (_, rest) = PAGE.split_once(&format!("```sql\n{title}")).expect("the page has this block");
    let (block, _) = rest.split_once("```").expect("the block ends");
    let (_, statements) = block.split_once('\n').expect("the first line is a comment");
    let row = format!("INSERT INTO written (number) VALUES ({number})");
    statements.replace("lh1-…", &token(number)).replace("INSERT INTO paid VALUES (7, 1200)", &row)
}

#[tokio::test]
async fn install_sql_is_idempotent_and_quiet_from_psql() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/install.sql");
    base.fence.protect(&base.db, "written").await.expect("protected");
    for _ in 0..2 {
        let output = psql(&base, "-f", file);
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.success(), "{stderr}");
        assert_eq!((stdout.as_str(), stderr.as_str()), ("", ""), "nothing changed, nothing is printed");
        assert_eq!(base.mark().await, Some(20));
    }
}

#[tokio::test]
async fn claims_and_writes_work_from_psql_and_a_stale_one_fails_with_its_sqlstate() {
    let base = Database::new().await;
    for (number, succeeds) in [(33, true), (34, true), (33, false)] {
        for example in [CLAIM, WRITE] {
            let output = psql(&base, "-c", &fill(example, number));
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.success(), succeeds, "{number}, {example}: {stderr}");
            if !succeeds {
                assert!(stderr.contains("LH001") && stderr.contains("presented=33 mark=34"), "{stderr}");
            }
        }
    }
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![33, 34]));
}

#[tokio::test]
async fn a_psql_session_presents_its_token_once_and_then_writes_plain_statements() {
    for example in [SESSION, CONNECTION] {
        let base = Database::new().await;
        base.fence.protect(&base.db, "written").await.expect("protected");
        let file = tempfile::NamedTempFile::new().expect("a script");
        for (number, succeeds) in [(33, true), (34, true), (33, false)] {
            std::fs::write(file.path(), fill(example, number)).expect("written");
            let output = psql(&base, "-f", file.path().to_str().expect("a path of text"));
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.success(), succeeds, "{example}, {number}: {stderr}");
            assert!(succeeds || stderr.contains("LH001"), "{example}: {stderr}");
        }
        assert_eq!(base.written().await, [33, 34], "{example}");
    }
}
