//! Protected tables: the database refuses writes without a current token, also from the `sqlite3` shell (F3).

use std::io::Write;
use std::process::{Command, Stdio};

use rusqlite::{Connection, TransactionBehavior};

use crate::fixture::{Database, put, put_raw};
use crate::support::{CLUSTER, fence_id, id_of, token};
use leasehold_fence::sqlite::{Fence, GuardFinding, SQL, install, protection_sql};

fn protected() -> Database {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(20)).expect("claimed");
    base.fence.protect(&mut db, "written").expect("protected");
    base.fence.write(&mut db, token(20), |tx| put(tx, 20)).expect("written with a token");
    base
}

/// Runs a script in the `sqlite3` shell; returns its error output, empty on success.
pub fn shell(base: &Database, script: &str) -> String {
    let mut sqlite = Command::new("sqlite3")
        .arg("-bail")
        .arg(base.file())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqlite3 can be started; ./test installs it");
    sqlite.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    String::from_utf8(sqlite.wait_with_output().expect("ended").stderr).expect("text")
}

fn script(number: u64, write: &str) -> String {
    format!(
        "PRAGMA foreign_keys = ON; BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON;
         INSERT INTO leasehold_admit VALUES ('jobs/settle', '{}');
         {write}; DELETE FROM leasehold_admission; COMMIT;",
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
fn every_kind_of_write_is_refused_without_a_token_and_with_a_stale_one() {
    let base = protected();
    for write in WRITES {
        let without_token = shell(&base, &format!("{write};"));
        assert!(without_token.contains("TOKEN_INVALID: absent"), "{write}: {without_token}");
        let stale = shell(&base, &script(19, write));
        assert!(stale.contains("STALE_TOKEN"), "{write}: {stale}");
        let in_process = base.open().execute_batch(write).expect_err(write);
        assert!(in_process.to_string().contains("TOKEN_INVALID: absent"), "{write}: {in_process}");
    }
    assert_eq!(base.written(), [20]);
    for write in WRITES {
        let admitted = script(20, write).replace("COMMIT", "ROLLBACK");
        assert_eq!(shell(&base, &admitted), "", "allowed with a token: {write}");
    }
    assert_eq!(shell(&base, &script(20, "INSERT INTO written (number) VALUES (20)")), "");
    assert_eq!(base.written(), [20, 20]);
}

#[test]
fn an_admission_cannot_outlive_its_transaction() {
    let base = protected();
    let not_ended =
        script(20, "INSERT INTO written (number) VALUES (20)").replace("DELETE FROM leasehold_admission;", "");
    assert!(shell(&base, &not_ended).contains("FOREIGN KEY"), "the commit fails");
    let no_foreign_keys = script(20, "SELECT 1").replace("foreign_keys = ON", "foreign_keys = OFF");
    assert!(shell(&base, &no_foreign_keys).contains("CONFIG"), "without foreign keys no transaction is admitted");
    let no_deferral = script(20, "SELECT 1").replace("defer_foreign_keys = ON", "defer_foreign_keys = OFF");
    assert!(shell(&base, &no_deferral).contains("CONFIG: defer_foreign_keys"), "{no_deferral}");
    let forged = "PRAGMA foreign_keys = ON; BEGIN; PRAGMA defer_foreign_keys = ON; INSERT INTO leasehold_admission (resource, slot, number)
                  SELECT resource, slot, 19 FROM leasehold_fence; INSERT INTO written (number) VALUES (19);";
    assert!(shell(&base, forged).contains("STALE_TOKEN"), "a number that is not current is refused");
    assert_eq!(base.written(), [20]);

    let mut db = base.open();
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    base.fence.admit(&tx, token(20)).expect("admitted");
    put(&tx, 20).expect("written");
    assert!(tx.commit().expect_err("the admission was not ended").to_string().contains("FOREIGN KEY"));
    // Nothing of it was committed.
    drop(db);
    let mut db = base.open();
    put_raw(&db, 99).expect_err("not admitted");
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    base.fence.admit(&tx, token(20)).expect("admitted");
    base.fence.admit(&tx, token(20)).expect("admit is idempotent");
    put(&tx, 20).expect("written");
    base.fence.end_admission(&tx).expect("ended");
    put(&tx, 99).expect_err("no write after the admission has ended");
    tx.commit().expect("committed");
    assert_eq!(base.written(), [20, 20]);

    db.pragma_update(None, "foreign_keys", "OFF").expect("off");
    let off = base.fence.write(&mut db, token(20), |tx| put(tx, 20)).expect_err("foreign keys are off");
    assert_eq!(off.code(), "INVALID_ARGUMENT", "{off}");
}

#[test]
fn a_claim_of_another_process_refuses_the_predecessor() {
    let base = protected();
    let claim = format!("INSERT INTO leasehold_claim VALUES ('jobs/settle', '{}');", token(21));
    assert_eq!(shell(&base, &claim), "");
    let mut db = base.open();
    let stale = base.fence.write(&mut db, token(20), |tx| put(tx, 20)).expect_err("stale");
    assert_eq!(stale.code(), "STALE_TOKEN");
    assert!(shell(&base, &script(20, WRITES[0])).contains("STALE_TOKEN"));
    assert_eq!(shell(&base, &script(21, "INSERT INTO written (number) VALUES (21)")), "");
    assert_eq!((base.written(), base.mark()), (vec![20, 21], Some(21)));
}

#[test]
fn sequenced_writes_and_strict_fences_work_from_the_shell() {
    let base = protected();
    let sequenced = |sequence: i64| {
        format!(
            "PRAGMA foreign_keys = ON; BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON;
             INSERT INTO leasehold_admit_once VALUES ('jobs/settle', '{}', {sequence});
             INSERT INTO written (number) VALUES (20); DELETE FROM leasehold_admission; COMMIT;",
            token(20)
        )
    };
    assert_eq!(shell(&base, &sequenced(1)), "");
    assert!(shell(&base, &sequenced(1)).contains("ALREADY_APPLIED"));
    assert_eq!(shell(&base, &sequenced(2)), "");
    assert!(shell(&base, &sequenced(-1)).contains("INVALID_ARGUMENT"));
    assert_eq!(base.written(), [20, 20, 20]);

    let mut db = base.open();
    base.fence.strict(&mut db, true).expect("strict");
    let restored = leasehold_core::token::Token {
        incarnation: leasehold_core::token::Incarnation(8),
        ..crate::support::parts(30)
    };
    let claim = format!("INSERT INTO leasehold_claim VALUES ('jobs/settle', '{restored}');");
    assert!(shell(&base, &claim).contains("NOT_ADOPTED"));
    base.fence.adopt(&mut db, restored.incarnation).expect("adopted");
    assert_eq!(shell(&base, &claim), "");
    assert_eq!(base.mark(), Some(30));
}

#[test]
fn the_shell_can_install_and_protect_without_rust() {
    let manual = Database { dir: crate::fixture::directory(), ..Database::new() };
    let setup =
        format!("CREATE TABLE \"it's \"\"odd\"\"\" (a);\n{SQL}\n{}", protection_sql("it's \"odd\"", &fence_id()));
    assert_eq!(shell(&manual, &setup), "");
    assert!(shell(&manual, "INSERT INTO \"it's \"\"odd\"\"\" VALUES (1);").contains("TOKEN_INVALID: absent"));
    let mut db = Connection::open(manual.file()).expect("opens");
    install(&mut db).expect("already installed");
    let fence = Fence::new(&fence_id());
    fence.arm(&mut db).expect("armed");
    fence.protect(&mut db, "it's \"odd\"").expect("already protected");
    fence.unprotect(&mut db, "it's \"odd\"").expect("unprotected");
    assert_eq!(shell(&manual, "INSERT INTO \"it's \"\"odd\"\"\" VALUES (1);"), "");
}

#[test]
fn only_tables_of_this_database_can_be_protected_and_only_by_one_fence() {
    let base = protected();
    let mut db = base.open();
    db.execute_batch("CREATE VIEW seen AS SELECT * FROM written").expect("a view");
    for table in ["seen", "nowhere", "leasehold_fence", "sqlite_schema", ""] {
        assert_eq!(base.fence.protect(&mut db, table).expect_err(table).code(), "CONFLICT");
    }
    let other = Fence::new(&id_of(CLUSTER, "jobs/other"));
    assert_eq!(other.protect(&mut db, "written").expect_err("not armed").code(), "STORAGE_FAILED");
    other.arm(&mut db).expect("armed");
    assert_eq!(other.protect(&mut db, "written").expect_err("protected by another fence").code(), "CONFLICT");
}

#[test]
fn no_setting_and_no_row_keeps_an_admission_for_later_transactions() {
    let admission = format!("INSERT INTO leasehold_admit VALUES ('jobs/settle', '{}');", token(20));
    let attempts = [
        ("PRAGMA ignore_check_constraints = ON; INSERT INTO leasehold_empty VALUES (0);", ""),
        ("PRAGMA ignore_check_constraints = ON; INSERT OR REPLACE INTO leasehold_empty VALUES (0);", ""),
        ("PRAGMA ignore_check_constraints = ON;", "INSERT INTO leasehold_empty VALUES (0);"),
        ("PRAGMA ignore_check_constraints = ON;", "UPDATE leasehold_admission SET must_delete = 1;"),
        (
            "PRAGMA ignore_check_constraints = ON;",
            "DELETE FROM leasehold_admission; INSERT INTO leasehold_admission SELECT resource, slot, mark, NULL FROM leasehold_fence;",
        ),
        (
            "CREATE TABLE Pragma_Foreign_Keys (foreign_keys); INSERT INTO pragma_foreign_keys VALUES (1); PRAGMA foreign_keys = OFF;",
            "",
        ),
        (
            "CREATE TABLE pragma_defer_foreign_keys (defer_foreign_keys); INSERT INTO pragma_defer_foreign_keys VALUES (1); PRAGMA foreign_keys = OFF;",
            "",
        ),
        (
            "CREATE TEMP TABLE pragma_foreign_keys (foreign_keys); INSERT INTO pragma_foreign_keys VALUES (1); PRAGMA foreign_keys = OFF;",
            "",
        ),
        ("PRAGMA foreign_keys = OFF; BEGIN; PRAGMA foreign_keys = ON; COMMIT; PRAGMA foreign_keys = OFF;", ""),
    ];
    for (before, inside) in attempts {
        let base = protected();
        let script = format!(
            "PRAGMA foreign_keys = ON; {before} BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON; {admission} {inside} COMMIT;"
        );
        let refused = shell(&base, &script);
        assert!(!refused.is_empty(), "{script} was committed");
        let without_token = shell(&base, "INSERT INTO written (number) VALUES (99);");
        assert!(without_token.contains("TOKEN_INVALID: absent"), "{script}: {without_token}");
        assert_eq!(base.written(), [20]);
    }
}

/// A program forgets to end its admission, and SQLite's count of violations does not notice it, in these ways.
const LEFT: [(&str, &str); 3] = [
    // The count of the connection has no names: an orphan that is deleted balances the admission.
    (
        "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (x REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED);
      INSERT INTO c VALUES (999);",
        "DELETE FROM c;",
    ),
    (
        "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (x REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED);
      INSERT INTO c VALUES (999);",
        "INSERT INTO p VALUES (999);",
    ),
    // Switching the setting off forgets what it deferred.
    ("", "PRAGMA defer_foreign_keys = OFF;"),
];

#[test]
fn an_admission_that_was_left_admits_no_later_transaction() {
    for (before, inside) in LEFT {
        let base = protected();
        assert_eq!(shell(&base, before), "");
        let left = script(20, "SELECT 1").replace("DELETE FROM leasehold_admission;", inside);
        assert_eq!(shell(&base, &left), "", "SQLite commits this");
        let rows = |base: &Database| -> i64 {
            base.open().query_row("SELECT count(*) FROM leasehold_admission", [], |row| row.get(0)).expect("a count")
        };
        assert_eq!(rows(&base), 1, "the row is left: {inside}");
        for write in WRITES {
            let refused = shell(&base, &format!("{write};"));
            assert!(refused.contains("TOKEN_INVALID: absent"), "{inside} {write}: {refused}");
            let in_process = base.open().execute_batch(&format!("BEGIN; {write}; COMMIT")).expect_err(write);
            assert!(in_process.to_string().contains("TOKEN_INVALID: absent"), "{inside} {write}: {in_process}");
        }
        // The next transaction of the holder works, and a commit without the end of its admission fails again.
        let forgotten = script(20, "SELECT 1").replace("DELETE FROM leasehold_admission;", "");
        assert!(shell(&base, &forgotten).contains("FOREIGN KEY"));
        let mut db = base.open();
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        base.fence.admit(&tx, token(20)).expect("admitted");
        assert!(tx.commit().expect_err("the admission was not ended").to_string().contains("FOREIGN KEY"));
        drop(db);

        // After a claim the number is not the mark, and the claim removes the row.
        let raised = "PRAGMA foreign_keys = ON; BEGIN; UPDATE leasehold_fence SET mark = mark + 1; PRAGMA defer_foreign_keys = ON;
                      UPDATE written SET number = 99; COMMIT;";
        assert!(shell(&base, raised).contains("TOKEN_INVALID: absent"), "{inside}");
        let claim = format!("INSERT INTO leasehold_claim VALUES ('jobs/settle', '{}');", token(21));
        let by_shell = inside.starts_with("DELETE");
        if by_shell {
            assert_eq!(shell(&base, &claim), "");
        } else {
            base.fence.claim(&mut base.open(), token(21)).expect("claimed");
        }
        assert_eq!(rows(&base), 0, "the claim removes the row");
        let with_setting = "BEGIN; PRAGMA defer_foreign_keys = ON; UPDATE written SET number = 99; COMMIT;";
        assert!(shell(&base, with_setting).contains("TOKEN_INVALID: absent"), "{inside}");
        assert_eq!(base.written(), [20]);
    }
}

#[test]
fn a_rollback_ends_an_admission_on_the_same_connection() {
    let base = protected();
    let mut db = base.open();
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    base.fence.admit(&tx, token(20)).expect("admitted");
    tx.rollback().expect("rolled back");
    put_raw(&db, 99).expect_err("not admitted");
    base.fence.write(&mut db, token(20), |tx| put(tx, 20)).expect("written with a token");
    put_raw(&db, 99).expect_err("not admitted");
    assert_eq!(base.written(), [20, 20]);
}

#[test]
fn cascades_into_a_protected_table_need_a_token() {
    let base = protected();
    let mut db = base.open();
    db.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY) STRICT; INSERT INTO parent VALUES (1), (2);
         CREATE TABLE child (id INTEGER REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE) STRICT;
         INSERT INTO child VALUES (1), (2);",
    )
    .expect("created");
    base.fence.protect(&mut db, "child").expect("protected");
    for write in
        ["DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 9 WHERE id = 2", "REPLACE INTO parent VALUES (1)"]
    {
        let refused = shell(&base, &format!("PRAGMA foreign_keys = ON; {write};"));
        assert!(refused.contains("TOKEN_INVALID: absent"), "{write}: {refused}");
    }
}

/// Guards as versions 2 and 3 created them.
fn old_guards(table: &str) -> String {
    let (hash, slot) = (fence_id().resource_hash(), fence_id().slot());
    let guard = |statement: &str| {
        format!(
            "DROP TRIGGER leasehold_guard_{table}_{statement};
             CREATE TRIGGER leasehold_guard_{table}_{statement} BEFORE {statement} ON {table} BEGIN
             SELECT RAISE(ABORT, 'TOKEN_INVALID: absent') WHERE NOT EXISTS (
             SELECT 1 FROM leasehold_admission WHERE resource = '{hash}' AND slot = {slot}); END;"
        )
    };
    ["INSERT", "UPDATE", "DELETE"].map(guard).concat()
}

#[test]
fn version_2_is_upgraded_and_an_admission_that_outlived_its_transaction_ends() {
    let dir = crate::fixture::directory();
    let mut db = Connection::open(dir.path().join("old")).expect("a database");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.execute_batch(include_str!("version2.sql")).expect("version 2 installed");
    db.execute_batch("CREATE TABLE written (number INTEGER) STRICT").expect("a table");
    let fence = Fence::new(&fence_id());
    fence.arm(&mut db).expect("armed");
    fence.protect(&mut db, "written").expect("protected");
    db.execute_batch(&old_guards("written")).expect("guards of version 2");
    let opened = format!(
        "PRAGMA foreign_keys = ON; PRAGMA ignore_check_constraints = ON; INSERT INTO leasehold_empty VALUES (0);
         BEGIN; INSERT INTO leasehold_admit VALUES ('jobs/settle', '{}'); COMMIT;",
        token(20)
    );
    db.execute_batch(&opened).expect("version 2 allows this");
    db.execute("INSERT INTO written VALUES (19)", []).expect("the table is open to all");

    install(&mut db).expect("upgraded");
    let refused = db.execute("INSERT INTO written VALUES (19)", []).expect_err("not admitted");
    assert!(refused.to_string().contains("TOKEN_INVALID: absent"), "{refused}");
    let schema = |db: &Connection| -> Vec<String> {
        let text = "SELECT coalesce(sql, '') FROM sqlite_schema WHERE tbl_name LIKE 'leasehold%' ORDER BY 1";
        let mut statement = db.prepare(text).expect("the schema");
        statement.query_map([], |row| row.get(0)).expect("readable").map(|row| row.expect("a text")).collect()
    };
    assert_eq!(schema(&db), schema(&Database::new().open()), "the upgraded schema equals a new one");
    let probed = fence.probe_guards(&mut db, &[]).expect("probed");
    assert!(probed.iter().all(|probe| probe.finding == GuardFinding::Refused), "{probed:?}");
    db.execute_batch("PRAGMA ignore_check_constraints = OFF").expect("off");
    fence.write(&mut db, token(21), |tx| tx.execute("INSERT INTO written VALUES (21)", [])).expect("a current token");
}
