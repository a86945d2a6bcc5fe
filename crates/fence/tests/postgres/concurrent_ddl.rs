//! Protection against DDL that runs at the same time, or with a snapshot from before.

use tokio_postgres::Client;

use crate::database::{Database, fence};
use crate::protected_tables::{code, protected};
use crate::support::token;

/// Waits until a session of this database waits for a lock.
async fn wait_for_waiter(db: &Client) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while db.query_one(sql, &[]).await.expect("readable").get::<_, i64>(0) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn problems(base: &Database) -> Vec<String> {
    let guards = base.fence.list_guards(&base.db).await.expect("listed");
    guards.iter().filter_map(|guard| Some(format!("{} {}", guard.object, guard.problem.as_ref()?))).collect()
}

#[tokio::test]
async fn protect_includes_children_and_partitions_that_were_not_yet_committed() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    let (mut creator, db) = (base.connect().await, base.connect().await);
    let tx = creator.transaction().await.expect("begun");
    tx.batch_execute(
        "CREATE TABLE public.child () INHERITS (written); CREATE TABLE public.grandchild () INHERITS (child)",
    )
    .await
    .expect("created");
    let protecting = tokio::spawn(async move { fence().protect(&db, "written").await });
    wait_for_waiter(&base.db).await;
    tx.commit().await.expect("committed");
    protecting.await.expect("no panic").expect("protected");
    assert_eq!(problems(&base).await, [""; 0]);
    for table in ["written", "child", "grandchild"] {
        let sql = format!("INSERT INTO {table} (number) VALUES (1)");
        assert_eq!(code(&base.db, &sql).await.as_deref(), Some("LH002"), "{table}");
    }
}

#[tokio::test]
async fn a_snapshot_from_before_protect_changes_no_table() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for change in [
            "ALTER TABLE written DISABLE TRIGGER USER",
            "ALTER TABLE written ADD COLUMN more int",
            "CREATE TABLE public.child () INHERITS (written)",
            "DROP TABLE written",
            "DROP TRIGGER leasehold_guard ON written",
        ] {
            let base = Database::new().await;
            base.fence.claim(&base.db, &token(20)).await.expect("claimed");
            let old = base.connect().await;
            old.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM pg_class LIMIT 1"))
                .await
                .expect("begun");
            base.fence.protect(&base.db, "written").await.expect("protected");
            assert_eq!(code(&old, change).await.as_deref(), Some("40001"), "{level}: {change}");
            assert_eq!(problems(&base).await, [""; 0]);
            assert_eq!(code(&old, "DELETE FROM written").await.as_deref(), Some("LH002"), "{level}: {change}");
        }
    }
}

#[tokio::test]
async fn protect_and_unprotect_refuse_a_snapshot_that_can_miss_tables() {
    let base = protected().await;
    for call in ["protect('written', 'jobs/settle')", "unprotect('written')", "repair_guards()"] {
        let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT leasehold.{call}");
        assert_eq!(code(&base.db, &sql).await.as_deref(), Some("LH009"), "{call}");
    }
}

#[tokio::test]
async fn a_change_that_began_before_protect_and_ends_after_it_needs_a_token() {
    let base = Database::new().await;
    base.db
        .batch_execute("CREATE TYPE public.mood AS ENUM ('calm'); ALTER TABLE written ADD COLUMN mood mood")
        .await
        .expect("made");
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    let (renamer, db) = (base.connect().await, base.connect().await);
    // An uncommitted change of a type does not lock the table, but `protect` waits for it.
    renamer.batch_execute("BEGIN; ALTER TYPE mood RENAME VALUE 'calm' TO 'mad'").await.expect("renamed");
    let protecting = tokio::spawn(async move { fence().protect(&db, "written").await });
    wait_for_waiter(&base.db).await;
    renamer.batch_execute("COMMIT").await.expect("committed");
    protecting.await.expect("no panic").expect("protected");
    assert_eq!(problems(&base).await, [""; 0]);
    base.db.batch_execute("CREATE TABLE public.unrelated (a int); DROP TABLE unrelated").await.expect("others go on");
}

#[tokio::test]
async fn two_changes_with_tokens_at_the_same_time_leave_the_definition_in_order() {
    let base = protected().await;
    base.db
        .batch_execute(&format!(
            "BEGIN; {}; CREATE TYPE public.mood AS ENUM ('calm'); ALTER TABLE written ADD COLUMN mood mood; COMMIT",
            crate::protected_tables::admit(20)
        ))
        .await
        .expect("made");
    let (one, two) = (base.connect().await, base.connect().await);
    let admit = crate::protected_tables::admit(20);
    one.batch_execute(&format!("BEGIN; {admit}; ALTER TABLE written ADD COLUMN more int")).await.expect("changed");
    let sql = format!("BEGIN; {admit}; ALTER TYPE mood RENAME VALUE 'calm' TO 'mad'; COMMIT");
    let renaming = tokio::spawn(async move { two.batch_execute(&sql).await });
    wait_for_waiter(&base.db).await;
    one.batch_execute("COMMIT").await.expect("committed");
    renaming.await.expect("no panic").expect("renamed");
    assert_eq!(problems(&base).await, [""; 0]);
}
