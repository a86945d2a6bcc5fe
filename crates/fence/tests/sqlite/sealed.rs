//! Sealed tables: a connection without `leasehold_verify` writes nothing, and one with it only what a key signed (A8).

use leasehold_core::name::resource_hash;
use leasehold_fence::sqlite::{GuardFinding, VERSION, install, list_marks, register_verifier};
use leasehold_fence::{Error, SealKeys, SealVerifier};
use leasehold_seal::SealKey;
use rusqlite::Connection;

use crate::fixture::{Database, put, put_raw};
use crate::protected_tables::shell;
use crate::support::{RESOURCE, fence_id, parts, token};

/// A database with a sealed fence that protects the table, and what its writers need.
struct Sealed {
    base: Database,
    key: SealKey,
    verifier: SealVerifier,
}

impl Sealed {
    fn new() -> Self {
        let (base, key) = (Database::new(), SealKey::generate(0).expect("a key"));
        let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
        let mut db = base.open();
        base.fence.protect(&mut db, "written").expect("protected");
        base.fence.seal(&mut db).expect("sealed");
        let base = Database { fence: base.fence.clone().with_seal_verifier(&verifier), ..base };
        Self { base, key, verifier }
    }

    fn token(&self, number: u64) -> String {
        self.key.seal(&parts(number), RESOURCE).to_string()
    }

    /// A connection with the function, in plain SQL.
    fn registered(&self) -> Connection {
        let db = self.base.open();
        register_verifier(&db, &self.verifier).expect("registered");
        db.pragma_update(None, "foreign_keys", true).expect("on");
        db
    }
}

/// A transaction in plain SQL that admits a token and writes a row.
fn script(token: &str, number: u64) -> String {
    format!(
        "BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON; INSERT INTO leasehold_admit VALUES ('{RESOURCE}', '{token}');
         INSERT INTO written (number) VALUES ({number}); DELETE FROM leasehold_admission; COMMIT;"
    )
}

#[test]
fn the_shell_has_no_function_and_can_neither_write_nor_claim_nor_admit() {
    let sealed = Sealed::new();
    let genuine = sealed.token(40);
    sealed.base.fence.claim(&mut sealed.base.open(), &genuine).expect("claimed with keys");
    let foreign_keys = "PRAGMA foreign_keys = ON;";
    for sql in [
        "INSERT INTO written (number) VALUES (1);".to_owned(),
        "UPDATE written SET number = 1;".to_owned(),
        "DELETE FROM written;".to_owned(),
        format!("INSERT INTO leasehold_claim VALUES ('{RESOURCE}', '{genuine}');"),
        format!("INSERT INTO leasehold_claim VALUES ('{RESOURCE}', '{}');", token(41)),
        format!("{foreign_keys} {}", script(&genuine, 40)),
        format!("{foreign_keys} {}", script(&token(41), 41)),
    ] {
        let error = shell(&sealed.base, &sql);
        assert!(error.contains("no such function: leasehold_verify"), "{sql}: {error}");
    }
    // The steps that the views do, one by one. The guards need the function nevertheless.
    let by_hand = format!(
        "{foreign_keys} BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON;
         INSERT INTO leasehold_admission (resource, slot, number, token)
           SELECT resource, slot, mark, '{genuine}' FROM leasehold_fence;
         INSERT INTO written (number) VALUES (40);"
    );
    let error = shell(&sealed.base, &by_hand);
    assert!(error.contains("no such function: leasehold_verify"), "{error}");
    assert_eq!((sealed.base.written(), sealed.base.mark()), (Vec::new(), Some(40)));
}

#[test]
fn a_connection_with_the_function_writes_only_with_a_token_that_a_key_signed_for_the_name() {
    let sealed = Sealed::new();
    let db = sealed.registered();
    let other = SealKey::generate(0).expect("a key");
    let genuine = sealed.token(40);
    db.execute_batch(&script(&genuine, 40)).expect("signed by the key");
    let mut flipped = sealed.key.seal(&parts(50), RESOURCE);
    flipped.seal.signature[3] ^= 1;
    for (what, forged) in [
        ("plain", token(50)),
        ("another key", other.seal(&parts(50), RESOURCE).to_string()),
        ("a name with the same hash", sealed.key.seal(&parts(50), "jobs/twin").to_string()),
        ("a flipped bit", flipped.to_string()),
        ("the signature of a lower number", genuine.replacen("0000040-", "0000050-", 1)),
    ] {
        let error = db.execute_batch(&script(&forged, 50)).expect_err(what).to_string();
        assert!(error.contains("TOKEN_INVALID"), "{what}: {error}");
        db.execute_batch("ROLLBACK").expect("rolled back");
        // By hand, past the views: anyone who may write the file can raise the mark, and no one can write a row.
        let by_hand = format!(
            "BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON;
             UPDATE leasehold_fence SET mark = 50; INSERT INTO leasehold_admission (resource, slot, number, token)
               SELECT resource, slot, mark, '{forged}' FROM leasehold_fence;
             INSERT INTO written (number) VALUES (50);"
        );
        let error = db.execute_batch(&by_hand).expect_err(what).to_string();
        assert!(error.contains("TOKEN_INVALID: signature"), "{what}: {error}");
        db.execute_batch("ROLLBACK").expect("rolled back");
    }
    // A genuine token of a lower number does not fit an admission with another one.
    let lower = format!(
        "BEGIN IMMEDIATE; PRAGMA defer_foreign_keys = ON;
         UPDATE leasehold_fence SET mark = 50; INSERT INTO leasehold_admission (resource, slot, number, token)
           SELECT resource, slot, mark, '{genuine}' FROM leasehold_fence; INSERT INTO written (number) VALUES (50);"
    );
    assert!(db.execute_batch(&lower).expect_err("another number").to_string().contains("TOKEN_INVALID: signature"));
    db.execute_batch("ROLLBACK").expect("rolled back");
    assert_eq!((sealed.base.written(), sealed.base.mark()), (vec![40], Some(40)));
}

#[test]
fn a_changed_name_in_the_row_does_not_let_a_token_of_that_name_pass() {
    let sealed = Sealed::new();
    let db = sealed.registered();
    let twin = sealed.key.seal(&parts(50), "jobs/twin").to_string();
    db.execute_batch("UPDATE leasehold_fence SET name = 'jobs/twin'").expect("names are for people");
    let admit = script(&twin, 50).replace(&format!("'{RESOURCE}'"), "'jobs/twin'");
    assert!(db.execute_batch(&admit).expect_err("signed for another name").to_string().contains("TOKEN_INVALID"));
    db.execute_batch("ROLLBACK").expect("rolled back");
    assert_eq!(sealed.base.written(), [0_u64; 0]);
}

#[test]
fn a_seal_cannot_be_removed_and_a_fence_without_keys_refuses() {
    let sealed = Sealed::new();
    let mut db = sealed.base.open();
    for sql in [
        "DELETE FROM leasehold_sealed",
        "UPDATE leasehold_sealed SET name = 'x'",
        "INSERT OR REPLACE INTO leasehold_sealed SELECT resource, slot, 'x', cluster FROM leasehold_sealed",
    ] {
        assert!(db.execute_batch(sql).expect_err(sql).to_string().contains("CONFLICT"), "{sql}");
    }
    let without_keys = leasehold_fence::sqlite::Fence::new(&fence_id());
    without_keys.seal(&mut db).expect("sealed already");
    let reason = |error: Error| error.refusal().expect("refused").reason();
    assert_eq!(reason(without_keys.claim(&mut db, token(41)).expect_err("plain")), "unsealed");
    assert_eq!(reason(without_keys.claim(&mut db, sealed.token(41)).expect_err("no keys")), "no_seal_keys");
    let written = without_keys.write(&mut db, sealed.token(41), |tx| put(tx, 41));
    assert_eq!(reason(written.expect_err("no keys")), "no_seal_keys");
    assert!(list_marks(&db).expect("listed").iter().all(|mark| mark.sealed));
    sealed.base.fence.write(&mut db, sealed.token(41), |tx| put(tx, 41)).expect("with keys");
    put_raw(&db, 42).expect_err("not admitted");
    assert_eq!(sealed.base.written(), [41]);
}

#[test]
fn a_table_that_is_protected_later_is_sealed_too_and_the_probe_finds_no_hole() {
    let sealed = Sealed::new();
    let mut db = sealed.base.open();
    db.execute_batch("CREATE TABLE later (number INTEGER) STRICT").expect("a table");
    sealed.base.fence.protect(&mut db, "later").expect("protected");
    let error = shell(&sealed.base, "INSERT INTO later VALUES (1);");
    assert!(error.contains("no such function: leasehold_verify"), "{error}");
    // On a connection without keys, and on one with them.
    for mut prober in [sealed.base.open(), sealed.registered()] {
        let probed = sealed.base.fence.probe_guards(&mut prober, &[]).expect("probed");
        assert_eq!(probed.len(), 2, "{probed:?}");
        assert!(probed.iter().all(|probe| probe.finding == GuardFinding::Refused), "{probed:?}");
    }
    db.execute_batch("DROP TRIGGER leasehold_verify_seal").expect("the owner of the file can");
    let probed = sealed.base.fence.probe_guards(&mut db, &[]).expect("probed");
    assert!(probed.iter().any(|probe| probe.finding == GuardFinding::Altered), "{probed:?}");
}

#[test]
fn version_4_works_without_an_upgrade_is_upgraded_and_then_sealed() {
    let base = Database::new();
    let mut db = Connection::open(base.dir.path().join("old")).expect("a database");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.execute_batch(include_str!("version4.sql")).expect("version 4 installed");
    db.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT")
        .expect("a table");
    let fence = leasehold_fence::sqlite::Fence::new(&fence_id());
    fence.arm(&mut db).expect("armed");
    fence.protect(&mut db, "written").expect("protected");
    fence.write(&mut db, token(20), |tx| put(tx, 20)).expect("this release writes to version 4");
    assert!(matches!(fence.seal(&mut db).expect_err("version 4"), Error::Version { found: 4, supported: VERSION }));
    install(&mut db).expect("upgraded");
    assert_eq!(fence.mark(&db).expect("preserved").map(|mark| mark.get()), Some(20));
    put_raw(&db, 21).expect_err("the guards are there");
    fence.write(&mut db, token(21), |tx| put(tx, 21)).expect("written");
    let schema = |db: &Connection| -> Vec<String> {
        let text = "SELECT coalesce(sql, '') FROM sqlite_schema WHERE tbl_name LIKE 'leasehold%' ORDER BY 1";
        let mut statement = db.prepare(text).expect("the schema");
        statement.query_map([], |row| row.get(0)).expect("readable").map(|row| row.expect("a text")).collect()
    };
    assert_eq!(schema(&db), schema(&base.open()), "the upgraded schema equals a new one");
    fence.seal(&mut db).expect("sealed");
    put_raw(&db, 22).expect_err("no function");
    let hash = format!("{:016x}", u64::from_be_bytes(resource_hash(RESOURCE)));
    let sealed: String = db.query_row("SELECT resource FROM leasehold_sealed", [], |row| row.get(0)).expect("a row");
    assert_eq!(sealed, hash);
}
