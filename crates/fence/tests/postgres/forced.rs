//! Forced mode: the database itself refuses every way to write to a protected table without a current token (F3).

use tokio_postgres::{Client, IsolationLevel};

use crate::database::{Database, LONG, put};
use crate::support::token;

/// A protected table, a claim of 20 and one row.
pub async fn protected() -> Database {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    let mut db = base.connect().await;
    base.write(&mut db, 20).await.expect("a holder writes");
    base.db = db;
    base
}

/// The SQLSTATE that a statement ends with; none if it passed.
pub async fn code(db: &Client, sql: &str) -> Option<String> {
    let outcome = db.batch_execute(sql).await;
    db.batch_execute("ROLLBACK").await.expect("ended");
    outcome.err().map(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
}

pub fn admit(number: u64) -> String {
    format!("SELECT leasehold.admit('{}', 'jobs/settle')", token(number))
}

/// Every statement that changes what is in the table.
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
async fn every_way_of_writing_is_refused_without_a_token_and_with_a_stale_one() {
    let base = protected().await;
    for write in WRITES {
        assert_eq!(code(&base.db, write).await.as_deref(), Some("LH002"), "{write}");
        assert_eq!(code(&base.db, &format!("BEGIN; {write}; COMMIT")).await.as_deref(), Some("LH002"), "{write}");
        let late = format!("BEGIN; {}; {write}; COMMIT", admit(19));
        assert_eq!(code(&base.db, &late).await.as_deref(), Some("LH001"), "{write}");
        let other = format!("BEGIN; SELECT set_config('leasehold.token', '{}', true); {write}", token(20));
        assert_eq!(code(&base.db, &other).await.as_deref(), Some("LH002"), "{write}");
    }
    assert_eq!(base.written().await, [20]);
    for write in WRITES {
        let sql = format!("BEGIN; {}; {write}; ROLLBACK", admit(20));
        assert_eq!(code(&base.db, &sql).await, None, "a holder may: {write}");
    }
}

#[tokio::test]
async fn views_rules_cascades_and_triggers_of_other_tables_are_no_way_around() {
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
    for around in [
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
        assert_eq!(code(&base.db, around).await.as_deref(), Some("LH002"), "{around}");
        base.db.batch_execute("RESET session_replication_role").await.expect("reset");
    }
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn what_a_session_or_a_pool_left_over_admits_nobody() {
    let base = protected().await;
    let key: String = base
        .db
        .query_one("SELECT 'leasehold.p' || to_hex(leasehold.lock_of('jobs/settle', 0))", &[])
        .await
        .expect("told")
        .get(0);
    let insert = "INSERT INTO written (number) VALUES (99)";
    // The transaction before on the same connection was admitted.
    base.db.batch_execute(&format!("BEGIN; {}; {insert}; ROLLBACK", admit(20))).await.expect("a holder");
    assert_eq!(code(&base.db, insert).await.as_deref(), Some("LH002"));
    // It even left the setting to the session.
    let leak = format!("BEGIN; {}; SELECT set_config('{key}', current_setting('{key}'), false); COMMIT", admit(20));
    base.db.batch_execute(&leak).await.expect("left");
    let left: String = base.db.query_one("SELECT current_setting($1)", &[&key]).await.expect("it is there").get(0);
    assert!(left.ends_with(&token(20)));
    assert_eq!(code(&base.db, insert).await.as_deref(), Some("LH002"));
    // A stale token that is bound to the right transaction is still stale.
    let forged = format!(
        "BEGIN; SELECT set_config('{key}', pg_current_xact_id()::text || ':{}', true); {insert}; COMMIT",
        token(19)
    );
    assert_eq!(code(&base.db, &forged).await.as_deref(), Some("LH001"));
    // An admission that was rolled back is none.
    let undone = format!("BEGIN; SAVEPOINT s; {}; ROLLBACK TO s; {insert}; COMMIT", admit(20));
    assert_eq!(code(&base.db, &undone).await.as_deref(), Some("LH002"));
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn zombies_at_every_isolation_level_are_refused_by_the_table_itself() {
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let base = protected().await;
        let mut old = base.connect().await;
        let tx = old.build_transaction().isolation_level(level).start().await.expect("it begins");
        tx.query("SELECT number FROM written", &[]).await.expect("its snapshot is of now");
        base.fence.claim(&base.db, &token(21)).await.expect("the successor claims meanwhile");
        let refused = base.fence.admit(&tx, &token(20), LONG).await.expect_err("too late");
        assert!(["STALE_TOKEN", "UNAVAILABLE"].contains(&refused.code()), "{level:?}: {refused}");
        put(&tx, 20).await.expect_err("the transaction has failed");
        drop(tx);
        // One that tries without asking.
        let tx = old.build_transaction().isolation_level(level).start().await.expect("it begins");
        let error = put(&tx, 20).await.expect_err("no token was shown");
        assert_eq!(error.code().map(|code| code.code()), Some("LH002"), "{level:?}");
        drop(tx);
        // And a holder at this level writes.
        let tx = old.build_transaction().isolation_level(level).start().await.expect("it begins");
        base.fence.admit(&tx, &token(21), LONG).await.expect("admitted");
        put(&tx, 21).await.expect("written");
        tx.commit().await.expect("committed");
        assert_eq!(base.written().await, [20, 21], "{level:?}");
    }
}

#[tokio::test]
async fn an_app_that_is_not_the_owner_writes_with_a_token_and_can_do_nothing_about_the_guard() {
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
    for beyond in [
        "ALTER TABLE written DISABLE TRIGGER ALL",
        "DROP TRIGGER leasehold_guard ON written",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION leasehold.guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "SELECT leasehold.unprotect('written')",
        "DROP TABLE written",
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false)",
    ] {
        assert_eq!(code(&app, beyond).await.as_deref(), Some("42501"), "{beyond}");
    }
    assert_eq!(base.written().await, [20, 20]);
}

#[tokio::test]
async fn unprotecting_lets_everybody_write_again() {
    let base = protected().await;
    base.fence.unprotect(&base.db, "written").await.expect("unprotected");
    base.db.batch_execute("INSERT INTO written (number) VALUES (7)").await.expect("nobody asks");
    assert_eq!(base.written().await, [20, 7]);
    base.fence.protect(&base.db, "written").await.expect("and protected again");
    base.fence.protect(&base.db, "written").await.expect("twice is as good as once");
    assert_eq!(code(&base.db, "DELETE FROM written").await.as_deref(), Some("LH002"));
}
