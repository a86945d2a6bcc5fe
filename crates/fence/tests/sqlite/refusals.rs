//! Refusals: stale and invalid tokens, misplaced calls and settings that are not durable; counters and observers.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Number, TokenError};
use leasehold_fence::sqlite::Fence;
use leasehold_fence::{CounterSnapshot, Error, FenceEvent, FenceRefusal, Observer};
use rusqlite::TransactionBehavior;

use crate::fixture::{Database, put, put_raw};
use crate::invalid_tokens::mistakes;
use crate::support::{fence_id, number, token};

#[test]
fn a_stale_write_is_refused_with_its_number_and_the_mark() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(33)).expect("the first holder claims");
    base.fence.write(&mut db, token(33), |tx| put(tx, 33)).expect("written");
    base.fence.claim(&mut db, token(34)).expect("the successor claims");

    let stale = base.fence.write(&mut db, token(33), |tx| put(tx, 33)).expect_err("the zombie is refused");
    assert_eq!(stale.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(stale.code(), "STALE_TOKEN");
    assert!(stale.to_string().contains("33") && stale.to_string().contains("34"), "{stale}");

    base.fence.write(&mut db, token(34), |tx| put(tx, 34)).expect("the successor writes");
    base.fence.write(&mut db, token(34), |tx| put(tx, 34)).expect("an equal token is admitted again");
    assert_eq!(base.written(), [33, 34, 34]);
    let counted = CounterSnapshot { claims: 2, admitted: 3, stale: 1, ..CounterSnapshot::default() };
    assert_eq!(base.fence.counters().snapshot(), counted);
}

#[test]
fn every_invalid_token_is_refused_with_its_code_and_changes_nothing() {
    let base = Database::new();
    let mut db = base.open();
    base.fence.claim(&mut db, token(10)).expect("a holder claims");
    for (text, code, reason) in mistakes() {
        let before = base.fence.counters().snapshot();
        for error in [
            base.fence.claim(&mut db, &text).map(|_| ()).expect_err(reason),
            base.fence.write(&mut db, &text, |tx| put(tx, 50)).expect_err(reason),
        ] {
            assert_eq!((error.code(), error.refusal().map(FenceRefusal::reason)), (code, Some(reason)), "{error}");
        }
        let after = base.fence.counters().snapshot();
        let refused = |c: CounterSnapshot| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(refused(after), refused(before) + 2, "{reason} is counted");
        assert_eq!((after.claims, after.admitted), (before.claims, before.admitted));
    }
    assert_eq!(base.mark(), Some(10));
    assert_eq!(base.written(), [0_u64; 0]);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    let implausible = base.fence.admit(&tx, &mistakes().last().expect("the last one is implausible").0);
    assert!(
        matches!(implausible, Err(Error::Refused(FenceRefusal::Implausible { presented })) if presented == Number::MAX),
        "{implausible:?}"
    );
}

#[test]
fn a_check_outside_a_transaction_is_refused_because_it_would_prove_nothing() {
    let base = Database::new();
    let db = base.open();
    let error = base.fence.admit(&db, token(1)).expect_err("check-then-act");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    assert_eq!(base.mark(), None);
}

#[test]
fn a_claim_inside_a_transaction_is_refused_because_it_could_be_rolled_back() {
    let base = Database::new();
    let mut db = base.open();
    db.execute_batch("BEGIN").expect("a transaction");
    let error = base.fence.claim(&mut db, token(1)).expect_err("not committed on its own");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    db.execute_batch("COMMIT").expect("the transaction is still open");
    assert_eq!(base.mark(), None);
}

#[test]
fn a_database_that_could_lose_a_commit_refuses_claims_and_writes() {
    for (journal, synchronous, setting) in [
        ("wal", "NORMAL", "PRAGMA synchronous"),
        ("wal", "OFF", "PRAGMA synchronous"),
        ("delete", "FULL", "PRAGMA synchronous"),
        ("truncate", "NORMAL", "PRAGMA synchronous"),
        ("memory", "EXTRA", "PRAGMA journal_mode"),
        ("off", "EXTRA", "PRAGMA journal_mode"),
    ] {
        let base = Database::with_journal(journal);
        let mut db = base.open();
        db.pragma_update(None, "synchronous", synchronous).expect("set");
        for error in [
            base.fence.claim(&mut db, token(1)).map(|_| ()).expect_err("a claim"),
            base.fence.write(&mut db, token(1), |tx| put(tx, 1)).expect_err("a write"),
        ] {
            assert!(matches!(&error, Error::NotDurable { setting: s, .. } if *s == setting), "{journal}: {error}");
            assert_eq!(error.code(), "CONFIG");
        }
        assert_eq!((base.mark(), base.written().len()), (None, 0), "{journal}");
    }
}

#[test]
fn every_durable_journal_mode_admits_claims_and_writes() {
    for (journal, synchronous) in
        [("wal", "FULL"), ("truncate", "FULL"), ("persist", "FULL"), ("delete", "EXTRA"), ("wal", "EXTRA")]
    {
        let base = Database::with_journal(journal);
        let mut db = base.open();
        db.pragma_update(None, "synchronous", synchronous).expect("set");
        base.fence.claim(&mut db, token(1)).expect("a claim");
        base.fence.write(&mut db, token(1), |tx| put(tx, 1)).expect("a write");
        assert_eq!((base.mark(), base.written()), (Some(1), vec![1]), "{journal}");
    }
}

#[test]
fn an_observer_receives_every_decision_and_never_a_token() {
    #[derive(Default)]
    struct RecordingObserver(Mutex<Vec<String>>);
    impl Observer for RecordingObserver {
        fn on_event(&self, event: &FenceEvent<'_>) {
            self.0.lock().expect("not poisoned").push(format!("{event:?}"));
        }
    }
    let observer = Arc::new(RecordingObserver::default());
    let base = Database::new();
    let fence = Fence::new(&fence_id()).with_observer(observer.clone());
    let mut db = base.open();
    fence.claim(&mut db, token(9)).expect("claimed");
    let tx = db.transaction().expect("begun");
    fence.admit(&tx, token(9)).expect("admitted");
    put_raw(&tx, 9).expect("written");
    tx.commit().expect("committed");
    fence.write(&mut db, token(8), |tx| put(tx, 8)).expect_err("stale");
    fence.write(&mut db, "", |tx| put(tx, 8)).expect_err("absent");

    let events = observer.0.lock().expect("not poisoned");
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(events[0].contains("Claim") && events[1].contains("Write"), "{events:?}");
    assert!(events[2].contains("Stale") && events[3].contains(&format!("{:?}", TokenError::Absent)), "{events:?}");
    assert!(events.iter().all(|event| event.contains("jobs/settle") && !event.contains("lh1-")), "{events:?}");
    assert_eq!(base.written(), [9]);
}
