//! Marks outlive every zombie: lost means refuse, and nothing lowers or deletes one.

use leasehold_core::token::Cluster;
use leasehold_fence::sqlite::{Fence, VERSION, install};
use leasehold_fence::{Error, Lost, Refusal};
use rusqlite::Connection;

use crate::ledger::{Ledger, put, put_raw};
use crate::support::{CLUSTER, name, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> Lost {
    match result {
        Err(Error::Refused(Refusal::Lost(how))) => how,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn a_mark_that_nobody_armed_refuses_every_token() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    let other = Fence::new(CLUSTER, name(), 5);
    let mut five = crate::support::parts(3);
    five.reach = leasehold_core::token::Reach::Slot(5);
    assert_eq!(lost(other.claim(&mut db, &five.to_string())), Lost::Missing);
    assert_eq!(lost(other.mark(&db)), Lost::Missing);
    assert_eq!(other.counters().read().lost, 1);
}

#[test]
fn a_database_without_the_fence_refuses_every_token() {
    let ledger = Ledger::new();
    let mut bare = Connection::open(ledger.dir.path().join("bare.db")).expect("a new database");
    bare.pragma_update(None, "journal_mode", "wal").expect("wal");
    bare.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER)").expect("a table");
    assert_eq!(lost(ledger.fence.claim(&mut bare, &token(1))), Lost::Missing);
    assert_eq!(lost(ledger.fence.write(&mut bare, &token(1), |tx| put(tx, 1))), Lost::Missing);
    let rows: i64 = bare.query_row("SELECT count(*) FROM written", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, 0);
}

#[test]
fn a_lost_mark_refuses_until_it_is_armed_above_all_that_was_seen() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(20)).expect("claimed");
    ledger.fence.declare_lost(&mut db).expect("declared");
    assert_eq!(lost(ledger.fence.write(&mut db, &token(21), |tx| put(tx, 21))), Lost::Declared);
    ledger.fence.arm(&mut db).expect("arming leaves what is there");
    assert_eq!(lost(ledger.fence.claim(&mut db, &token(21))), Lost::Declared);

    let lower = ledger.fence.rearm(&mut db, number(19)).expect_err("lower than what was seen");
    assert_eq!(lower.code(), "CONFLICT");
    assert_eq!(lost(ledger.fence.claim(&mut db, &token(21))), Lost::Declared);

    ledger.fence.rearm(&mut db, number(30)).expect("armed from a floor");
    let below = ledger.fence.claim(&mut db, &token(29)).expect_err("a holder of before");
    assert_eq!(below.code(), "STALE_TOKEN");
    ledger.fence.claim(&mut db, &token(31)).expect("a holder of after");
    assert_eq!(ledger.written(), [0_u64; 0]);
}

#[test]
fn a_mark_that_makes_no_sense_is_lost_and_not_fresh() {
    for broken in [
        "UPDATE leasehold_fence SET state = 'armed'",
        "UPDATE leasehold_fence SET state = 'fresh', mark = 4",
        "UPDATE leasehold_fence SET state = 'other'",
    ] {
        let ledger = Ledger::new();
        let mut db = ledger.open();
        db.pragma_update(None, "ignore_check_constraints", true).expect("as damage would");
        db.execute_batch(broken).expect("broken");
        assert_eq!(lost(ledger.fence.claim(&mut db, &token(9))), Lost::Unreadable, "{broken}");
    }
}

#[test]
fn a_mark_of_another_cluster_refuses_and_stays() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    let cluster = Cluster(*b"another!");
    let foreign = Fence::new(cluster, name(), 0);
    let shown = leasehold_core::token::Token { cluster, ..crate::support::parts(9) }.to_string();
    for error in [
        foreign.claim(&mut db, &shown).map(|_| ()).expect_err("a claim"),
        foreign.write(&mut db, &shown, |tx| put(tx, 9)).expect_err("a write"),
        foreign.arm(&mut db).expect_err("arming over it"),
    ] {
        assert_eq!((error.refusal(), error.code()), (Some(&Refusal::ForeignMark), "WRONG_CLUSTER"));
    }
    assert_eq!((foreign.counters().read().foreign, ledger.mark()), (2, None));
}

#[test]
fn plain_sql_cannot_lower_move_or_delete_a_mark() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(20)).expect("claimed");
    for around in [
        "UPDATE leasehold_fence SET mark = 19",
        "UPDATE leasehold_fence SET mark = NULL, state = 'fresh'",
        "UPDATE leasehold_fence SET slot = 3",
        "UPDATE leasehold_fence SET cluster = '0000000000000000'",
        "DELETE FROM leasehold_fence",
        "REPLACE INTO leasehold_fence (resource, slot, name, cluster, state) SELECT resource, slot, name, cluster, 'fresh'
           FROM leasehold_fence",
    ] {
        let error = db.execute_batch(around).expect_err(around);
        assert!(error.to_string().contains("CONFLICT"), "{around}: {error}");
    }
    assert_eq!(ledger.mark(), Some(20));
}

/// The statements of the page, with this token and a row that says so.
fn in_plain_sql(token: &str, number: u64) -> String {
    let page = include_str!("../../../../docs/fences.md");
    let (_, rest) = page.split_once("```sql\n-- sqlite").expect("the page has the statements");
    let (statements, _) = rest.split_once("```").expect("the block ends");
    let row = format!("INSERT INTO written (number) VALUES ({number})");
    assert!(statements.contains("lh1-…") && statements.contains("INSERT INTO paid VALUES (7, 1200)"), "{statements}");
    format!("-- {statements}").replace("lh1-…", token).replace("INSERT INTO paid VALUES (7, 1200)", &row)
}

#[test]
fn the_check_can_be_written_in_plain_sql_as_the_page_says() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(20)).expect("claimed");
    for (shown, lands) in [(19, false), (20, true), (21, true), (20, false)] {
        let result = db.execute_batch(&in_plain_sql(&token(shown), shown));
        match result {
            Ok(()) => assert!(lands, "{shown} landed"),
            Err(error) => {
                assert!(!lands && error.to_string().contains("STALE_TOKEN"), "{shown}: {error}");
                db.execute_batch("ROLLBACK").expect("the shell rolls back what failed");
            }
        }
    }
    assert_eq!((ledger.written(), ledger.mark()), (vec![20, 21], Some(21)));
}

#[test]
fn plain_sql_refuses_the_same_mistakes_but_for_the_checksum() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(10)).expect("claimed");
    for (text, code, why) in crate::mistakes::mistakes() {
        if why == "checksum" {
            continue;
        }
        let error = db.execute_batch(&in_plain_sql(&text, 50)).expect_err(why);
        let code = if why == "version" { "TOKEN_INVALID" } else { code };
        assert!(error.to_string().contains(code), "{why}: {error}");
        db.execute_batch("ROLLBACK").expect("rolled back");
    }
    let absent = db.execute_batch("INSERT INTO leasehold_admit VALUES ('jobs/settle', NULL)").expect_err("no token");
    assert!(absent.to_string().contains("TOKEN_INVALID: absent"), "{absent}");
    let unknown = db.execute_batch(&format!("INSERT INTO leasehold_admit VALUES ('jobs/else', '{}')", token(50)));
    assert!(unknown.expect_err("nobody armed it").to_string().contains("STORAGE_FAILED: missing"));
    ledger.fence.declare_lost(&mut db).expect("declared");
    let lost = db.execute_batch(&in_plain_sql(&token(50), 50)).expect_err("lost");
    assert!(lost.to_string().contains("STORAGE_FAILED: lost"), "{lost}");
    db.execute_batch("ROLLBACK").expect("rolled back");
    assert_eq!(ledger.written(), [0_u64; 0]);
}

#[test]
fn installing_twice_changes_nothing_and_a_newer_version_is_left_alone() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(20)).expect("claimed");
    install(&mut db).expect("again");
    ledger.fence.arm(&mut db).expect("again");
    assert_eq!(ledger.mark(), Some(20));
    db.execute("UPDATE leasehold_schema SET version = 99", []).expect("as a later version would");
    let error = install(&mut db).expect_err("newer");
    assert!(matches!(error, Error::Version { have: 99, want: VERSION }), "{error}");
    assert_eq!(error.code(), "UNSUPPORTED_VERSION");
    put_raw(&db, 1).expect("the database is still usable");
}

#[test]
fn a_database_of_version_1_is_brought_up_to_date_and_keeps_its_marks() {
    let dir = crate::ledger::directory();
    let mut db = Connection::open(dir.path().join("old")).expect("a database");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.execute_batch(include_str!("version1.sql")).expect("as version 1 left it");
    let armed = "INSERT INTO leasehold_fence (resource, slot, name, cluster, state, mark, incarnation)
                 VALUES (?1, 0, ?2, ?3, 'armed', 20, '00000007')";
    let resource =
        format!("{:016x}", u64::from_be_bytes(leasehold_core::name::resource_hash(crate::support::RESOURCE)));
    db.execute(armed, (resource, crate::support::RESOURCE, CLUSTER.to_string())).expect("a mark");
    let fence = Fence::new(CLUSTER, name(), 0);
    let before = fence.claim(&mut db, &token(21)).expect_err("the older version");
    assert!(matches!(before, Error::Version { have: 1, want: VERSION }), "{before}");

    install(&mut db).expect("brought up to date");
    assert_eq!(fence.mark(&db).expect("kept"), Some(number(20)));
    assert_eq!(fence.claim(&mut db, &token(19)).expect_err("late").code(), "STALE_TOKEN");
    fence.claim(&mut db, &token(21)).expect("claimed");
    let late = format!("INSERT INTO leasehold_admit VALUES ('{}', '{}')", crate::support::RESOURCE, token(20));
    assert!(db.execute_batch(&late).expect_err("late").to_string().contains("STALE_TOKEN"), "in plain SQL too");
    let schema = |db: &Connection| -> Vec<String> {
        let names = "SELECT type || ' ' || name FROM sqlite_schema WHERE name LIKE 'leasehold%' ORDER BY 1";
        let mut all = db.prepare(names).expect("the schema");
        all.query_map([], |row| row.get(0)).expect("readable").map(|row| row.expect("a name")).collect()
    };
    assert_eq!(schema(&db), schema(&Ledger::new().open()), "nothing is missing and nothing is left over");
}
