//! Check and write are atomic: a claim waits for admitted transactions, and no older transaction commits after it.

use std::time::Duration;

use leasehold_fence::{Error, FenceRefusal};
use rusqlite::TransactionBehavior;

use crate::fixture::{Database, put, put_raw};
use crate::support::{number, token};

const JOURNALS: [&str; 2] = ["wal", "truncate"];

#[test]
fn a_claim_waits_for_an_admitted_write_and_then_reads_it() {
    for journal in JOURNALS {
        let base = Database::with_journal(journal);
        let impatient = base.fence.clone().with_claim_timeout(Duration::ZERO);
        let (mut old, mut new) = (base.open(), base.open());
        base.fence.claim(&mut old, token(33)).expect("the predecessor claims");

        let tx = old.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        base.fence.admit(&tx, token(33)).expect("admitted");
        put_raw(&tx, 33).expect("written");
        match impatient.claim(&mut new, token(34)) {
            Err(error @ Error::Blocked { .. }) => {
                assert_eq!(error.code(), "UNAVAILABLE");
                let Error::Blocked { blockers: by, .. } = &error else { unreachable!() };
                assert!(by.is_empty() || *by == [std::process::id()], "the blocking process is this one: {error}");
            }
            other => panic!("{journal}: the claim did not wait for the admitted write: {other:?}"),
        }
        tx.commit().expect("the predecessor commits");

        impatient.claim(&mut new, token(34)).expect("the successor claims");
        assert_eq!(base.written(), [33], "and reads the earlier write");
        let stale = base.fence.write(&mut old, token(33), |tx| put(tx, 33)).expect_err("stale");
        assert_eq!(stale.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    }
}

#[test]
fn a_waiting_claim_in_another_thread_succeeds_when_the_write_commits() {
    let base = Database::new();
    let (mut old, mut new) = (base.open(), base.open());
    let tx = old.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    base.fence.admit(&tx, token(33)).expect("admitted");
    let patient = base.fence.clone().with_claim_timeout(Duration::from_secs(300));
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| {
            patient.claim(&mut new, token(34)).expect("claimed");
            new.query_row("SELECT count(*) FROM written", [], |row| row.get::<_, i64>(0)).expect("a count")
        });
        put_raw(&tx, 33).expect("written");
        tx.commit().expect("committed");
        assert_eq!(claim.join().expect("no panic"), 1, "it reads the admitted write after its claim");
    });
    assert_eq!(base.mark(), Some(34));
}

#[test]
fn a_transaction_with_a_snapshot_older_than_the_claim_cannot_write() {
    for journal in JOURNALS {
        let base = Database::with_journal(journal);
        let (mut old, mut new) = (base.open(), base.open());
        base.fence.claim(&mut old, token(33)).expect("the predecessor claims");
        let tx = old.transaction_with_behavior(TransactionBehavior::Deferred).expect("begun");
        let count = |tx: &rusqlite::Connection| {
            tx.query_row("SELECT count(*) FROM written", [], |row| row.get::<_, i64>(0)).expect("a count")
        };
        if journal == "wal" {
            // The snapshot is older than the claim. Without WAL, a reader would block the claim instead.
            assert_eq!(count(&tx), 0);
        }
        base.fence.claim(&mut new, token(34)).expect("the successor claims");
        let refused = base.fence.admit(&tx, token(33)).expect_err("stale snapshot or token");
        assert!(["UNAVAILABLE", "STALE_TOKEN"].contains(&refused.code()), "{journal}: {refused}");
        drop(tx);
        let retried = base.fence.write(&mut old, token(33), |tx| put(tx, 33)).expect_err("retried");
        assert_eq!(retried.code(), "STALE_TOKEN");
        assert_eq!(base.written(), [0_u64; 0]);
    }
}

#[test]
fn a_connection_lost_before_its_commit_leaves_neither_mark_nor_write() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(33)).expect("claimed");
    let mut lost = base.open();
    let tx = lost.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    base.fence.admit(&tx, token(40)).expect("a higher token would raise the mark");
    put_raw(&tx, 40).expect("written");
    drop(tx);
    drop(lost);
    assert_eq!((base.mark(), base.written()), (Some(33), vec![]));
    base.fence.write(&mut db, token(33), |tx| put(tx, 33)).expect("the mark was not raised");
}

#[test]
fn a_failed_write_leaves_neither_mark_nor_rows() {
    let base = Database::new();
    let mut db = base.open();
    let failed = base.fence.write(&mut db, token(40), |tx| {
        put(tx, 40)?;
        tx.execute("INSERT INTO nowhere VALUES (1)", []).map(|_| ())
    });
    assert_eq!(failed.expect_err("no such table").code(), "STORAGE_FAILED");
    assert_eq!((base.mark(), base.written()), (None, vec![]));
}

#[test]
fn the_busy_timeout_of_the_connection_is_restored() {
    let base = Database::new();
    let mut db = base.open();
    db.busy_timeout(Duration::from_millis(1234)).expect("set");
    base.fence.claim(&mut db, token(1)).expect("claimed");
    let restored: u32 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).expect("read");
    assert_eq!(restored, 1234);
}
