//! Forced mode: the database itself refuses, from the `sqlite3` shell and any other process too (F3).

use std::io::Write;
use std::process::{Command, Stdio};

use rusqlite::{Connection, TransactionBehavior};

use crate::ledger::{Ledger, put, put_raw};
use crate::support::{CLUSTER, name, token};
use leasehold_fence::sqlite::{Fence, SQL, install, protection};

fn protected() -> Ledger {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(20)).expect("claimed");
    ledger.fence.protect(&mut db, "written").expect("protected");
    ledger.fence.write(&mut db, &token(20), |tx| put(tx, 20)).expect("a holder writes");
    ledger
}

/// What the shell says on its error output; empty if all went well.
fn shell(ledger: &Ledger, script: &str) -> String {
    let mut sqlite = Command::new("sqlite3")
        .arg("-bail")
        .arg(ledger.file())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqlite3 can be started; ./test installs it");
    sqlite.stdin.take().expect("piped").write_all(script.as_bytes()).expect("it reads");
    String::from_utf8(sqlite.wait_with_output().expect("it ends").stderr).expect("text")
}

fn script(number: u64, write: &str) -> String {
    format!(
        "PRAGMA foreign_keys = ON; BEGIN IMMEDIATE; INSERT INTO leasehold_admit VALUES ('jobs/settle', '{}');
         {write}; DELETE FROM leasehold_inside; COMMIT;",
        token(number)
    )
}

const WRITES: [&str; 7] = [
    "INSERT INTO written (number) VALUES (99)",
    "REPLACE INTO written (place, number) VALUES (1, 99)",
    "INSERT INTO written (place, number) VALUES (1, 99) ON CONFLICT (place) DO UPDATE SET number = 99",
    "UPDATE written SET number = 99",
    "UPDATE OR REPLACE written SET number = 99",
    "DELETE FROM written",
    "DELETE FROM written WHERE number = 20",
];

#[test]
fn every_way_of_writing_is_refused_without_a_token_and_with_a_stale_one() {
    let ledger = protected();
    for write in WRITES {
        let bare = shell(&ledger, &format!("{write};"));
        assert!(bare.contains("TOKEN_INVALID: absent"), "{write}: {bare}");
        let late = shell(&ledger, &script(19, write));
        assert!(late.contains("STALE_TOKEN"), "{write}: {late}");
        let here = ledger.open().execute_batch(write).expect_err(write);
        assert!(here.to_string().contains("TOKEN_INVALID: absent"), "{write}: {here}");
    }
    assert_eq!(ledger.written(), [20]);
    for write in WRITES {
        let held = script(20, write).replace("COMMIT", "ROLLBACK");
        assert_eq!(shell(&ledger, &held), "", "a holder may: {write}");
    }
    assert_eq!(shell(&ledger, &script(20, "INSERT INTO written (number) VALUES (20)")), "");
    assert_eq!(ledger.written(), [20, 20]);
}

#[test]
fn an_admission_cannot_be_left_to_the_next_transaction() {
    let ledger = protected();
    let stays = script(20, "INSERT INTO written (number) VALUES (20)").replace("DELETE FROM leasehold_inside;", "");
    assert!(shell(&ledger, &stays).contains("FOREIGN KEY"), "the commit fails");
    let careless = script(20, "SELECT 1").replace("foreign_keys = ON", "foreign_keys = OFF");
    assert!(shell(&ledger, &careless).contains("CONFIG"), "without foreign keys nobody is let in");
    let forged = "PRAGMA foreign_keys = ON; BEGIN; INSERT INTO leasehold_inside (resource, slot, number)
                  SELECT resource, slot, 19 FROM leasehold_fence; INSERT INTO written (number) VALUES (19);";
    assert!(shell(&ledger, forged).contains("STALE_TOKEN"), "a number that is not current opens nothing");
    assert_eq!(ledger.written(), [20]);

    let mut db = ledger.open();
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    ledger.fence.admit(&tx, &token(20)).expect("admitted");
    put(&tx, 20).expect("written");
    assert!(tx.commit().expect_err("it did not leave").to_string().contains("FOREIGN KEY"));
    // Nothing of it is left, and the connection goes on.
    drop(db);
    let mut db = ledger.open();
    put_raw(&db, 99).expect_err("nobody was let in");
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    ledger.fence.admit(&tx, &token(20)).expect("admitted");
    ledger.fence.admit(&tx, &token(20)).expect("twice is as good as once");
    put(&tx, 20).expect("written");
    ledger.fence.leave(&tx).expect("left");
    put(&tx, 99).expect_err("who has left writes no more");
    tx.commit().expect("committed");
    assert_eq!(ledger.written(), [20, 20]);

    db.pragma_update(None, "foreign_keys", "OFF").expect("off");
    let off = ledger.fence.write(&mut db, &token(20), |tx| put(tx, 20)).expect_err("foreign keys are off");
    assert_eq!(off.code(), "INVALID_ARGUMENT", "{off}");
}

#[test]
fn a_successor_in_another_process_keeps_its_predecessor_out() {
    let ledger = protected();
    let claim = format!("INSERT INTO leasehold_claim VALUES ('jobs/settle', '{}');", token(21));
    assert_eq!(shell(&ledger, &claim), "");
    let mut db = ledger.open();
    let late = ledger.fence.write(&mut db, &token(20), |tx| put(tx, 20)).expect_err("late");
    assert_eq!(late.code(), "STALE_TOKEN");
    assert!(shell(&ledger, &script(20, WRITES[0])).contains("STALE_TOKEN"));
    assert_eq!(shell(&ledger, &script(21, "INSERT INTO written (number) VALUES (21)")), "");
    assert_eq!((ledger.written(), ledger.mark()), (vec![20, 21], Some(21)));
}

#[test]
fn numbered_writes_and_strict_places_work_from_the_shell() {
    let ledger = protected();
    let numbered = |sequence: i64| {
        format!(
            "PRAGMA foreign_keys = ON; BEGIN IMMEDIATE;
             INSERT INTO leasehold_admit_once VALUES ('jobs/settle', '{}', {sequence});
             INSERT INTO written (number) VALUES (20); DELETE FROM leasehold_inside; COMMIT;",
            token(20)
        )
    };
    assert_eq!(shell(&ledger, &numbered(1)), "");
    assert!(shell(&ledger, &numbered(1)).contains("ALREADY_APPLIED"));
    assert_eq!(shell(&ledger, &numbered(2)), "");
    assert!(shell(&ledger, &numbered(-1)).contains("INVALID_ARGUMENT"));
    assert_eq!(ledger.written(), [20, 20, 20]);

    let mut db = ledger.open();
    ledger.fence.strict(&mut db, true).expect("strict");
    let restored = leasehold_core::token::Token {
        incarnation: leasehold_core::token::Incarnation(8),
        ..crate::support::parts(30)
    };
    let claim = format!("INSERT INTO leasehold_claim VALUES ('jobs/settle', '{restored}');");
    assert!(shell(&ledger, &claim).contains("NOT_ADOPTED"));
    ledger.fence.adopt(&mut db, restored.incarnation).expect("adopted");
    assert_eq!(shell(&ledger, &claim), "");
    assert_eq!(ledger.mark(), Some(30));
}

#[test]
fn the_shell_installs_and_protects_by_itself() {
    let by_hand = Ledger { dir: crate::ledger::directory(), ..Ledger::new() };
    let setup = format!("CREATE TABLE \"it's \"\"odd\"\"\" (a);\n{SQL}\n{}", protection("it's \"odd\"", name(), 0));
    assert_eq!(shell(&by_hand, &setup), "");
    assert!(shell(&by_hand, "INSERT INTO \"it's \"\"odd\"\"\" VALUES (1);").contains("TOKEN_INVALID: absent"));
    let mut db = Connection::open(by_hand.file()).expect("opens");
    install(&mut db).expect("it is there already");
    let fence = Fence::new(CLUSTER, name(), 0);
    fence.arm(&mut db).expect("armed");
    fence.protect(&mut db, "it's \"odd\"").expect("it is protected already");
    fence.unprotect(&mut db, "it's \"odd\"").expect("unprotected");
    assert_eq!(shell(&by_hand, "INSERT INTO \"it's \"\"odd\"\"\" VALUES (1);"), "");
}

#[test]
fn only_tables_of_this_database_can_be_protected() {
    let ledger = protected();
    let mut db = ledger.open();
    db.execute_batch("CREATE VIEW seen AS SELECT * FROM written").expect("a view");
    for table in ["seen", "nowhere", "leasehold_fence", "sqlite_schema", ""] {
        assert_eq!(ledger.fence.protect(&mut db, table).expect_err(table).code(), "CONFLICT");
    }
    let other = Fence::new(CLUSTER, leasehold_core::name::Name::parse("jobs/other").expect("a name"), 0);
    assert_eq!(other.protect(&mut db, "written").expect_err("not armed").code(), "STORAGE_FAILED");
    other.arm(&mut db).expect("armed");
    assert_eq!(other.protect(&mut db, "written").expect_err("another's").code(), "CONFLICT");
}
