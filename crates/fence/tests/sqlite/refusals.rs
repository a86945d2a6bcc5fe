//! What is shown by mistake is refused with its code, counted and told, and changes nothing.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Number, TokenError};
use leasehold_fence::sqlite::Fence;
use leasehold_fence::{Act, Counted, Error, Event, Observer, Refusal};
use rusqlite::TransactionBehavior;

use crate::ledger::{Ledger, put, put_raw};
use crate::mistakes::mistakes;
use crate::support::{CLUSTER, name, number, token};

#[test]
fn a_late_write_is_refused_with_what_it_showed_and_what_stands() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(33)).expect("the first holder claims");
    ledger.fence.write(&mut db, &token(33), |tx| put(tx, 33)).expect("and writes");
    ledger.fence.claim(&mut db, &token(34)).expect("its successor claims");

    let late = ledger.fence.write(&mut db, &token(33), |tx| put(tx, 33)).expect_err("the zombie is refused");
    assert_eq!(late.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(late.code(), "STALE_TOKEN");
    assert!(late.to_string().contains("33") && late.to_string().contains("34"), "{late}");

    ledger.fence.write(&mut db, &token(34), |tx| put(tx, 34)).expect("the successor writes");
    ledger.fence.write(&mut db, &token(34), |tx| put(tx, 34)).expect("an equal token passes again");
    assert_eq!(ledger.written(), [33, 34, 34]);
    let counted = Counted { claims: 2, admitted: 3, stale: 1, ..Counted::default() };
    assert_eq!(ledger.fence.counters().read(), counted);
}

#[test]
fn every_mistake_is_refused_with_its_code_and_moves_nothing() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    ledger.fence.claim(&mut db, &token(10)).expect("a holder claims");
    for (text, code, why) in mistakes() {
        let before = ledger.fence.counters().read();
        for act in [Act::Claim, Act::Write] {
            let refused = match act {
                Act::Claim => ledger.fence.claim(&mut db, &text).map(|_| ()),
                Act::Write => ledger.fence.write(&mut db, &text, |tx| put(tx, 50)),
            };
            let error = refused.expect_err(why);
            assert_eq!((error.code(), error.refusal().map(Refusal::why)), (code, Some(why)), "{act:?}");
        }
        let after = ledger.fence.counters().read();
        let refused = |c: Counted| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(refused(after), refused(before) + 2, "{why} is counted");
        assert_eq!((after.claims, after.admitted), (before.claims, before.admitted));
    }
    assert_eq!(ledger.mark(), Some(10));
    assert_eq!(ledger.written(), [0_u64; 0]);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    let implausible = ledger.fence.admit(&tx, &mistakes().last().expect("the last one is implausible").0);
    assert!(
        matches!(implausible, Err(Error::Refused(Refusal::Implausible { presented })) if presented == Number::MAX),
        "{implausible:?}"
    );
}

#[test]
fn a_check_outside_of_a_transaction_is_refused_because_it_would_prove_nothing() {
    let ledger = Ledger::new();
    let db = ledger.open();
    let error = ledger.fence.admit(&db, &token(1)).expect_err("check-then-act");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    assert_eq!(ledger.mark(), None);
}

#[test]
fn a_claim_inside_of_a_transaction_is_refused_because_it_could_be_taken_back() {
    let ledger = Ledger::new();
    let mut db = ledger.open();
    db.execute_batch("BEGIN").expect("a transaction");
    let error = ledger.fence.claim(&mut db, &token(1)).expect_err("not committed on its own");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    db.execute_batch("COMMIT").expect("the transaction is still the caller's");
    assert_eq!(ledger.mark(), None);
}

#[test]
fn a_database_that_may_forget_a_commit_takes_no_claim_and_no_write() {
    for (journal, synchronous, setting) in [
        ("wal", "NORMAL", "PRAGMA synchronous"),
        ("wal", "OFF", "PRAGMA synchronous"),
        ("delete", "FULL", "PRAGMA synchronous"),
        ("truncate", "NORMAL", "PRAGMA synchronous"),
        ("memory", "EXTRA", "PRAGMA journal_mode"),
        ("off", "EXTRA", "PRAGMA journal_mode"),
    ] {
        let ledger = Ledger::with_journal(journal);
        let mut db = ledger.open();
        db.pragma_update(None, "synchronous", synchronous).expect("synchronous is taken");
        for error in [
            ledger.fence.claim(&mut db, &token(1)).map(|_| ()).expect_err("a claim"),
            ledger.fence.write(&mut db, &token(1), |tx| put(tx, 1)).expect_err("a write"),
        ] {
            assert!(matches!(&error, Error::NotDurable { setting: s, .. } if *s == setting), "{journal}: {error}");
            assert_eq!(error.code(), "CONFIG");
        }
        assert_eq!((ledger.mark(), ledger.written().len()), (None, 0), "{journal}");
    }
}

#[test]
fn each_durable_journal_mode_takes_claims_and_writes() {
    for (journal, synchronous) in
        [("wal", "FULL"), ("truncate", "FULL"), ("persist", "FULL"), ("delete", "EXTRA"), ("wal", "EXTRA")]
    {
        let ledger = Ledger::with_journal(journal);
        let mut db = ledger.open();
        db.pragma_update(None, "synchronous", synchronous).expect("synchronous is taken");
        ledger.fence.claim(&mut db, &token(1)).expect("a claim");
        ledger.fence.write(&mut db, &token(1), |tx| put(tx, 1)).expect("a write");
        assert_eq!((ledger.mark(), ledger.written()), (Some(1), vec![1]), "{journal}");
    }
}

#[test]
fn an_observer_is_told_every_answer_and_never_a_token() {
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);
    impl Observer for Told {
        fn told(&self, event: &Event<'_>) {
            self.0.lock().expect("nobody panicked").push(format!("{event:?}"));
        }
    }
    let told = Arc::new(Told::default());
    let ledger = Ledger::new();
    let fence = Fence::new(CLUSTER, name(), 0).observed_by(told.clone());
    let mut db = ledger.open();
    fence.claim(&mut db, &token(9)).expect("claimed");
    let tx = db.transaction().expect("a transaction of the caller's own");
    fence.admit(&tx, &token(9)).expect("admitted");
    put_raw(&tx, 9).expect("written");
    tx.commit().expect("committed");
    fence.write(&mut db, &token(8), |tx| put(tx, 8)).expect_err("stale");
    fence.write(&mut db, "", |tx| put(tx, 8)).expect_err("absent");

    let told = told.0.lock().expect("nobody panicked");
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("Claim") && told[1].contains("Write"), "{told:?}");
    assert!(told[2].contains("Stale") && told[3].contains(&format!("{:?}", TokenError::Absent)), "{told:?}");
    assert!(told.iter().all(|event| event.contains("jobs/settle") && !event.contains("lh1-")), "{told:?}");
    assert_eq!(ledger.written(), [9]);
}
