//! Marks: a lost mark refuses all tokens, and no statement lowers or deletes one.

use leasehold_core::token::Cluster;
use leasehold_fence::sqlite::{Fence, VERSION, install};
use leasehold_fence::{Error, FenceRefusal, MarkLoss};
use rusqlite::Connection;

use crate::fixture::{Database, put, put_raw};
use crate::support::{CLUSTER, RESOURCE, fence_id, id_of, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> MarkLoss {
    match result {
        Err(Error::Refused(FenceRefusal::MarkLost(loss))) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn an_unarmed_fence_refuses_every_token() {
    let base = Database::new();
    let mut db = base.open();
    let other = Fence::new(&fence_id().with_slot(5));
    let mut five = crate::support::parts(3);
    five.scope = leasehold_core::token::TokenScope::Slot(5);
    assert_eq!(lost(other.claim(&mut db, five.to_string())), MarkLoss::Missing);
    assert_eq!(lost(other.mark(&db)), MarkLoss::Missing);
    assert_eq!(other.counters().snapshot().lost, 1);
}

#[test]
fn a_database_without_the_fence_refuses_every_token() {
    let base = Database::new();
    let mut empty = Connection::open(base.dir.path().join("empty.db")).expect("a new database");
    empty.pragma_update(None, "journal_mode", "wal").expect("wal");
    empty.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER)").expect("a table");
    assert_eq!(lost(base.fence.claim(&mut empty, token(1))), MarkLoss::Missing);
    assert_eq!(lost(base.fence.write(&mut empty, token(1), |tx| put(tx, 1))), MarkLoss::Missing);
    let rows: i64 = empty.query_row("SELECT count(*) FROM written", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, 0);
}

#[test]
fn a_lost_mark_refuses_every_token_until_it_is_rearmed_at_or_above_the_mark() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(20)).expect("claimed");
    base.fence.declare_lost(&mut db).expect("declared");
    assert_eq!(lost(base.fence.write(&mut db, token(21), |tx| put(tx, 21))), MarkLoss::Declared);
    base.fence.arm(&mut db).expect("arm changes nothing");
    assert_eq!(lost(base.fence.claim(&mut db, token(21))), MarkLoss::Declared);

    let lower = base.fence.rearm(&mut db, number(19)).expect_err("below the mark");
    assert_eq!(lower.code(), "CONFLICT");
    assert_eq!(lost(base.fence.claim(&mut db, token(21))), MarkLoss::Declared);

    base.fence.rearm(&mut db, number(30)).expect("re-armed");
    let below = base.fence.claim(&mut db, token(29)).expect_err("an earlier holder");
    assert_eq!(below.code(), "STALE_TOKEN");
    base.fence.claim(&mut db, token(31)).expect("a later holder");
    assert_eq!(base.written(), [0_u64; 0]);
}

#[test]
fn an_invalid_mark_is_lost_and_not_fresh() {
    for broken in [
        "UPDATE leasehold_fence SET state = 'armed'",
        "UPDATE leasehold_fence SET state = 'fresh', mark = 4",
        "UPDATE leasehold_fence SET state = 'other'",
    ] {
        let base = Database::new();
        let mut db = base.open();
        db.pragma_update(None, "ignore_check_constraints", true).expect("set");
        db.execute_batch(broken).expect("broken");
        assert_eq!(lost(base.fence.claim(&mut db, token(9))), MarkLoss::Unreadable, "{broken}");
    }
}

#[test]
fn a_mark_of_another_cluster_refuses_every_token_and_is_unchanged() {
    let base = Database::new();
    let mut db = base.open();
    let cluster = Cluster(*b"another!");
    let foreign = Fence::new(&id_of(cluster, RESOURCE));
    let token = leasehold_core::token::Token { cluster, ..crate::support::parts(9) }.to_string();
    for error in [
        foreign.claim(&mut db, &token).map(|_| ()).expect_err("a claim"),
        foreign.write(&mut db, &token, |tx| put(tx, 9)).expect_err("a write"),
        foreign.arm(&mut db).expect_err("armed by another cluster"),
    ] {
        assert_eq!((error.refusal(), error.code()), (Some(&FenceRefusal::ForeignMark), "WRONG_CLUSTER"));
    }
    assert_eq!((foreign.counters().snapshot().foreign, base.mark()), (2, None));
}

#[test]
fn plain_sql_cannot_lower_move_or_delete_a_mark() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(20)).expect("claimed");
    for bypass in [
        "UPDATE leasehold_fence SET mark = 19",
        "UPDATE leasehold_fence SET mark = NULL, state = 'fresh'",
        "UPDATE leasehold_fence SET slot = 3",
        "UPDATE leasehold_fence SET cluster = '0000000000000000'",
        "DELETE FROM leasehold_fence",
        "REPLACE INTO leasehold_fence (resource, slot, name, cluster, state) SELECT resource, slot, name, cluster, 'fresh'
           FROM leasehold_fence",
    ] {
        let error = db.execute_batch(bypass).expect_err(bypass);
        assert!(error.to_string().contains("CONFLICT"), "{bypass}: {error}");
    }
    assert_eq!(base.mark(), Some(20));
}

/// The block of the page, with a token and a row with its number.
fn example(token: &str, number: u64) -> String {
    let row = format!("INSERT INTO written (number) VALUES ({number})");
    let page = include_str!("../../../../docs/how-to/fence/sqlite.md");
    let (_, rest) = page.split_once("```sql\n").expect("the page has the statements");
    let (example, _) = rest.split_once("```").expect("the block ends");
    example.replace("lh1-…", token).replace("INSERT INTO paid VALUES (7, 1200)", &row)
}

#[test]
fn the_example_in_plain_sql_works() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(20)).expect("claimed");
    for (presented, succeeds) in [(19, false), (20, true), (21, true), (20, false)] {
        let result = db.execute_batch(&example(&token(presented), presented));
        match result {
            Ok(()) => assert!(succeeds, "{presented} was admitted"),
            Err(error) => {
                assert!(!succeeds && error.to_string().contains("STALE_TOKEN"), "{presented}: {error}");
                db.execute_batch("ROLLBACK").expect("rolled back");
            }
        }
    }
    assert_eq!((base.written(), base.mark()), (vec![20, 21], Some(21)));
}

#[test]
fn plain_sql_refuses_the_same_invalid_tokens_except_for_the_checksum() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(10)).expect("claimed");
    for (text, code, reason) in crate::invalid_tokens::mistakes() {
        if reason == "checksum" {
            continue;
        }
        let error = db.execute_batch(&example(&text, 50)).expect_err(reason);
        let code = if reason == "version" { "TOKEN_INVALID" } else { code };
        assert!(error.to_string().contains(code), "{reason}: {error}");
        db.execute_batch("ROLLBACK").expect("rolled back");
    }
    let absent = db.execute_batch("INSERT INTO leasehold_admit VALUES ('jobs/settle', NULL)").expect_err("no token");
    assert!(absent.to_string().contains("TOKEN_INVALID: absent"), "{absent}");
    let unknown = db.execute_batch(&format!("INSERT INTO leasehold_admit VALUES ('jobs/else', '{}')", token(50)));
    assert!(unknown.expect_err("not armed").to_string().contains("STORAGE_FAILED: missing"));
    base.fence.declare_lost(&mut db).expect("declared");
    let lost = db.execute_batch(&example(&token(50), 50)).expect_err("lost");
    assert!(lost.to_string().contains("STORAGE_FAILED: lost"), "{lost}");
    db.execute_batch("ROLLBACK").expect("rolled back");
    assert_eq!(base.written(), [0_u64; 0]);
}

#[test]
fn install_is_idempotent_and_leaves_a_newer_version_unchanged() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(20)).expect("claimed");
    install(&mut db).expect("again");
    base.fence.arm(&mut db).expect("again");
    assert_eq!(base.mark(), Some(20));
    db.execute("UPDATE leasehold_schema SET version = 99", []).expect("a later version");
    let error = install(&mut db).expect_err("newer");
    assert!(matches!(error, Error::Version { found: 99, supported: VERSION }), "{error}");
    assert_eq!(error.code(), "UNSUPPORTED_VERSION");
    put_raw(&db, 1).expect("the database is still usable");
}

#[test]
fn version_1_is_upgraded_and_its_marks_are_preserved() {
    let dir = crate::fixture::directory();
    let mut db = Connection::open(dir.path().join("old")).expect("a database");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.execute_batch(include_str!("version1.sql")).expect("version 1 installed");
    let armed = "INSERT INTO leasehold_fence (resource, slot, name, cluster, state, mark, incarnation)
                 VALUES (?1, 0, ?2, ?3, 'armed', 20, '00000007')";
    let resource =
        format!("{:016x}", u64::from_be_bytes(leasehold_core::name::resource_hash(crate::support::RESOURCE)));
    db.execute(armed, (resource, crate::support::RESOURCE, CLUSTER.to_string())).expect("a mark");
    let fence = Fence::new(&fence_id());
    let before = fence.claim(&mut db, token(21)).expect_err("the older version");
    assert!(matches!(before, Error::Version { found: 1, supported: VERSION }), "{before}");

    install(&mut db).expect("upgraded");
    assert_eq!(fence.mark(&db).expect("preserved"), Some(number(20)));
    assert_eq!(fence.claim(&mut db, token(19)).expect_err("stale").code(), "STALE_TOKEN");
    fence.claim(&mut db, token(21)).expect("claimed");
    let stale = format!("INSERT INTO leasehold_admit VALUES ('{}', '{}')", crate::support::RESOURCE, token(20));
    assert!(db.execute_batch(&stale).expect_err("stale").to_string().contains("STALE_TOKEN"), "in plain SQL too");
    let schema = |db: &Connection| -> Vec<String> {
        let names = "SELECT type || ' ' || name FROM sqlite_schema WHERE name LIKE 'leasehold%' ORDER BY 1";
        let mut statement = db.prepare(names).expect("the schema");
        statement.query_map([], |row| row.get(0)).expect("readable").map(|row| row.expect("a name")).collect()
    };
    assert_eq!(schema(&db), schema(&Database::new().open()), "the upgraded schema equals a new one");
}
