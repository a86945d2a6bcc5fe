//! Attempts of a table's owner to bypass its protection: DDL, partitions and children.

use crate::protected_tables::{admit, code, protected};

#[tokio::test]
async fn guard_triggers_cannot_be_disabled_replaced_or_dropped_even_with_a_token() {
    let base = protected().await;
    let noop = "CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'";
    base.db.batch_execute(noop).await.expect("a function");
    let sql = "SELECT 'leasehold.guard_' || to_hex(leasehold.lock_key($1, 0))";
    let guard: String =
        base.db.query_one(sql, &[&crate::support::RESOURCE]).await.expect("the name of the guard function").get(0);
    let drop_guard = format!("DROP FUNCTION {guard}() CASCADE");
    let drop_row_guard = format!("DROP FUNCTION {guard}_row() CASCADE");
    let other_events = format!(
        "CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT ON written FOR EACH STATEMENT EXECUTE FUNCTION {guard}()"
    );
    let other_condition = format!(
        "DROP TRIGGER leasehold_guard_row ON written; CREATE TRIGGER leasehold_guard_row BEFORE INSERT ON written FOR EACH ROW
           WHEN (false) EXECUTE FUNCTION {guard}_row()"
    );
    for bypass in [
        "ALTER TABLE written DISABLE TRIGGER ALL",
        "ALTER TABLE written DISABLE TRIGGER leasehold_guard",
        "ALTER TABLE written DISABLE TRIGGER leasehold_guard_row",
        "ALTER TABLE written ENABLE TRIGGER leasehold_guard",
        "ALTER TABLE written ENABLE REPLICA TRIGGER leasehold_guard",
        "DROP TRIGGER leasehold_guard ON written",
        "DROP TRIGGER leasehold_guard_row ON written",
        "ALTER TRIGGER leasehold_guard ON written RENAME TO gone",
        "CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT ON written FOR EACH STATEMENT EXECUTE FUNCTION noop()",
        &drop_guard,
        &drop_row_guard,
        &other_events,
        &other_condition,
    ] {
        for sql in [bypass.to_owned(), format!("BEGIN; {}; {bypass}; COMMIT", admit(20))] {
            let refused = code(&base.db, &sql).await;
            assert!(matches!(refused.as_deref(), Some("LH009" | "LH002")), "{sql}: {refused:?}");
        }
    }
    assert_eq!(code(&base.db, "DELETE FROM written").await.as_deref(), Some("LH002"), "the guard still works");
}

#[tokio::test]
async fn ddl_that_changes_a_protected_table_needs_a_token_like_any_write() {
    let base = protected().await;
    base.db.batch_execute("CREATE TABLE loose (place bigint NOT NULL, number bigint NOT NULL)").await.expect("a table");
    for change in [
        "ALTER TABLE written ALTER number TYPE bigint USING number + 1",
        "ALTER TABLE written ADD COLUMN more text DEFAULT 'x'",
        "ALTER TABLE written DROP COLUMN number",
        "ALTER TABLE written RENAME COLUMN number TO n",
        "ALTER TABLE written RENAME TO elsewhere",
        "ALTER TABLE loose INHERIT written",
        "DROP TABLE written",
    ] {
        assert_eq!(code(&base.db, change).await.as_deref(), Some("LH002"), "{change}");
        let stale = format!("BEGIN; {}; {change}; COMMIT", admit(19));
        assert_eq!(code(&base.db, &stale).await.as_deref(), Some("LH001"), "{change}");
        let admitted = format!("BEGIN; {}; {change}; ROLLBACK", admit(20));
        assert_eq!(code(&base.db, &admitted).await, None, "allowed with a token: {change}");
    }
    base.db
        .batch_execute("CREATE INDEX by_number ON written (number)")
        .await
        .expect("an index does not change the rows");
    base.db
        .batch_execute("CREATE TABLE unrelated (a int); ALTER TABLE unrelated ADD b int; DROP TABLE unrelated")
        .await
        .expect("other tables are not affected");
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn children_and_partitions_are_protected_when_attached_and_after_detaching() {
    let base = protected().await;
    base.db
        .batch_execute(
            "CREATE TABLE child () INHERITS (written);
             CREATE TABLE parts (id bigint, v bigint) PARTITION BY RANGE (id);
             CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
             SELECT leasehold.protect('parts', 'jobs/settle');
             CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
             CREATE TABLE part3 (id bigint, v bigint);
             INSERT INTO part3 VALUES (21, 1)",
        )
        .await
        .expect("made");
    let attach = "ALTER TABLE parts ATTACH PARTITION part3 FOR VALUES FROM (20) TO (30)";
    assert_eq!(code(&base.db, attach).await.as_deref(), Some("LH002"), "attaching rows is a write");
    base.db.batch_execute(&format!("BEGIN; {}; {attach}; COMMIT", admit(20))).await.expect("attached with a token");
    for write in [
        "INSERT INTO child (number) VALUES (99)",
        "INSERT INTO parts VALUES (1, 1)",
        "INSERT INTO part1 VALUES (1, 1)",
        "INSERT INTO part2 VALUES (11, 1)",
        "UPDATE part3 SET v = 2",
        "DELETE FROM part3",
        "TRUNCATE part2",
        "ALTER TABLE parts DETACH PARTITION part3",
        "ALTER TABLE part2 DISABLE TRIGGER leasehold_guard",
        "ALTER TABLE child NO INHERIT written",
        "DROP TABLE part2",
        "DROP TABLE child",
        "SET session_replication_role = replica; INSERT INTO part1 VALUES (1, 1)",
    ] {
        let refused = code(&base.db, write).await;
        assert!(matches!(refused.as_deref(), Some("LH002" | "LH009")), "{write}: {refused:?}");
        base.db.batch_execute("RESET session_replication_role").await.expect("reset");
    }
    let admitted =
        format!("BEGIN; {}; INSERT INTO parts VALUES (1, 1), (11, 1); UPDATE part3 SET v = 2; COMMIT", admit(20));
    base.db.batch_execute(&admitted).await.expect("written with a token");
    let leave = format!("BEGIN; {}; ALTER TABLE parts DETACH PARTITION part3; COMMIT", admit(20));
    base.db.batch_execute(&leave).await.expect("detached with a token");
    assert_eq!(
        code(&base.db, "DELETE FROM part3").await.as_deref(),
        Some("LH002"),
        "a detached partition stays protected"
    );
    base.fence.unprotect(&base.db, "part3").await.expect("unprotected");
    base.db.batch_execute("DELETE FROM part3").await.expect("not protected any more");
    base.fence.unprotect(&base.db, "parts").await.expect("unprotected with its partitions");
    base.db.batch_execute("DELETE FROM part1; DROP TABLE parts").await.expect("not protected any more");
}

#[tokio::test]
async fn only_tables_can_be_protected_and_only_by_one_fence() {
    let base = protected().await;
    base.db.batch_execute("CREATE VIEW seen AS SELECT * FROM written").await.expect("a view");
    for (sql, want) in [
        ("SELECT leasehold.protect('seen', 'jobs/settle')", "LH009"),
        ("SELECT leasehold.protect('written', 'jobs/unknown')", "LH005"),
        ("SELECT leasehold.protect('nowhere', 'jobs/settle')", "42P01"),
    ] {
        assert_eq!(code(&base.db, sql).await.as_deref(), Some(want), "{sql}");
    }
    base.db.batch_execute("SELECT leasehold.arm('jobs/other', '74657374696e6721')").await.expect("armed");
    let two = "SELECT leasehold.protect('written', 'jobs/other')";
    assert_eq!(code(&base.db, two).await.as_deref(), Some("LH009"));
}

#[tokio::test]
async fn a_prepared_transaction_blocks_claims_until_it_commits() {
    let server = tokio::task::spawn_blocking(|| crate::server::Server::start(&["max_prepared_transactions=2"]));
    let base = crate::database::Database::on(std::sync::Arc::new(server.await.expect("a server"))).await;
    base.fence.claim(&base.db, &crate::support::token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    let two_phases = format!("BEGIN; {}; INSERT INTO written (number) VALUES (20); PREPARE TRANSACTION 'p'", admit(20));
    base.db.batch_execute(&two_phases).await.expect("prepared");
    let impatient = base.fence.clone().with_claim_timeout(std::time::Duration::from_millis(100));
    let blocked = impatient
        .claim(&base.db, &crate::support::token(21))
        .await
        .expect_err("the prepared transaction holds the lock");
    assert_eq!(blocked.code(), "UNAVAILABLE");
    base.db.batch_execute("COMMIT PREPARED 'p'").await.expect("committed");
    impatient.claim(&base.db, &crate::support::token(21)).await.expect("the successor claims");
    assert_eq!(base.written().await, [20]);
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}

#[tokio::test]
async fn a_resource_name_that_looks_like_sql_works_like_any_other() {
    let base = protected().await;
    let name = "it''s $$ $body$ %s";
    let sql = format!(
        "CREATE TABLE odd (n int); SELECT leasehold.arm('{name}', '{}'); SELECT leasehold.protect('odd', '{name}')",
        crate::support::CLUSTER
    );
    base.db.batch_execute(&sql).await.expect("protected");
    assert_eq!(code(&base.db, "INSERT INTO odd VALUES (1)").await.as_deref(), Some("LH002"));
}
