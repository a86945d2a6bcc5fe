//! Protected tables: the database refuses every kind of write without a current token (F3).

use tokio_postgres::{Client, IsolationLevel};

use crate::database::{Database, LONG, put};
use crate::support::token;

/// Creates a protected table with one row, claimed with token 20.
pub async fn protected() -> Database {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    let mut db = base.connect().await;
    base.write(&mut db, 20).await.expect("written with a token");
    base.db = db;
    base
}

/// SQLSTATE of a statement; `None` if it succeeds.
pub async fn code(db: &Client, sql: &str) -> Option<String> {
    let outcome = db.batch_execute(sql).await;
    db.batch_execute("ROLLBACK").await.expect("ended");
    outcome.err().map(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
}

pub fn admit(number: u64) -> String {
    format!("SELECT leasehold.admit('{}', 'jobs/settle')", token(number))
}

/// Statements that change the table.
const WRITES: [&str; 12] = [
    "INSERT INTO written (number) VALUES (99)",
    "INSERT INTO written (number) SELECT 99",
    "INSERT INTO written (place, number) VALUES (1, 99) ON CONFLICT (place) DO UPDATE SET number = 99",
    "UPDATE written SET number = 99",
    "UPDATE written SET number = 99 WHERE false",
    "DELETE FROM written",
    "TRUNCATE written",
    "WITH gone AS (DELETE FROM written RETURNING number) SELECT number FROM gone",
    "MERGE INTO written USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE",
    "COPY written (number) FROM PROGRAM 'echo 99'",
    "DO $$ BEGIN EXECUTE 'INSERT INTO written (number) VALUES (99)'; END $$",
    "DEALLOCATE ALL; PREPARE late AS INSERT INTO written (number) VALUES (99); EXECUTE late",
];

#[tokio::test]
async fn every_kind_of_write_is_refused_without_a_token_and_with_a_stale_one() {
    let base = protected().await;
    for write in WRITES {
        assert_eq!(code(&base.db, write).await.as_deref(), Some("LH002"), "{write}");
        assert_eq!(code(&base.db, &format!("BEGIN; {write}; COMMIT")).await.as_deref(), Some("LH002"), "{write}");
        let stale = format!("BEGIN; {}; {write}; COMMIT", admit(19));
        assert_eq!(code(&base.db, &stale).await.as_deref(), Some("LH001"), "{write}");
        let stale = format!("BEGIN; SELECT set_config('leasehold.token', '{}', true); {write}", token(19));
        assert_eq!(code(&base.db, &stale).await.as_deref(), Some("LH001"), "{write}");
        let other = format!("BEGIN; SELECT set_config('leasehold.tokens', '{}', true); {write}", token(20));
        assert_eq!(code(&base.db, &other).await.as_deref(), Some("LH002"), "{write}");
    }
    assert_eq!(base.written().await, [20]);
    for write in WRITES {
        let sql = format!("BEGIN; {}; {write}; ROLLBACK", admit(20));
        assert_eq!(code(&base.db, &sql).await, None, "allowed with a token: {write}");
    }
}

#[tokio::test]
async fn views_rules_cascades_and_triggers_of_other_tables_do_not_bypass_the_check() {
    let base = protected().await;
    base.db
        .batch_execute(
            "CREATE VIEW seen AS SELECT * FROM written;
             CREATE TABLE parent (id bigint PRIMARY KEY);
             CREATE TABLE child (id bigint REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
             INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1);
             SELECT leasehold.protect('child', 'jobs/settle');
             CREATE TABLE other (number bigint);
             CREATE FUNCTION spill() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
               $$ BEGIN INSERT INTO written (number) VALUES (NEW.number); RETURN NEW; END $$;
             CREATE TRIGGER spill BEFORE INSERT ON other FOR EACH ROW EXECUTE FUNCTION spill();
             CREATE TABLE ruled (number bigint);
             CREATE RULE spill AS ON INSERT TO ruled DO ALSO INSERT INTO written (number) VALUES (NEW.number)",
        )
        .await
        .expect("made");
    for bypass in [
        "UPDATE seen SET number = 99",
        "DELETE FROM parent",
        "UPDATE parent SET id = 2",
        "TRUNCATE parent CASCADE",
        "INSERT INTO other VALUES (99)",
        "INSERT INTO ruled VALUES (99)",
        "SET session_replication_role = replica; DELETE FROM written",
        "SET session_replication_role = replica; INSERT INTO written (number) VALUES (99)",
        "SET session_replication_role = local; UPDATE written SET number = 99",
    ] {
        assert_eq!(code(&base.db, bypass).await.as_deref(), Some("LH002"), "{bypass}");
        base.db.batch_execute("RESET session_replication_role").await.expect("reset");
    }
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn settings_left_over_in_a_session_or_pool_admit_no_write() {
    let base = protected().await;
    let key: String = base
        .db
        .query_one("SELECT 'leasehold.token_' || to_hex(leasehold.lock_key('jobs/settle', 0))", &[])
        .await
        .expect("read")
        .get(0);
    let insert = "INSERT INTO written (number) VALUES (99)";
    // The previous transaction on this connection was admitted.
    base.db.batch_execute(&format!("BEGIN; {}; {insert}; ROLLBACK", admit(20))).await.expect("admitted");
    assert_eq!(code(&base.db, insert).await.as_deref(), Some("LH002"));
    // It also leaked the setting to the session.
    let leak = format!("BEGIN; {}; SELECT set_config('{key}', current_setting('{key}'), false); COMMIT", admit(20));
    base.db.batch_execute(&leak).await.expect("leaked");
    let leaked: String = base.db.query_one("SELECT current_setting($1)", &[&key]).await.expect("read").get(0);
    assert!(leaked.ends_with(&token(20)));
    assert_eq!(code(&base.db, insert).await.as_deref(), Some("LH002"));
    // A stale token that names the right transaction is still stale.
    let forged = format!(
        "BEGIN; SELECT set_config('{key}', pg_current_xact_id()::text || ':{}', true); {insert}; COMMIT",
        token(19)
    );
    assert_eq!(code(&base.db, &forged).await.as_deref(), Some("LH001"));
    // An admission that was rolled back does not count.
    let undone = format!("BEGIN; SAVEPOINT s; {}; ROLLBACK TO s; {insert}; COMMIT", admit(20));
    assert_eq!(code(&base.db, &undone).await.as_deref(), Some("LH002"));
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn a_protected_table_refuses_zombies_at_every_isolation_level() {
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let base = protected().await;
        let mut old = base.connect().await;
        let tx = old.build_transaction().isolation_level(level).start().await.expect("begun");
        tx.query("SELECT number FROM written", &[]).await.expect("takes the snapshot");
        base.fence.claim(&base.db, &token(21)).await.expect("the successor claims");
        let refused = base.fence.admit(&tx, &token(20), LONG).await.expect_err("stale");
        assert!(["STALE_TOKEN", "UNAVAILABLE"].contains(&refused.code()), "{level:?}: {refused}");
        put(&tx, 20).await.expect_err("the transaction has failed");
        drop(tx);
        // A write without an admission.
        let tx = old.build_transaction().isolation_level(level).start().await.expect("begun");
        let error = put(&tx, 20).await.expect_err("no token was presented");
        assert_eq!(error.code().map(|code| code.code()), Some("LH002"), "{level:?}");
        drop(tx);
        // A current holder can write at this level.
        let tx = old.build_transaction().isolation_level(level).start().await.expect("begun");
        base.fence.admit(&tx, &token(21), LONG).await.expect("admitted");
        put(&tx, 21).await.expect("written");
        tx.commit().await.expect("committed");
        assert_eq!(base.written().await, [20, 21], "{level:?}");
    }
}

#[tokio::test]
async fn an_application_role_writes_with_a_token_and_cannot_remove_the_protection() {
    let base = protected().await;
    let role = format!("app_{}", base.name);
    let grants = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}; GRANT ALL ON written TO {role};
         GRANT USAGE ON SEQUENCE written_place_seq TO {role}"
    );
    base.db.batch_execute(&grants).await.expect("a role");
    let mut app = base.server.connect(&role, &base.name).await.expect("connected");
    base.write(&mut app, 20).await.expect("with a token");
    assert_eq!(code(&app, "INSERT INTO written (number) VALUES (99)").await.as_deref(), Some("LH002"));
    for forbidden in [
        "ALTER TABLE written DISABLE TRIGGER ALL",
        "DROP TRIGGER leasehold_guard ON written",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION leasehold.guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "SELECT leasehold.unprotect('written')",
        "DROP TABLE written",
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false)",
    ] {
        assert_eq!(code(&app, forbidden).await.as_deref(), Some("42501"), "{forbidden}");
    }
    assert_eq!(base.written().await, [20, 20]);
}

#[tokio::test]
async fn an_unprotected_table_accepts_all_writes_again() {
    let base = protected().await;
    base.fence.unprotect(&base.db, "written").await.expect("unprotected");
    base.db.batch_execute("INSERT INTO written (number) VALUES (7)").await.expect("no token needed");
    assert_eq!(base.written().await, [20, 7]);
    base.fence.protect(&base.db, "written").await.expect("protected again");
    base.fence.protect(&base.db, "written").await.expect("protect is idempotent");
    assert_eq!(code(&base.db, "DELETE FROM written").await.as_deref(), Some("LH002"));
}
