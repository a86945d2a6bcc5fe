//! Whatever several holders do in whatever order: no write below the mark ever lands (F1).

use std::time::Duration;

use leasehold_fence::Error;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::ledger::{Ledger, put, put_raw};
use crate::support::token;

const HOLDERS: usize = 3;

/// One step of one holder, on its own connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    Claim(u64),
    Begin,
    Admit(u64),
    Commit,
    GiveUp,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let number = 1..6_u64;
    let what = prop_oneof![
        2 => number.clone().prop_map(Step::Claim),
        2 => Just(Step::Begin),
        4 => number.prop_map(Step::Admit),
        3 => Just(Step::Commit),
        1 => Just(Step::GiveUp),
    ];
    (0..HOLDERS, what)
}

fn end(db: &Connection, how: &str) -> bool {
    !db.is_autocommit() && db.execute_batch(how).is_ok()
}

proptest! {
    #[test]
    fn in_any_order_of_claims_writes_and_ends_the_tokens_of_what_landed_never_fall(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let ledger = Ledger::new();
        let fence = ledger.fence.clone().patience(Duration::ZERO);
        let mut holders: Vec<Connection> = (0..HOLDERS).map(|_| ledger.open()).collect();
        for db in &holders {
            db.busy_timeout(Duration::ZERO).expect("nobody waits");
        }
        // What the rule says: the highest number committed, and what each open transaction added.
        let mut mark = 0;
        let mut inside: Vec<Vec<u64>> = vec![Vec::new(); HOLDERS];
        let mut landed = Vec::new();
        for (who, what) in steps {
            let db = &mut holders[who];
            match what {
                Step::Claim(n) => {
                    let stood = mark;
                    match fence.claim(db, &token(n)) {
                        Ok(_) => { prop_assert!(n >= stood); mark = n; }
                        Err(Error::Refused(_)) => prop_assert!(n < stood),
                        Err(Error::Blocked { .. } | Error::Misplaced(_)) => {}
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Begin => {
                    if db.is_autocommit() {
                        db.execute_batch("BEGIN").expect("begun");
                        // Take the snapshot now: what comes later must not rest on it.
                        db.query_row("SELECT count(*) FROM written", [], |_| Ok(())).expect("read");
                        inside[who].clear();
                    }
                }
                Step::Admit(n) => match fence.admit(db, &token(n)) {
                    Ok(_) => {
                        let highest = inside[who].iter().copied().max().unwrap_or(0).max(mark);
                        prop_assert!(n >= highest, "{n} passed {highest}");
                        put_raw(db, n).expect("who is admitted writes");
                        inside[who].push(n);
                    }
                    Err(Error::Refused(_)) => {
                        let highest = inside[who].iter().copied().max().unwrap_or(0).max(mark);
                        prop_assert!(n < highest, "{n} was refused at {highest}");
                        end(db, "ROLLBACK");
                        inside[who].clear();
                    }
                    Err(Error::Blocked { .. } | Error::Misplaced(_)) => {}
                    Err(other) => prop_assert!(false, "{other}"),
                },
                Step::Commit => {
                    if end(db, "COMMIT") {
                        mark = inside[who].iter().copied().max().unwrap_or(mark);
                        landed.append(&mut inside[who]);
                    }
                }
                Step::GiveUp => {
                    end(db, "ROLLBACK");
                    inside[who].clear();
                }
            }
        }
        drop(holders);
        let written = ledger.written();
        prop_assert!(written.is_sorted(), "{written:?}");
        prop_assert_eq!(&written, &landed);
        prop_assert_eq!(ledger.mark().unwrap_or(0), mark);
    }
}

#[test]
fn racing_writers_never_write_below_the_mark() {
    let ledger = Ledger::new();
    let fence = ledger.fence.clone().patience(Duration::from_secs(300));
    std::thread::scope(|scope| {
        for offset in 0..4_u64 {
            let (fence, ledger) = (&fence, &ledger);
            scope.spawn(move || {
                let mut db = ledger.open();
                for round in 0..50 {
                    let n = 1 + round * 4 + offset;
                    if fence.claim(&mut db, &token(n)).is_ok() {
                        for _ in 0..3 {
                            match fence.write(&mut db, &token(n), |tx| put(tx, n)) {
                                Ok(()) | Err(Error::Refused(_)) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                }
            });
        }
    });
    let written = ledger.written();
    assert!(written.is_sorted(), "{written:?}");
    assert!(written.last().copied() <= ledger.mark(), "the mark is at or above all that landed");
    assert_eq!(u64::try_from(written.len()).ok(), Some(fence.counters().read().admitted));
}
