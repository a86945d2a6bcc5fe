//! Refusals: stale and invalid tokens, claims inside transactions and servers that are not durable.

use std::sync::Arc;

use leasehold_fence::{CounterSnapshot, Error, FenceRefusal};

use crate::database::{Database, LONG, put};
use crate::invalid_tokens::mistakes;
use crate::server::Server;
use crate::support::{number, token};

#[tokio::test]
async fn a_stale_write_is_refused_with_its_number_and_the_mark() {
    let base = Database::new().await;
    let (mut old, mut new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("the first holder claims");
    base.write(&mut old, 33).await.expect("written");
    base.fence.claim(&new, &token(34)).await.expect("the successor claims");
    let stale = base.write(&mut old, 33).await.expect_err("the zombie is refused");
    assert_eq!(stale.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(stale.code(), "STALE_TOKEN");
    base.write(&mut new, 34).await.expect("the successor writes");
    base.write(&mut new, 34).await.expect("an equal token is admitted again");
    assert_eq!(base.written().await, [33, 34, 34]);
    let counted = CounterSnapshot { claims: 2, admitted: 3, stale: 1, ..CounterSnapshot::default() };
    assert_eq!(base.fence.counters().snapshot(), counted);
}

#[tokio::test]
async fn every_invalid_token_is_refused_with_its_code_and_changes_nothing() {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(10)).await.expect("claimed");
    for (text, code, reason) in mistakes() {
        let before = base.fence.counters().snapshot();
        let claim = base.fence.claim(&base.db, &text).await.expect_err(reason);
        let tx = base.db.transaction().await.expect("a transaction");
        let write = base.fence.admit(&tx, &text, LONG).await.expect_err(reason);
        put(&tx, 50).await.expect_err("the refused transaction has failed");
        tx.rollback().await.expect("rolled back");
        for error in [claim, write] {
            assert_eq!((error.code(), error.refusal().map(FenceRefusal::reason)), (code, Some(reason)), "{error}");
        }
        let sum = |c: CounterSnapshot| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(sum(base.fence.counters().snapshot()), sum(before) + 2, "{reason} is counted");
    }
    assert_eq!((base.mark().await, base.written().await), (Some(10), vec![]));
}

#[tokio::test]
async fn a_missing_token_is_refused_in_sql() {
    let base = Database::new().await;
    for call in ["SELECT leasehold.admit(NULL)", "CALL leasehold.claim(NULL)", "SELECT leasehold.admit('')"] {
        let error = base.db.batch_execute(call).await.expect_err(call);
        let db_error = error.as_db_error().expect("a server error");
        assert_eq!((db_error.code().code(), db_error.detail()), ("LH002", Some("reason=absent")));
    }
}

#[tokio::test]
async fn a_claim_inside_a_transaction_is_refused_because_it_could_be_rolled_back() {
    let base = Database::new().await;
    base.db.batch_execute("BEGIN").await.expect("a transaction");
    let error = base.fence.claim(&base.db, &token(5)).await.expect_err("not committed on its own");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    base.db.batch_execute("ROLLBACK").await.expect("ended");
    assert_eq!(base.mark().await, None);
}

#[tokio::test]
async fn a_server_without_fsync_refuses_claims_and_writes() {
    let server = tokio::task::spawn_blocking(|| Server::start(&["fsync=off"])).await.expect("a server");
    let mut base = Database::on(Arc::new(server)).await;
    let claim = base.fence.claim(&base.db, &token(5)).await.expect_err("a claim");
    let tx = base.db.transaction().await.expect("a transaction");
    let write = base.fence.admit(&tx, &token(5), LONG).await.expect_err("a write");
    drop(tx);
    for error in [claim, write] {
        assert!(matches!(error, Error::NotDurable { setting: "fsync", .. }), "{error}");
        assert_eq!(error.code(), "CONFIG");
    }
    assert_eq!(base.mark().await, None);
    // Dropping the last handle stops the server, which blocks; so it runs off the runtime's threads.
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}

#[tokio::test]
async fn synchronous_commit_is_turned_on_for_an_admitted_transaction() {
    let mut base = Database::new().await;
    base.db.batch_execute("SET synchronous_commit = off").await.expect("set");
    base.fence.claim(&base.db, &token(5)).await.expect("claimed");
    let tx = base.db.transaction().await.expect("a transaction");
    base.fence.admit(&tx, &token(5), LONG).await.expect("admitted");
    let now: String = tx.query_one("SHOW synchronous_commit", &[]).await.expect("read").get(0);
    assert_eq!(now, "on");
    tx.commit().await.expect("committed");
    let then: String = base.db.query_one("SHOW synchronous_commit", &[]).await.expect("read").get(0);
    assert_eq!(then, "off", "the session setting is restored");
}
