//! Marks: a lost mark refuses all tokens, and only a superuser can lower or delete one.

use leasehold_core::token::Cluster;
use leasehold_fence::postgres::{Fence, VERSION, install};
use leasehold_fence::{Error, FenceRefusal, MarkLoss};

use crate::database::{Database, LONG};
use crate::support::{CLUSTER, RESOURCE, id_of, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> MarkLoss {
    match result {
        Err(Error::Refused(FenceRefusal::MarkLost(loss))) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test]
async fn an_unarmed_fence_refuses_every_token() {
    let base = Database::new().await;
    let fence = Fence::new(&id_of(CLUSTER, "jobs/other"));
    assert_eq!(lost(fence.claim(&base.db, &token(5)).await), MarkLoss::Missing);
    assert_eq!(lost(fence.mark(&base.db).await), MarkLoss::Missing);
}

#[tokio::test]
async fn a_database_without_the_fence_refuses_every_token() {
    let base = Database::new().await;
    let mut empty = base.server.connect("leasehold", "postgres").await.expect("connected");
    assert_eq!(lost(base.fence.claim(&empty, &token(5)).await), MarkLoss::Missing);
    let tx = empty.transaction().await.expect("a transaction");
    assert_eq!(lost(base.fence.admit(&tx, &token(5), LONG).await), MarkLoss::Missing);
}

#[tokio::test]
async fn a_lost_mark_refuses_every_token_until_it_is_rearmed_at_or_above_the_mark() {
    let base = Database::new().await;
    let mut db = base.connect().await;
    base.fence.claim(&db, &token(20)).await.expect("claimed");
    base.fence.declare_lost(&db).await.expect("declared");
    assert_eq!(lost(base.write(&mut db, 21).await), MarkLoss::Declared);
    base.fence.arm(&db).await.expect("arm changes nothing");
    assert_eq!(lost(base.fence.claim(&db, &token(21)).await), MarkLoss::Declared);
    assert_eq!(base.fence.rearm(&db, number(19)).await.expect_err("below the mark").code(), "CONFLICT");
    assert_eq!(lost(base.fence.mark(&db).await), MarkLoss::Declared);
    base.fence.rearm(&db, number(30)).await.expect("re-armed");
    assert_eq!(base.fence.claim(&db, &token(29)).await.expect_err("an earlier holder").code(), "STALE_TOKEN");
    base.fence.claim(&db, &token(31)).await.expect("a later holder");
    assert_eq!(base.written().await, [0_u64; 0]);
}

#[tokio::test]
async fn a_mark_stored_by_another_server_refuses_every_token_until_it_is_rearmed() {
    let base = Database::new().await;
    let mut db = base.connect().await;
    base.fence.claim(&db, &token(20)).await.expect("claimed");
    // Simulates a promoted standby or a restored dump.
    db.batch_execute("UPDATE leasehold.fence SET server_id = '1/00000001', server_started_at = NULL")
        .await
        .expect("as after a failover");
    assert_eq!(lost(base.write(&mut db, 20).await), MarkLoss::Moved);
    assert_eq!(lost(base.fence.claim(&db, &token(21)).await), MarkLoss::Moved);
    assert_eq!(lost(base.fence.mark(&db).await), MarkLoss::Moved);
    base.fence.rearm(&db, number(25)).await.expect("re-armed");
    base.write(&mut db, 26).await.expect("a later holder");
    assert_eq!(base.written().await, [26]);
}

#[tokio::test]
async fn a_mark_of_another_cluster_refuses_every_token_and_is_unchanged() {
    let base = Database::new().await;
    let cluster = Cluster(*b"another!");
    let foreign = Fence::new(&id_of(cluster, RESOURCE));
    let armed = foreign.arm(&base.db).await.expect_err("armed by another cluster");
    assert_eq!((armed.refusal(), armed.code()), (Some(&FenceRefusal::ForeignMark), "WRONG_CLUSTER"));
    let token = leasehold_core::token::Token { cluster, ..crate::support::parts(9) }.to_string();
    assert_eq!(foreign.claim(&base.db, &token).await.expect_err("a claim").code(), "WRONG_CLUSTER");
    assert_eq!(base.mark().await, None);
}

#[tokio::test]
async fn plain_sql_cannot_lower_move_or_delete_a_mark() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    for bypass in [
        "UPDATE leasehold.fence SET mark = 19",
        "UPDATE leasehold.fence SET mark = NULL, state = 'fresh'",
        "UPDATE leasehold.fence SET slot = 3",
        "UPDATE leasehold.fence SET cluster = '0000000000000000'",
        "DELETE FROM leasehold.fence",
        "TRUNCATE leasehold.fence",
    ] {
        let error = base.db.batch_execute(bypass).await.expect_err(bypass);
        assert_eq!(error.code().map(|code| code.code()), Some("LH009"), "{bypass}: {error}");
    }
    assert_eq!(base.mark().await, Some(20));
}

#[tokio::test]
async fn an_application_role_can_claim_and_write_but_not_arm() {
    let base = Database::new().await;
    let role = format!("app_{}", base.name);
    let grants = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}; GRANT INSERT, SELECT ON written TO {role};
         GRANT USAGE ON SEQUENCE written_place_seq TO {role}"
    );
    base.db.batch_execute(&grants).await.expect("a role");
    let mut app = base.server.connect(&role, &base.name).await.expect("connected");
    base.fence.claim(&app, &token(5)).await.expect("claims");
    base.write(&mut app, 5).await.expect("writes");
    base.fence.claim(&base.db, &token(6)).await.expect("the successor claims");
    assert_eq!(base.write(&mut app, 5).await.expect_err("stale").code(), "STALE_TOKEN");
    for forbidden in [
        "SELECT leasehold.rearm('jobs/settle', 9)",
        "SELECT leasehold.arm('jobs/new', '0000000000000000')",
        "SELECT leasehold.declare_lost('jobs/settle')",
        "UPDATE leasehold.fence SET mark = 9",
        "SELECT leasehold.adopt('jobs/settle', '00000009')",
        "SELECT leasehold.unprotect('written')",
        "DELETE FROM leasehold.protected",
        "SELECT * FROM leasehold.fence",
    ] {
        let error = app.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{forbidden}: {error}");
    }
    assert_eq!((base.mark().await, base.written().await), (Some(6), vec![5]));
}

#[tokio::test]
async fn install_is_idempotent_and_leaves_a_newer_version_unchanged() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    install(&base.db).await.expect("again");
    assert_eq!(base.mark().await, Some(20));
    base.db.batch_execute("UPDATE leasehold.version SET version = 99").await.expect("a later version");
    let error = install(&base.db).await.expect_err("newer");
    assert!(matches!(error, Error::Version { found: 99, supported: VERSION }), "{error}");
    assert_eq!(base.mark().await, Some(20), "the connection is usable");
}

#[tokio::test]
async fn version_1_is_upgraded_and_its_marks_are_preserved() {
    let base = Database::new().await;
    let name = format!("old_{}", base.name);
    base.db.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let old = base.server.connect("leasehold", &name).await.expect("connected");
    let mut writer = base.server.connect("leasehold", &name).await.expect("connected");
    old.batch_execute(include_str!("version1.sql")).await.expect("version 1 installed");
    old.batch_execute("CREATE TABLE public.written (place bigserial PRIMARY KEY, number bigint NOT NULL)")
        .await
        .expect("a table");
    let sql = format!("SELECT leasehold.arm('{}', '{CLUSTER}')", crate::support::RESOURCE);
    old.batch_execute(&sql).await.expect("armed by version 1");
    old.batch_execute(&format!("CALL leasehold.claim('{}')", token(20))).await.expect("claimed under version 1");

    // The upgrade waits for a transaction that version 1 admitted.
    let admitted = writer.transaction().await.expect("begun");
    admitted.batch_execute(&format!("SELECT leasehold.admit('{}')", token(20))).await.expect("admitted by version 1");
    let upgrade = tokio::spawn(async move { (install(&old).await, old) });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while base.db.query_one(waits, &[]).await.expect("readable").get::<_, i64>(0) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    admitted.batch_execute("INSERT INTO written (number) VALUES (20)").await.expect("written");
    admitted.commit().await.expect("committed");
    let (installed, old) = upgrade.await.expect("no panic");
    installed.expect("upgraded");

    assert_eq!(base.fence.mark(&old).await.expect("preserved"), Some(number(20)));
    assert_eq!(base.fence.claim(&old, &token(19)).await.expect_err("stale").code(), "STALE_TOKEN");
    base.write(&mut writer, 20).await.expect("the holder continues on its connection");
    base.fence.claim(&old, &token(21)).await.expect("claimed");
    assert_eq!(base.write(&mut writer, 20).await.expect_err("stale").code(), "STALE_TOKEN");
    for db in [&old, &base.db] {
        base.fence.protect(db, "written").await.expect("protected");
    }

    let objects = "SELECT string_agg(o, E'\\n' ORDER BY o) FROM (
        SELECT 'f ' || p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'leasehold'::regnamespace
        UNION ALL SELECT 'c ' || c.relname || ' ' || a.attname || ' ' || a.atttypid::regtype FROM pg_class AS c
          JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          WHERE c.relnamespace = 'leasehold'::regnamespace) AS all_objects(o)";
    let [upgraded, new]: [String; 2] = [
        old.query_one(objects, &[]).await.expect("read").get(0),
        base.db.query_one(objects, &[]).await.expect("read").get(0),
    ];
    assert_eq!(upgraded, new, "the upgraded schema equals a new one");
}
