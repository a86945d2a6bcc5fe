//! A holder that is stopped inside its transaction does not stop its successor for ever (F8).

use std::time::Duration;

use leasehold_fence::Error;
use tokio_postgres::Client;

use crate::database::{Database, LONG, backend, fence, put};
use crate::support::token;

/// Waits until so many of the place's lockers wait: a claim for who is inside, or a writer behind a claim.
async fn waiting(db: &Client, many: i64) {
    let sql =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted AND database =
               (SELECT oid FROM pg_database WHERE datname = current_database())";
    while db.query_one(sql, &[]).await.expect("readable").get::<_, i64>(0) < many {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_holder_that_stands_still_is_ended_when_its_lease_is_over() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    put(&tx, 33).await.expect("written");
    base.fence.admit(&tx, &token(33), Duration::from_millis(300)).await.expect("admitted for what is left");
    // From here on the holder is stopped: it neither commits nor gives up.
    let patient = base.fence.clone().patience(Duration::from_secs(300));
    patient.claim(&new, &token(34)).await.expect("the server ended it");
    tx.commit().await.expect_err("the late commit fails");
    assert_eq!(base.written().await, [0_u64; 0]);
}

#[tokio::test]
async fn a_statement_that_outlasts_the_lease_is_ended() {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let tx = base.db.transaction().await.expect("begun");
    put(&tx, 33).await.expect("written");
    base.fence.admit(&tx, &token(33), Duration::from_millis(300)).await.expect("admitted for what is left");
    let ended = tx.batch_execute("SELECT pg_sleep(3600)").await.expect_err("longer than the lease");
    // On a busy machine the lease may be over before the statement begins, and then the connection is.
    assert!(ended.is_closed() || ["57014", "25P03"].contains(&ended.code().expect("told").code()), "{ended}");
    drop(tx);
    assert_eq!(base.written().await, [0_u64; 0]);
}

#[tokio::test]
async fn a_shorter_patience_of_the_callers_own_stays_and_all_is_as_before_after_the_transaction() {
    let mut base = Database::new().await;
    base.db.batch_execute("SET statement_timeout = '7s'").await.expect("set");
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let settings =
        "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')";
    let tx = base.db.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), Duration::from_secs(60)).await.expect("admitted");
    let row = tx.query_one(settings, &[]).await.expect("told");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("7s", "1min"));
    tx.commit().await.expect("committed");
    let row = base.db.query_one(settings, &[]).await.expect("told");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("7s", "0"));
}

#[tokio::test]
async fn a_claim_that_may_ends_who_is_inside() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    put(&tx, 33).await.expect("written");
    let bystander = backend(&base.db).await;
    // Its patience is also how long it waits for the one it ended to be gone.
    let evicting = base.fence.clone().patience(Duration::from_secs(2)).evicting();
    evicting.claim(&new, &token(34)).await.expect("it ended the one inside");
    tx.commit().await.expect_err("the late commit fails");
    assert_eq!(base.written().await, [0_u64; 0]);
    assert_eq!(backend(&base.db).await, bystander, "and nobody else");
}

#[tokio::test]
async fn new_writes_wait_behind_a_claim_that_waits_and_do_not_overtake_it() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    put(&tx, 33).await.expect("written");

    let claim = tokio::spawn(async move { fence().patience(LONG).claim(&new, &token(34)).await });
    waiting(&base.db, 1).await;
    let mut next = base.connect().await;
    let behind = tokio::spawn(async move {
        let tx = next.transaction().await?;
        fence().admit(&tx, &token(33), LONG).await?;
        put(&tx, 33).await?;
        Ok::<_, Error>(tx.commit().await?)
    });
    waiting(&base.db, 2).await;
    tx.commit().await.expect("what was inside finishes");
    claim.await.expect("no panic").expect("and then the claim is in");
    let late = behind.await.expect("no panic").expect_err("a new write of the predecessor's");
    assert_eq!(late.code(), "STALE_TOKEN", "{late}");
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![33]));
}

#[tokio::test]
async fn a_claim_that_gives_up_or_whose_caller_is_gone_holds_nobody_up() {
    let base = Database::new().await;
    let (mut old, new, mut next) = (base.connect().await, base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");

    let hasty = base.fence.clone().patience(Duration::ZERO);
    assert!(matches!(hasty.claim(&new, &token(34)).await, Err(Error::Blocked { .. })));
    base.write(&mut next, 33).await.expect("the claim gave up");

    let caller = backend(&new).await;
    let claim = tokio::spawn(async move { fence().patience(LONG).claim(&new, &token(34)).await });
    waiting(&base.db, 1).await;
    base.db.batch_execute(&format!("SELECT pg_terminate_backend({caller}, 60000)")).await.expect("ended");
    claim.await.expect("no panic").expect_err("its caller is gone");
    base.write(&mut next, 33).await.expect("and holds nobody up");
    tx.commit().await.expect("committed");
    assert_eq!(base.mark().await, Some(33));
}

#[tokio::test]
async fn a_claim_that_is_cancelled_holds_nobody_up() {
    let base = Database::new().await;
    let (mut old, new, mut next) = (base.connect().await, base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    new.batch_execute("SET statement_timeout = '300ms'").await.expect("as a caller's own patience");
    let patient = base.fence.clone().patience(LONG);
    let cancelled = patient.claim(&new, &token(34)).await.expect_err("cancelled");
    assert_eq!(cancelled.code(), "STORAGE_FAILED", "{cancelled}");
    base.write(&mut next, 33).await.expect("nobody waits");
    tx.commit().await.expect("committed");
    new.batch_execute("SET statement_timeout = 0").await.expect("set");
    base.fence.claim(&new, &token(34)).await.expect("and the connection is usable");
}
