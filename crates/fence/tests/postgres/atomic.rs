//! Check and write are atomic: a claim waits for admitted transactions, and no older transaction commits after it.

use std::time::Duration;

use leasehold_fence::{Error, FenceRefusal};
use tokio_postgres::IsolationLevel;

use crate::database::{Database, LONG, backend, put};
use crate::server::Server;
use crate::support::{number, token};

#[tokio::test]
async fn a_claim_waits_for_an_admitted_write_and_then_reads_it() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("the predecessor claims");
    let blocker = backend(&old).await;
    let tx = old.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(33), LONG).await.expect("admitted");
    put(&tx, 33).await.expect("written");

    let impatient = base.fence.clone().with_claim_timeout(Duration::ZERO);
    match impatient.claim(&new, &token(34)).await {
        Err(Error::Blocked { blockers, .. }) => assert_eq!(blockers, [blocker], "the blocking backend is named"),
        other => panic!("the claim did not wait for the admitted write: {other:?}"),
    }
    assert_eq!(base.mark().await, Some(33), "the mark is unchanged");
    tx.commit().await.expect("the predecessor commits");

    base.fence.claim(&new, &token(34)).await.expect("the successor claims");
    assert_eq!(base.written().await, [33], "and reads the earlier write");
    let late = base.write(&mut old, 33).await.expect_err("stale");
    assert_eq!(late.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
}

#[tokio::test]
async fn writers_under_one_token_do_not_wait_for_each_other() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let (mut one, mut two) = (base.connect().await, base.connect().await);
    let first = one.transaction().await.expect("begun");
    base.fence.admit(&first, &token(33), LONG).await.expect("admitted");
    put(&first, 33).await.expect("written");
    // The first transaction ends after this write, so waiting for it would hang the test.
    base.write(&mut two, 33).await.expect("written concurrently");
    first.commit().await.expect("committed");
    assert_eq!(base.written().await, [33, 33]);
}

#[tokio::test]
async fn a_transaction_with_a_snapshot_older_than_the_claim_cannot_write() {
    for (level, codes) in [
        (IsolationLevel::ReadCommitted, &["STALE_TOKEN"]),
        (IsolationLevel::RepeatableRead, &["UNAVAILABLE"]),
        (IsolationLevel::Serializable, &["UNAVAILABLE"]),
    ] {
        let base = Database::new().await;
        let (mut old, new) = (base.connect().await, base.connect().await);
        base.fence.claim(&old, &token(33)).await.expect("the predecessor claims");
        let tx = old.build_transaction().isolation_level(level).start().await.expect("begun");
        let rows = tx.query("SELECT number FROM written", &[]).await.expect("takes the snapshot");
        assert!(rows.is_empty());
        base.fence.claim(&new, &token(34)).await.expect("the successor claims");
        let refused = base.fence.admit(&tx, &token(33), LONG).await.expect_err("stale token or snapshot");
        assert!(codes.contains(&refused.code()), "{level:?}: {refused}");
        put(&tx, 33).await.expect_err("the transaction has failed");
        drop(tx);
        assert_eq!(base.write(&mut old, 33).await.expect_err("retried").code(), "STALE_TOKEN", "{level:?}");
        assert_eq!(base.written().await, [0_u64; 0]);
    }
}

#[tokio::test]
async fn a_connection_lost_before_its_commit_leaves_neither_mark_nor_write() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let mut lost = base.connect().await;
    let tx = lost.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(40), LONG).await.expect("a higher token would raise the mark");
    put(&tx, 40).await.expect("written");
    drop(tx);
    drop(lost);
    // The claim waits until the server has noticed the disconnect.
    base.fence.claim(&base.db, &token(34)).await.expect("claimed");
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![]));
}

#[tokio::test]
async fn mark_and_write_survive_a_server_crash_together() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
    let base = Database::on(std::sync::Arc::new(server)).await;
    let rounds = if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 3 };
    for round in 1..=rounds {
        // Each write presents a higher token, so that the mark rises with every row.
        let mut db = base.connect().await;
        let mut acked = round * 1_000;
        base.fence.claim(&db, &token(acked)).await.expect("claimed");
        let (server, fence) = (base.server.clone(), base.fence.clone());
        let crash = tokio::task::spawn_blocking(move || server.crash_and_restart());
        while let Ok(tx) = db.transaction().await {
            let next = acked + 1;
            let written = fence.admit(&tx, &token(next), LONG).await.is_ok() && put(&tx, next).await.is_ok();
            if !written || tx.commit().await.is_err() {
                break;
            }
            acked = next;
        }
        crash.await.expect("restarted");
        let last = base.written().await.last().copied().unwrap_or(0);
        let claimed = round * 1_000;
        assert_eq!(base.mark().await, Some(last.max(claimed)), "round {round}: the mark matches the last row");
        assert!(last.max(claimed) == acked || last == acked + 1, "round {round}: {acked} acknowledged, {last} stored");
    }
    assert!(base.written().await.is_sorted());
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}
