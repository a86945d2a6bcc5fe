//! Probes of protected tables: they find every way in which a guard is gone, and change nothing.

use leasehold_fence::sqlite::{Fence, GuardFinding, GuardProbe};
use rusqlite::Connection;

use crate::fixture::{Database, put};
use crate::support::{CLUSTER, id_of, token};

/// A database with two protected tables, of which `empty` has no row and columns that reject default values.
fn protected() -> Database {
    let base = Database::new();
    let mut db = base.open();
    db.execute_batch("CREATE TABLE empty (id INTEGER NOT NULL, name TEXT NOT NULL CHECK (name <> ''), PRIMARY KEY (id, name)) WITHOUT ROWID")
        .expect("a table");
    base.fence.claim(&mut db, token(20)).expect("claimed");
    base.fence.protect(&mut db, "written").expect("protected");
    base.fence.protect(&mut db, "empty").expect("protected");
    for _ in 0..3 {
        base.fence.write(&mut db, token(20), |tx| put(tx, 20)).expect("written with a token");
    }
    base
}

fn probe(base: &Database, tables: &[&str]) -> Vec<(String, GuardFinding)> {
    let tables: Vec<String> = tables.iter().map(|&table| table.to_owned()).collect();
    let before = content(base);
    let probes = base.fence.probe_guards(&mut base.open(), &tables).expect("probed");
    assert_eq!(content(base), before, "a probe changes nothing");
    probes.into_iter().map(|GuardProbe { table, finding, .. }| (table, finding)).collect()
}

/// All rows and the whole schema.
fn content(base: &Database) -> (Vec<u64>, Option<u64>, String) {
    let sql = "SELECT group_concat(type || name || coalesce(sql, ''), ';') FROM sqlite_schema";
    (base.written(), base.mark(), base.open().query_row(sql, [], |row| row.get(0)).expect("a schema"))
}

fn run(base: &Database, sql: &str) {
    base.open().execute_batch(sql).expect(sql);
}

#[test]
fn a_protected_table_refuses_the_probe_with_and_without_rows() {
    let base = protected();
    let refused = |table: &str| (table.to_owned(), GuardFinding::Refused);
    assert_eq!(probe(&base, &[]), [refused("empty"), refused("written")]);
    assert_eq!(probe(&base, &["WRITTEN"]), [refused("empty"), refused("written")], "each table once");
}

#[test]
fn a_removed_guard_is_found_for_each_statement() {
    for statement in ["INSERT", "UPDATE", "DELETE"] {
        for table in ["written", "empty"] {
            let base = protected();
            run(&base, &format!("DROP TRIGGER leasehold_guard_{table}_{statement}"));
            let found = probe(&base, &[]).into_iter().find(|(name, _)| name == table).expect("it is listed");
            assert_eq!(found.1, GuardFinding::Unguarded { statement }, "{table}");
        }
    }
}

#[test]
fn a_guard_that_never_fires_is_found_by_a_write_without_a_token() {
    for statement in ["INSERT", "UPDATE", "DELETE"] {
        let base = protected();
        let name = format!("leasehold_guard_written_{statement}");
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let guard: String = base.open().query_row(sql, [&name], |row| row.get(0)).expect("the guard");
        let disabled = guard.replacen(" BEGIN", " WHEN 0 BEGIN", 1);
        run(&base, &format!("DROP TRIGGER {name}; {disabled}"));
        let found = probe(&base, &[]).into_iter().find(|(name, _)| name == "written").expect("it is listed");
        assert_eq!(found.1, GuardFinding::Accepted { statement }, "{disabled}");
        base.fence.protect(&mut base.open(), "written").expect("protected again");
        assert!(
            probe(&base, &[]).iter().all(|(_, finding)| *finding == GuardFinding::Refused),
            "the guard is replaced"
        );
    }
}

#[test]
fn a_guard_that_refuses_some_writes_only_is_found_by_its_text() {
    let weakened = [
        ("UPDATE", "BEFORE UPDATE ON", "BEFORE UPDATE OF number ON"),
        ("INSERT", " BEGIN", " WHEN NEW.number IS NULL BEGIN"),
        ("DELETE", " BEGIN", " WHEN OLD.number > 0 BEGIN"),
        ("DELETE", "f.mark = a.number", "f.mark >= a.number"),
    ];
    for (statement, from, to) in weakened {
        let base = protected();
        let name = format!("leasehold_guard_written_{statement}");
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let guard: String = base.open().query_row(sql, [&name], |row| row.get(0)).expect("the guard");
        let weak = guard.replacen(from, to, 1);
        assert_ne!(weak, guard);
        run(&base, &format!("DROP TRIGGER {name}; {weak}"));
        let found = probe(&base, &[]).into_iter().find(|(name, _)| name == "written").expect("it is listed");
        assert!(matches!(found.1, GuardFinding::Altered | GuardFinding::Accepted { .. }), "{weak}: {found:?}");
        base.fence.protect(&mut base.open(), "written").expect("protected again");
        assert!(probe(&base, &[]).iter().all(|(_, finding)| *finding == GuardFinding::Refused));
    }
}

#[test]
fn an_admission_that_a_transaction_left_is_found() {
    let base = protected();
    run(
        &base,
        &format!(
            "PRAGMA foreign_keys = ON; BEGIN; PRAGMA defer_foreign_keys = ON;
             INSERT INTO leasehold_admit VALUES ('jobs/settle', '{}'); PRAGMA defer_foreign_keys = OFF; COMMIT;",
            token(20)
        ),
    );
    assert_eq!(probe(&base, &[])[1].1, GuardFinding::Accepted { statement: "INSERT" });
    base.fence.claim(&mut base.open(), token(20)).expect("claimed");
    assert_eq!(probe(&base, &[])[1].1, GuardFinding::Refused);
}

#[test]
fn a_check_of_the_fence_that_is_gone_changed_or_added_is_found() {
    let altered = |name: &str| (name.to_owned(), GuardFinding::Altered);
    let base = protected();
    run(&base, "DROP TRIGGER leasehold_check_admission");
    assert_eq!(probe(&base, &[])[0], altered("leasehold_check_admission"));
    let base = protected();
    run(&base, "CREATE TRIGGER helpful AFTER DELETE ON leasehold_admission BEGIN SELECT 1; END");
    assert_eq!(probe(&base, &[])[0], altered("helpful"));
}

#[test]
fn an_unprotected_a_missing_and_a_foreign_table_are_distinguished() {
    let base = protected();
    let mut db = base.open();
    base.fence.unprotect(&mut db, "written").expect("unprotected");
    assert_eq!(probe(&base, &[]), [("empty".to_owned(), GuardFinding::Refused)], "the database forgot the table");
    let declared = probe(&base, &["written", "gone"]);
    assert_eq!(declared[1], ("written".to_owned(), GuardFinding::Unguarded { statement: "INSERT" }));
    assert_eq!(declared[2], ("gone".to_owned(), GuardFinding::NoTable));
    let other = Fence::new(&id_of(CLUSTER, "jobs/other"));
    other.arm(&mut db).expect("armed");
    other.protect(&mut db, "written").expect("protected");
    assert_eq!(probe(&base, &["written"])[1].1, GuardFinding::OtherFence);
}

#[test]
fn a_trigger_of_the_application_that_fires_first_is_not_taken_for_a_missing_guard() {
    let base = protected();
    run(
        &base,
        "CREATE TRIGGER validate BEFORE INSERT ON written BEGIN SELECT RAISE(ABORT, 'a number is required') WHERE NEW.number IS NULL; END",
    );
    assert_eq!(probe(&base, &[])[1].1, GuardFinding::Refused);
}

#[test]
fn a_database_without_the_fence_and_a_locked_one_are_not_reported_as_protected() {
    let base = Database::new();
    assert_eq!(probe(&base, &[]), [], "nothing is protected");
    let base = protected();
    let lock = base.open();
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let fence = base.fence.clone().with_claim_timeout(std::time::Duration::from_millis(20));
    let blocked = fence.probe_guards(&mut base.open(), &[]).expect_err("another writer holds the database");
    assert_eq!(blocked.code(), "UNAVAILABLE", "{blocked}");
    let plain = Connection::open_in_memory().and_then(|mut db| {
        db.execute_batch("CREATE TABLE t (a)")?;
        Ok(base.fence.probe_guards(&mut db, &["t".to_owned()]))
    });
    let plain = plain.expect("opens").expect("probed");
    assert_eq!(plain[0].finding, GuardFinding::Unguarded { statement: "INSERT" });
}
