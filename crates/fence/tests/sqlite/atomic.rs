//! Check and write are one step: a claim waits for what is inside, and what began before it does not land after it.

use std::time::Duration;

use leasehold_fence::{Error, Refusal};
use rusqlite::TransactionBehavior;

use crate::ledger::{Ledger, put, put_raw};
use crate::support::{number, token};

const JOURNALS: [&str; 2] = ["wal", "truncate"];

#[test]
fn a_claim_waits_for_a_write_that_is_inside_and_then_reads_it() {
    for journal in JOURNALS {
        let ledger = Ledger::with_journal(journal);
        let impatient = ledger.fence.clone().patience(Duration::ZERO);
        let (mut old, mut new) = (ledger.open(), ledger.open());
        ledger.fence.claim(&mut old, &token(33)).expect("the predecessor claims");

        let tx = old.transaction_with_behavior(TransactionBehavior::Immediate).expect("it begins to write");
        ledger.fence.admit(&tx, &token(33)).expect("and is admitted");
        put_raw(&tx, 33).expect("and writes");
        match impatient.claim(&mut new, &token(34)) {
            Err(error @ Error::Blocked { .. }) => {
                assert_eq!(error.code(), "UNAVAILABLE");
                let Error::Blocked { by, .. } = &error else { unreachable!() };
                assert!(by.is_empty() || *by == [std::process::id()], "who is inside is this process: {error}");
            }
            other => panic!("{journal}: the claim passed a write in flight: {other:?}"),
        }
        tx.commit().expect("the predecessor is done");

        impatient.claim(&mut new, &token(34)).expect("now the successor claims");
        assert_eq!(ledger.written(), [33], "and reads what was written before");
        let late = ledger.fence.write(&mut old, &token(33), |tx| put(tx, 33)).expect_err("nothing more of it lands");
        assert_eq!(late.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    }
}

#[test]
fn a_claim_that_waits_in_another_thread_comes_in_when_the_write_is_done() {
    let ledger = Ledger::new();
    let (mut old, mut new) = (ledger.open(), ledger.open());
    let tx = old.transaction_with_behavior(TransactionBehavior::Immediate).expect("a write begins");
    ledger.fence.admit(&tx, &token(33)).expect("admitted");
    let patient = ledger.fence.clone().patience(Duration::from_secs(300));
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| {
            patient.claim(&mut new, &token(34)).expect("the claim gets in");
            new.query_row("SELECT count(*) FROM written", [], |row| row.get::<_, i64>(0)).expect("a count")
        });
        put_raw(&tx, 33).expect("written");
        tx.commit().expect("done");
        assert_eq!(claim.join().expect("no panic"), 1, "what it reads after its claim is what was inside before it");
    });
    assert_eq!(ledger.mark(), Some(34));
}

#[test]
fn a_transaction_that_read_before_the_claim_does_not_write_after_it() {
    for journal in JOURNALS {
        let ledger = Ledger::with_journal(journal);
        let (mut old, mut new) = (ledger.open(), ledger.open());
        ledger.fence.claim(&mut old, &token(33)).expect("the predecessor claims");
        let tx = old.transaction_with_behavior(TransactionBehavior::Deferred).expect("it begins");
        let seen = |tx: &rusqlite::Connection| {
            tx.query_row("SELECT count(*) FROM written", [], |row| row.get::<_, i64>(0)).expect("a count")
        };
        if journal == "wal" {
            // Its snapshot is of before the claim. Without write-ahead log a reader would hold the claim off instead.
            assert_eq!(seen(&tx), 0);
        }
        ledger.fence.claim(&mut new, &token(34)).expect("the successor claims meanwhile");
        let refused = ledger.fence.admit(&tx, &token(33)).expect_err("an old snapshot or an old token");
        assert!(["UNAVAILABLE", "STALE_TOKEN"].contains(&refused.code()), "{journal}: {refused}");
        drop(tx);
        let again = ledger.fence.write(&mut old, &token(33), |tx| put(tx, 33)).expect_err("begun anew");
        assert_eq!(again.code(), "STALE_TOKEN");
        assert_eq!(ledger.written(), [0_u64; 0]);
    }
}

#[test]
fn a_connection_that_vanishes_before_its_commit_leaves_neither_mark_nor_write() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(33)).expect("claimed");
    let mut gone = ledger.open();
    let tx = gone.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    ledger.fence.admit(&tx, &token(40)).expect("a higher token is admitted, and would raise the mark");
    put_raw(&tx, 40).expect("written");
    drop(tx);
    drop(gone);
    assert_eq!((ledger.mark(), ledger.written()), (Some(33), vec![]));
    ledger.fence.write(&mut db, &token(33), |tx| put(tx, 33)).expect("nobody was there");
}

#[test]
fn a_write_that_fails_by_itself_leaves_neither_mark_nor_rows() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    let failed = ledger.fence.write(&mut db, &token(40), |tx| {
        put(tx, 40)?;
        tx.execute("INSERT INTO nowhere VALUES (1)", []).map(|_| ())
    });
    assert_eq!(failed.expect_err("no such table").code(), "STORAGE_FAILED");
    assert_eq!((ledger.mark(), ledger.written()), (None, vec![]));
}

#[test]
fn the_callers_own_patience_is_as_it_was() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    db.busy_timeout(Duration::from_millis(1234)).expect("set");
    ledger.fence.claim(&mut db, &token(1)).expect("claimed");
    let left: u32 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).expect("read");
    assert_eq!(left, 1234);
}
