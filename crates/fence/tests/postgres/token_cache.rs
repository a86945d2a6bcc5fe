//! The token cache only speeds up checks: a cached digest always matches the row, after rollbacks and changes too.

use leasehold_core::name::resource_hash;
use leasehold_fence::postgres::Fence;

use crate::database::{Database, LONG};
use crate::support::{CLUSTER, RESOURCE, id_of, parts, token};

impl Database {
    /// Whether the cache holds the digest of this token.
    async fn is_cached(&self, number: u64) -> bool {
        let sql = "SELECT coalesce(pg_sequence_last_value(('leasehold.token_cache_' || (leasehold.lock_key($1, 0) & 63))::regclass), 0)
            & -2 = hashtextextended($2, leasehold.lock_key($1, 0)) & -2";
        self.db.query_one(sql, &[&RESOURCE, &token(number)]).await.expect("read").get(0)
    }
}

#[tokio::test]
async fn a_write_caches_the_token_and_a_claim_clears_the_cache_before_it_returns() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    for _ in 0..3 {
        base.write(&mut old, 33).await.expect("written");
    }
    assert!(base.is_cached(33).await);
    base.fence.claim(&new, &token(34)).await.expect("claimed");
    assert!(!base.is_cached(33).await);
    assert_eq!(base.write(&mut old, 33).await.expect_err("stale").code(), "STALE_TOKEN");
    assert!(!base.is_cached(33).await);
    assert_eq!(base.written().await, [33, 33, 33]);
}

#[tokio::test]
async fn a_raised_mark_that_is_rolled_back_is_not_cached() {
    let base = Database::new().await;
    let (mut old, mut successor) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = successor.transaction().await.expect("a transaction");
    for _ in 0..2 {
        base.fence.admit(&tx, &token(34), LONG).await.expect("it raises the mark");
    }
    tx.batch_execute("SAVEPOINT s").await.expect("a savepoint");
    base.fence.admit(&tx, &token(34), LONG).await.expect("admitted");
    tx.rollback().await.expect("rolled back");
    assert!(!base.is_cached(34).await);
    for _ in 0..2 {
        base.write(&mut old, 33).await.expect("the mark was not raised");
    }
    base.write(&mut successor, 34).await.expect("committed");
    assert_eq!(base.write(&mut old, 33).await.expect_err("stale").code(), "STALE_TOKEN");
    assert_eq!(base.written().await, [33, 33, 34]);
}

#[tokio::test]
async fn every_change_of_the_row_clears_the_cache() {
    let changes = [
        ("UPDATE leasehold.fence SET mark = 50", "STALE_TOKEN"),
        ("SELECT leasehold.declare_lost('jobs/settle')", "STORAGE_FAILED"),
        ("UPDATE leasehold.fence SET server_id = '1/00000001'", "STORAGE_FAILED"),
        ("UPDATE leasehold.fence SET is_strict = true, incarnation = '00000001'", "NOT_ADOPTED"),
    ];
    for (change, refusal) in changes {
        let base = Database::new().await;
        let mut db = base.connect().await;
        base.fence.claim(&db, &token(33)).await.expect("claimed");
        for _ in 0..3 {
            base.write(&mut db, 33).await.expect("written");
        }
        assert!(base.is_cached(33).await);
        base.db.batch_execute(change).await.expect("changed");
        assert!(!base.is_cached(33).await, "{change}");
        assert_eq!(base.write(&mut db, 33).await.expect_err(change).code(), refusal, "{change}");
    }
}

#[tokio::test]
async fn fences_that_share_a_cache_entry_are_checked_independently() {
    let base = Database::new().await;
    let row = base
        .db
        .query_one(
            "SELECT 'jobs/' || n FROM generate_series(1, 10000) AS n
               WHERE leasehold.lock_key('jobs/' || n, 0) & 63 = leasehold.lock_key($1, 0) & 63 LIMIT 1",
            &[&RESOURCE],
        )
        .await
        .expect("a colliding name");
    let twin: String = row.get(0);
    let other = Fence::new(&id_of(CLUSTER, &twin));
    let other_token = |number| {
        let mut token = parts(number);
        token.resource = resource_hash(&twin);
        token.to_string()
    };
    let mut db = base.connect().await;
    other.arm(&db).await.expect("armed");
    for number in 33..40 {
        base.fence.claim(&db, &token(number)).await.expect("claimed");
        other.claim(&db, &other_token(number)).await.expect("claimed");
        // Enough that one fence replaces the other's cache entry.
        for _ in 0..200 {
            let tx = db.transaction().await.expect("a transaction");
            base.fence.admit(&tx, &token(number), LONG).await.expect("admitted");
            other.admit(&tx, &other_token(number), LONG).await.expect("admitted");
            tx.commit().await.expect("committed");
        }
        let tx = db.transaction().await.expect("a transaction");
        let late = base.fence.admit(&tx, &token(number - 1), LONG).await.expect_err("stale");
        assert_eq!(late.code(), "STALE_TOKEN");
        tx.rollback().await.expect("rolled back");
        let tx = db.transaction().await.expect("a transaction");
        let late = other.admit(&tx, &other_token(number - 1), LONG).await.expect_err("stale");
        assert_eq!(late.code(), "STALE_TOKEN");
        tx.rollback().await.expect("rolled back");
    }
}
