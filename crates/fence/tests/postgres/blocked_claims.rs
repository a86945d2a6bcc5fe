//! Claims that are blocked by an open transaction end within a bound (F8).

use std::time::Duration;

use leasehold_fence::Error;
use tokio_postgres::Client;

use crate::database::{Database, LONG, backend, fence, put};
use crate::support::token;

/// Waits until `count` sessions wait for the fence's lock.
async fn wait_for_waiters(db: &Client, count: i64) {
    let sql =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted AND database =
               (SELECT oid FROM pg_database WHERE datname = current_database())";
    while db.query_one(sql, &[]).await.expect("readable").get::<_, i64>(0) < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_server_ends_an_idle_transaction_when_its_lease_ends() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    put(&tx, 33).await.expect("written");
    base.fence.admit(&tx, &token(33), Duration::from_millis(300)).await.expect("admitted");
    // From here on the holder is paused: it neither commits nor rolls back.
    let patient = base.fence.clone().with_claim_timeout(Duration::from_secs(300));
    patient.claim(&new, &token(34)).await.expect("the server ended the transaction");
    tx.commit().await.expect_err("the late commit fails");
    assert_eq!(base.written().await, [0_u64; 0]);
}

#[tokio::test]
async fn the_server_ends_a_statement_that_outlasts_the_lease() {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let tx = base.db.transaction().await.expect("begun");
    put(&tx, 33).await.expect("written");
    base.fence.admit(&tx, &token(33), Duration::from_millis(300)).await.expect("admitted");
    let ended = tx.batch_execute("SELECT pg_sleep(3600)").await.expect_err("longer than the lease");
    // On a busy machine the lease may end before the statement starts; then the connection is closed.
    assert!(ended.is_closed() || ["57014", "25P03"].contains(&ended.code().expect("a code").code()), "{ended}");
    drop(tx);
    assert_eq!(base.written().await, [0_u64; 0]);
}

#[tokio::test]
async fn shorter_timeouts_of_the_caller_stay_and_all_timeouts_are_restored_after_the_transaction() {
    let mut base = Database::new().await;
    base.db.batch_execute("SET statement_timeout = '7s'").await.expect("set");
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let settings =
        "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')";
    let tx = base.db.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), Duration::from_secs(60)).await.expect("admitted");
    let row = tx.query_one(settings, &[]).await.expect("read");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("7s", "1min"));
    tx.commit().await.expect("committed");
    let row = base.db.query_one(settings, &[]).await.expect("read");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("7s", "0"));
}

#[tokio::test]
async fn a_claim_terminates_blockers_if_allowed() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    put(&tx, 33).await.expect("written");
    let bystander = backend(&base.db).await;
    // The timeout also limits how long it waits for the terminated backend.
    let terminating = base.fence.clone().with_claim_timeout(Duration::from_secs(2)).terminate_blockers();
    terminating.claim(&new, &token(34)).await.expect("claimed");
    tx.commit().await.expect_err("the late commit fails");
    assert_eq!(base.written().await, [0_u64; 0]);
    assert_eq!(backend(&base.db).await, bystander, "no other backend was terminated");
}

#[tokio::test]
async fn new_writes_queue_behind_a_waiting_claim() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    put(&tx, 33).await.expect("written");

    let claim = tokio::spawn(async move { fence().with_claim_timeout(LONG).claim(&new, &token(34)).await });
    wait_for_waiters(&base.db, 1).await;
    let mut next = base.connect().await;
    let queued = tokio::spawn(async move {
        let tx = next.transaction().await?;
        fence().admit(&tx, &token(33), LONG).await?;
        put(&tx, 33).await?;
        Ok::<_, Error>(tx.commit().await?)
    });
    wait_for_waiters(&base.db, 2).await;
    tx.commit().await.expect("the admitted write commits");
    claim.await.expect("no panic").expect("claimed");
    let late = queued.await.expect("no panic").expect_err("a new write of the predecessor");
    assert_eq!(late.code(), "STALE_TOKEN", "{late}");
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![33]));
}

#[tokio::test]
async fn a_claim_that_times_out_or_whose_caller_disconnects_blocks_no_writer() {
    let base = Database::new().await;
    let (mut old, new, mut next) = (base.connect().await, base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");

    let impatient = base.fence.clone().with_claim_timeout(Duration::ZERO);
    assert!(matches!(impatient.claim(&new, &token(34)).await, Err(Error::Blocked { .. })));
    base.write(&mut next, 33).await.expect("the claim timed out");

    let caller = backend(&new).await;
    let claim = tokio::spawn(async move { fence().with_claim_timeout(LONG).claim(&new, &token(34)).await });
    wait_for_waiters(&base.db, 1).await;
    base.db.batch_execute(&format!("SELECT pg_terminate_backend({caller}, 60000)")).await.expect("ended");
    claim.await.expect("no panic").expect_err("its connection was terminated");
    base.write(&mut next, 33).await.expect("not blocked");
    tx.commit().await.expect("committed");
    assert_eq!(base.mark().await, Some(33));
}

#[tokio::test]
async fn a_canceled_claim_blocks_no_writer() {
    let base = Database::new().await;
    let (mut old, new, mut next) = (base.connect().await, base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    new.batch_execute("SET statement_timeout = '300ms'").await.expect("a timeout of the caller");
    let patient = base.fence.clone().with_claim_timeout(LONG);
    let canceled = patient.claim(&new, &token(34)).await.expect_err("canceled");
    assert_eq!(canceled.code(), "STORAGE_FAILED", "{canceled}");
    base.write(&mut next, 33).await.expect("not blocked");
    tx.commit().await.expect("committed");
    new.batch_execute("SET statement_timeout = 0").await.expect("set");
    base.fence.claim(&new, &token(34)).await.expect("the connection is usable");
}

/// A role that can connect, and has no right on the fence.
async fn stranger(base: &Database) -> Client {
    let role = format!("stranger_{}", base.name);
    base.db.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.expect("a role");
    base.server.connect(&role, &base.name).await.expect("connected")
}

/// Statement that acquires the fence's advisory lock by its number.
async fn lock_by_number(base: &Database, function: &str) -> String {
    let row = base.db.query_one("SELECT leasehold.lock_key('jobs/settle', 0)", &[]).await.expect("a number");
    format!("SELECT {function}({})", row.get::<_, i64>(0))
}

#[tokio::test]
async fn a_role_without_a_right_on_the_fence_cannot_block_claims_and_writes_by_the_locks_number() {
    for function in ["pg_advisory_lock", "pg_advisory_lock_shared"] {
        let base = Database::new().await;
        let (foreign, mut holder) = (stranger(&base).await, base.connect().await);
        base.fence.claim(&holder, &token(33)).await.expect("claimed");
        let lock = lock_by_number(&base, function).await;
        foreign.batch_execute(&lock).await.expect("any role can acquire an advisory lock");
        let brief = base.fence.clone().with_claim_timeout(Duration::from_millis(200));
        brief.claim(&base.db, &token(34)).await.expect("the claim ends the stranger's backend");
        assert!(foreign.batch_execute("SELECT 1").await.is_err(), "{function}");
        base.write(&mut holder, 34).await.expect("written");
    }
}

#[tokio::test]
async fn a_write_waits_for_the_lock_for_at_most_its_remaining_time() {
    let base = Database::new().await;
    let (foreign, mut holder, mut other) = (stranger(&base).await, base.connect().await, base.connect().await);
    base.fence.claim(&holder, &token(33)).await.expect("claimed");
    let lock = lock_by_number(&base, "pg_advisory_lock").await;
    foreign.batch_execute(&lock).await.expect("locked");
    // The stranger is ended after half of the remaining time, so the write succeeds.
    let tx = holder.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), Duration::from_secs(1)).await.expect("admitted");
    let restored: String = tx.query_one("SHOW lock_timeout", &[]).await.expect("read").get(0);
    assert_eq!(restored, "0");
    tx.rollback().await.expect("ended");
    // A role with a right on the fence is not ended, but named.
    base.db.batch_execute(&lock).await.expect("locked");
    let blocker = backend(&base.db).await;
    let tx = other.transaction().await.expect("begun");
    match base.fence.admit(&tx, &token(33), Duration::from_millis(200)).await {
        Err(Error::Blocked { blockers, .. }) => assert_eq!(blockers, [blocker]),
        outcome => panic!("not blocked: {outcome:?}"),
    }
    assert_eq!(backend(&base.db).await, blocker, "the backend of a role with a right goes on");
}

#[tokio::test]
async fn a_role_ends_other_backends_only_if_an_operator_granted_it() {
    let base = Database::new().await;
    let role = format!("app_{}", base.name);
    let sql = format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}");
    base.db.batch_execute(&sql).await.expect("a role");
    let (mut holder, app) = (base.connect().await, base.server.connect(&role, &base.name).await.expect("connected"));
    base.fence.claim(&holder, &token(33)).await.expect("claimed");
    let victim = backend(&holder).await;
    let tx = holder.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    let forged = token(99);
    for attack in [
        format!("SELECT leasehold.terminate_blockers('{forged}', 'jobs/settle', 0)"),
        format!("CALL leasehold.claim('{forged}', 'jobs/settle', 0, '100 ms', true)"),
        "SELECT leasehold.end_strangers(leasehold.lock_key('jobs/settle', 0))".to_owned(),
    ] {
        let error = app.batch_execute(&attack).await.expect_err("no right");
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{attack}: {error}");
    }
    tx.rollback().await.expect("the holder's backend goes on");
    assert_eq!(backend(&holder).await, victim);

    let grant = format!("GRANT EXECUTE ON FUNCTION leasehold.terminate_blockers(text, text, bigint) TO {role}");
    base.db.batch_execute(&grant).await.expect("granted");
    let tx = holder.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    let terminating = base.fence.clone().with_claim_timeout(Duration::from_secs(2)).terminate_blockers();
    terminating.claim(&app, &token(34)).await.expect("claimed");
    tx.commit().await.expect_err("ended");
}
