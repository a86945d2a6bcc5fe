//! Badges make a check cheap and nothing else: whoever wears one is who stands in the row, whatever was rolled back or changed.

use leasehold_core::name::{Name, resource_hash};
use leasehold_fence::postgres::Fence;

use crate::database::{Database, LONG};
use crate::support::{CLUSTER, RESOURCE, parts, token};

impl Database {
    /// Whether the place's badge is this token's.
    async fn wears(&self, number: u64) -> bool {
        let sql = "SELECT coalesce(pg_sequence_last_value(('leasehold.badge_' || (leasehold.lock_of($1, 0) & 63))::regclass), 0)
            & -2 = hashtextextended($2, leasehold.lock_of($1, 0)) & -2";
        self.db.query_one(sql, &[&RESOURCE, &token(number)]).await.expect("a look").get(0)
    }
}

#[tokio::test]
async fn a_badge_is_put_on_by_writing_and_taken_off_by_a_claim_before_it_is_told() {
    let base = Database::new().await;
    let (mut old, new) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    for _ in 0..3 {
        base.write(&mut old, 33).await.expect("written");
    }
    assert!(base.wears(33).await);
    base.fence.claim(&new, &token(34)).await.expect("claimed");
    assert!(!base.wears(33).await);
    assert_eq!(base.write(&mut old, 33).await.expect_err("it is over").code(), "STALE_TOKEN");
    assert!(!base.wears(33).await);
    assert_eq!(base.written().await, [33, 33, 33]);
}

#[tokio::test]
async fn a_mark_that_was_raised_and_rolled_back_leaves_no_badge() {
    let base = Database::new().await;
    let (mut old, mut hasty) = (base.connect().await, base.connect().await);
    base.fence.claim(&old, &token(33)).await.expect("claimed");
    let tx = hasty.transaction().await.expect("a transaction");
    for _ in 0..2 {
        base.fence.admit(&tx, &token(34), LONG).await.expect("it raises the mark, and sees so");
    }
    tx.batch_execute("SAVEPOINT s").await.expect("a savepoint");
    base.fence.admit(&tx, &token(34), LONG).await.expect("admitted");
    tx.rollback().await.expect("rolled back");
    assert!(!base.wears(34).await);
    for _ in 0..2 {
        base.write(&mut old, 33).await.expect("nobody came after it");
    }
    base.write(&mut hasty, 34).await.expect("this time it stays");
    assert_eq!(base.write(&mut old, 33).await.expect_err("it is over").code(), "STALE_TOKEN");
    assert_eq!(base.written().await, [33, 33, 34]);
}

#[tokio::test]
async fn whatever_changes_a_row_takes_its_badge_off() {
    let changes = [
        ("UPDATE leasehold.fence SET mark = 50", "STALE_TOKEN"),
        ("SELECT leasehold.declare_lost('jobs/settle')", "STORAGE_FAILED"),
        ("UPDATE leasehold.fence SET home = '1/00000001'", "STORAGE_FAILED"),
        ("UPDATE leasehold.fence SET is_strict = true, incarnation = '00000001'", "NOT_ADOPTED"),
    ];
    for (change, refusal) in changes {
        let base = Database::new().await;
        let mut db = base.connect().await;
        base.fence.claim(&db, &token(33)).await.expect("claimed");
        for _ in 0..3 {
            base.write(&mut db, 33).await.expect("written");
        }
        assert!(base.wears(33).await);
        base.db.batch_execute(change).await.expect("changed");
        assert!(!base.wears(33).await, "{change}");
        assert_eq!(base.write(&mut db, 33).await.expect_err(change).code(), refusal, "{change}");
    }
}

#[tokio::test]
async fn places_that_share_a_badge_are_fenced_each_for_itself() {
    let base = Database::new().await;
    let row = base
        .db
        .query_one(
            "SELECT 'jobs/' || n FROM generate_series(1, 10000) AS n
               WHERE leasehold.lock_of('jobs/' || n, 0) & 63 = leasehold.lock_of($1, 0) & 63 LIMIT 1",
            &[&RESOURCE],
        )
        .await
        .expect("one of ten thousand");
    let twin: String = row.get(0);
    let other = Fence::new(CLUSTER, Name::parse(&twin).expect("a name"), 0);
    let of_other = |number| {
        let mut token = parts(number);
        token.resource = resource_hash(&twin);
        token.to_string()
    };
    let mut db = base.connect().await;
    other.arm(&db).await.expect("armed");
    for number in 33..40 {
        base.fence.claim(&db, &token(number)).await.expect("claimed");
        other.claim(&db, &of_other(number)).await.expect("claimed");
        // Enough for one to take the other's badge over.
        for _ in 0..200 {
            let tx = db.transaction().await.expect("a transaction");
            base.fence.admit(&tx, &token(number), LONG).await.expect("admitted");
            other.admit(&tx, &of_other(number), LONG).await.expect("admitted");
            tx.commit().await.expect("committed");
        }
        let tx = db.transaction().await.expect("a transaction");
        let late = base.fence.admit(&tx, &token(number - 1), LONG).await.expect_err("it is over");
        assert_eq!(late.code(), "STALE_TOKEN");
        tx.rollback().await.expect("rolled back");
        let tx = db.transaction().await.expect("a transaction");
        let late = other.admit(&tx, &of_other(number - 1), LONG).await.expect_err("it is over");
        assert_eq!(late.code(), "STALE_TOKEN");
        tx.rollback().await.expect("rolled back");
    }
}
