//! Check and write are one step: a claim waits for what is inside, and what began before it does not land after it.

use std::time::Duration;

use leasehold_fence::{Error, Refusal};
use tokio_postgres::IsolationLevel;

use crate::database::{Database, LONG, backend, put};
use crate::server::Server;
use crate::support::{number, token};

#[tokio::test]
async fn a_claim_waits_for_a_write_that_is_inside_and_then_reads_it() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("the predecessor claims");
    let inside = backend(&old).await;
    let tx = old.transaction().await.expect("it begins");
    base.fence.admit(&tx, &token(33), LONG).await.expect("is admitted");
    put(&tx, 33).await.expect("and writes");

    let hasty = base.fence.clone().patience(Duration::ZERO);
    match hasty.claim(&new, &token(34)).await {
        Err(Error::Blocked { by, .. }) => assert_eq!(by, [inside], "who is inside is named"),
        other => panic!("the claim passed a write in flight: {other:?}"),
    }
    assert_eq!(base.mark().await, Some(33), "and nothing was raised");
    tx.commit().await.expect("the predecessor is done");

    base.fence.claim(&new, &token(34)).await.expect("now the successor claims");
    assert_eq!(base.written().await, [33], "and reads what was written before");
    let late = base.write(&mut old, 33).await.expect_err("nothing more of it lands");
    assert_eq!(late.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
}

#[tokio::test]
async fn writers_under_one_token_do_not_wait_for_each_other() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let (mut one, mut two) = (base.connect().await, base.connect().await);
    let first = one.transaction().await.expect("begun");
    base.fence.admit(&first, &token(33), LONG).await.expect("admitted");
    put(&first, 33).await.expect("written");
    // If it waited for the first, which ends after it, this test would not end.
    base.write(&mut two, 33).await.expect("beside it");
    first.commit().await.expect("committed");
    assert_eq!(base.written().await, [33, 33]);
}

#[tokio::test]
async fn a_transaction_that_began_before_the_claim_does_not_write_after_it() {
    for (level, codes) in [
        (IsolationLevel::ReadCommitted, &["STALE_TOKEN"]),
        (IsolationLevel::RepeatableRead, &["UNAVAILABLE"]),
        (IsolationLevel::Serializable, &["UNAVAILABLE"]),
    ] {
        let base = Database::new().await;
        let (mut old, new) = (base.connect().await, base.connect().await);
        base.fence.claim(&old, &token(33)).await.expect("the predecessor claims");
        let tx = old.build_transaction().isolation_level(level).start().await.expect("it begins");
        let rows = tx.query("SELECT number FROM written", &[]).await.expect("its snapshot is of now");
        assert!(rows.is_empty());
        base.fence.claim(&new, &token(34)).await.expect("the successor claims meanwhile");
        let refused = base.fence.admit(&tx, &token(33), LONG).await.expect_err("an old token or an old snapshot");
        assert!(codes.contains(&refused.code()), "{level:?}: {refused}");
        put(&tx, 33).await.expect_err("the transaction has failed");
        drop(tx);
        assert_eq!(base.write(&mut old, 33).await.expect_err("begun anew").code(), "STALE_TOKEN", "{level:?}");
        assert_eq!(base.written().await, [0_u64; 0]);
    }
}

#[tokio::test]
async fn a_connection_that_vanishes_before_its_commit_leaves_neither_mark_nor_write() {
    let base = Database::new().await;
    base.fence.claim(&base.db, &token(33)).await.expect("claimed");
    let mut gone = base.connect().await;
    let tx = gone.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(40), LONG).await.expect("a higher token is admitted, and would raise the mark");
    put(&tx, 40).await.expect("written");
    drop(tx);
    drop(gone);
    // A claim waits until the server has noticed.
    base.fence.claim(&base.db, &token(34)).await.expect("nobody is inside any more");
    assert_eq!((base.mark().await, base.written().await), (Some(34), vec![]));
}

#[tokio::test]
async fn a_server_that_crashes_keeps_mark_and_write_together() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
    let base = Database::on(std::sync::Arc::new(server)).await;
    let rounds = if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 3 };
    for round in 1..=rounds {
        // Each write shows a higher token, so that the mark moves with every row.
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
        crash.await.expect("it is up again");
        let last = base.written().await.last().copied().unwrap_or(0);
        let claimed = round * 1_000;
        assert_eq!(base.mark().await, Some(last.max(claimed)), "round {round}: the mark is the last row's");
        assert!(last.max(claimed) == acked || last == acked + 1, "round {round}: {acked} acknowledged, {last} kept");
    }
    assert!(base.written().await.is_sorted());
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}
