//! What is shown by mistake is refused by the server with its code, and changes nothing.

use std::sync::Arc;

use leasehold_fence::{Counted, Error, Refusal};

use crate::database::{Database, LONG, put};
use crate::mistakes::mistakes;
use crate::server::Server;
use crate::support::{number, token};

#[tokio::test]
async fn a_late_write_is_refused_with_what_it_showed_and_what_stands() {
    let base = Database::new().await;
    let (mut old, mut new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("the first holder claims");
    base.write(&mut old, 33).await.expect("and writes");
    base.fence.claim(&new, &token(34)).await.expect("its successor claims");
    let late = base.write(&mut old, 33).await.expect_err("the zombie is refused");
    assert_eq!(late.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(late.code(), "STALE_TOKEN");
    base.write(&mut new, 34).await.expect("the successor writes");
    base.write(&mut new, 34).await.expect("an equal token passes again");
    assert_eq!(base.written().await, [33, 34, 34]);
    let counted = Counted { claims: 2, admitted: 3, stale: 1, ..Counted::default() };
    assert_eq!(base.fence.counters().read(), counted);
}

#[tokio::test]
async fn every_mistake_is_refused_with_its_code_and_moves_nothing() {
    let mut base = Database::new().await;
    base.fence.claim(&base.db, &token(10)).await.expect("claimed");
    for (text, code, why) in mistakes() {
        let before = base.fence.counters().read();
        let claim = base.fence.claim(&base.db, &text).await.expect_err(why);
        let tx = base.db.transaction().await.expect("a transaction");
        let write = base.fence.admit(&tx, &text, LONG).await.expect_err(why);
        put(&tx, 50).await.expect_err("a refused transaction writes nothing more");
        tx.rollback().await.expect("given up");
        for error in [claim, write] {
            assert_eq!((error.code(), error.refusal().map(Refusal::why)), (code, Some(why)), "{error}");
        }
        let sum = |c: Counted| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(sum(base.fence.counters().read()), sum(before) + 2, "{why} is counted");
    }
    assert_eq!((base.mark().await, base.written().await), (Some(10), vec![]));
}

#[tokio::test]
async fn a_missing_token_is_a_refusal_in_sql_too() {
    let base = Database::new().await;
    for call in ["SELECT leasehold.admit(NULL)", "CALL leasehold.claim(NULL)", "SELECT leasehold.admit('')"] {
        let error = base.db.batch_execute(call).await.expect_err(call);
        let told = error.as_db_error().expect("the server's own");
        assert_eq!((told.code().code(), told.detail()), ("LH002", Some("why=absent")));
    }
}

#[tokio::test]
async fn a_claim_inside_of_a_transaction_is_refused_because_it_could_be_taken_back() {
    let base = Database::new().await;
    base.db.batch_execute("BEGIN").await.expect("a transaction");
    let error = base.fence.claim(&base.db, &token(5)).await.expect_err("not committed on its own");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    base.db.batch_execute("ROLLBACK").await.expect("ended");
    assert_eq!(base.mark().await, None);
}

#[tokio::test]
async fn a_server_that_may_forget_takes_no_claim_and_no_write() {
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
    // The last handle stops the server, which must not happen on the runtime's own thread.
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}

#[tokio::test]
async fn a_commit_that_would_be_told_before_it_is_kept_is_made_durable() {
    let mut base = Database::new().await;
    base.db.batch_execute("SET synchronous_commit = off").await.expect("as some do for speed");
    base.fence.claim(&base.db, &token(5)).await.expect("claimed");
    let tx = base.db.transaction().await.expect("a transaction");
    base.fence.admit(&tx, &token(5), LONG).await.expect("admitted");
    let now: String = tx.query_one("SHOW synchronous_commit", &[]).await.expect("told").get(0);
    assert_eq!(now, "on");
    tx.commit().await.expect("committed");
    let then: String = base.db.query_one("SHOW synchronous_commit", &[]).await.expect("told").get(0);
    assert_eq!(then, "off", "the session is as it was");
}
