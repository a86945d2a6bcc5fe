//! Everything works from plain psql, as the page says.

use std::process::{Command, Output};

use crate::database::Database;
use crate::support::token;

/// Runs a script (`-c`) or a file of statements (`-f`).
fn psql(base: &Database, how: &str, what: &str) -> Output {
    Command::new("psql")
        .arg("-h")
        .arg(base.server.socket())
        .args(["-U", "leasehold", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", how, what])
        .arg(&base.name)
        .output()
        .expect("psql can be started; ./test installs it")
}

/// The statements of the page, with this token and a row that says so.
fn statements(part: &str, number: u64) -> String {
    let page = include_str!("../../../../docs/fences.md");
    let (_, rest) = page.split_once(&format!("```sql\n-- {part}")).expect("the page has the statements");
    let (block, _) = rest.split_once("```").expect("the block ends");
    let (_, block) = block.split_once('\n').expect("the first line is a comment");
    let row = format!("INSERT INTO written (number) VALUES ({number})");
    block.replace("lh1-…", &token(number)).replace("INSERT INTO paid VALUES (7, 1200)", &row)
}

#[tokio::test]
async fn the_file_installs_from_psql_again_and_again() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/install.sql");
    let done = psql(&base, "-f", file);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(base.mark().await, Some(20));
}

#[tokio::test]
async fn claims_and_writes_work_from_psql_and_a_late_one_is_refused_with_its_own_sqlstate() {
    let base = Database::new().await;
    for (number, lands) in [(33, true), (34, true), (33, false)] {
        for part in ["postgres: claim", "postgres: write"] {
            let done = psql(&base, "-c", &statements(part, number));
            let told = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.success(), lands, "{number}, {part}: {told}");
            if !lands {
                assert!(told.contains("LH001") && told.contains("presented=33 mark=34"), "{told}");
            }
        }
    }
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![33, 34]));
}

#[tokio::test]
async fn a_session_of_psql_holds_its_token_and_writes_plain_statements() {
    let base = Database::new().await;
    base.fence.protect(&base.db, "written").await.expect("protected");
    let file = tempfile::NamedTempFile::new().expect("a script");
    for (number, lands) in [(33, true), (34, true), (33, false)] {
        std::fs::write(file.path(), statements("postgres: or once", number)).expect("written");
        let done = psql(&base, "-f", file.path().to_str().expect("a path of text"));
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.success(), lands, "{number}: {told}");
        assert!(lands || told.contains("LH001"), "{told}");
    }
    assert_eq!(base.written().await, [33, 34]);
}
