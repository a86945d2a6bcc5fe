//! Property tests: in any order of operations of several holders, no write below the mark commits (F1).

use std::time::Duration;

use leasehold_fence::Error;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::fixture::{Database, put, put_raw};
use crate::support::token;

const HOLDERS: usize = 3;

/// One operation of a holder on its connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    Claim(u64),
    Begin,
    Admit(u64),
    Commit,
    Rollback,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let number = 1..6_u64;
    let step = prop_oneof![
        2 => number.clone().prop_map(Step::Claim),
        2 => Just(Step::Begin),
        4 => number.prop_map(Step::Admit),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
    ];
    (0..HOLDERS, step)
}

fn end(db: &Connection, statement: &str) -> bool {
    !db.is_autocommit() && db.execute_batch(statement).is_ok()
}

proptest! {
    #[test]
    fn committed_tokens_never_fall_in_any_order_of_operations(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let base = Database::new();
        let fence = base.fence.clone().with_claim_timeout(Duration::ZERO);
        let mut holders: Vec<Connection> = (0..HOLDERS).map(|_| base.open()).collect();
        for db in &holders {
            db.busy_timeout(Duration::ZERO).expect("set");
        }
        // Model: the highest committed number, and the uncommitted numbers of each transaction.
        let mut mark = 0;
        let mut uncommitted: Vec<Vec<u64>> = vec![Vec::new(); HOLDERS];
        let mut committed = Vec::new();
        for (index, step) in steps {
            let db = &mut holders[index];
            match step {
                Step::Claim(n) => {
                    let before = mark;
                    match fence.claim(db, token(n)) {
                        Ok(_) => { prop_assert!(n >= before); mark = n; }
                        Err(Error::Refused(_)) => prop_assert!(n < before),
                        Err(Error::Blocked { .. } | Error::InvalidArgument(_)) => {}
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Begin => {
                    if db.is_autocommit() {
                        db.execute_batch("BEGIN").expect("begun");
                        // Takes the snapshot now; later checks must not rely on it.
                        db.query_row("SELECT count(*) FROM written", [], |_| Ok(())).expect("read");
                        uncommitted[index].clear();
                    }
                }
                Step::Admit(n) => match fence.admit(db, token(n)) {
                    Ok(_) => {
                        let highest = uncommitted[index].iter().copied().max().unwrap_or(0).max(mark);
                        prop_assert!(n >= highest, "{n} passed {highest}");
                        put_raw(db, n).expect("an admitted write succeeds");
                        uncommitted[index].push(n);
                    }
                    Err(Error::Refused(_)) => {
                        let highest = uncommitted[index].iter().copied().max().unwrap_or(0).max(mark);
                        prop_assert!(n < highest, "{n} was refused at {highest}");
                        end(db, "ROLLBACK");
                        uncommitted[index].clear();
                    }
                    Err(Error::Blocked { .. } | Error::InvalidArgument(_)) => {}
                    Err(other) => prop_assert!(false, "{other}"),
                },
                Step::Commit => {
                    if end(db, "COMMIT") {
                        mark = uncommitted[index].iter().copied().max().unwrap_or(mark);
                        committed.append(&mut uncommitted[index]);
                    }
                }
                Step::Rollback => {
                    end(db, "ROLLBACK");
                    uncommitted[index].clear();
                }
            }
        }
        drop(holders);
        let written = base.written();
        prop_assert!(written.is_sorted(), "{written:?}");
        prop_assert_eq!(&written, &committed);
        prop_assert_eq!(base.mark().unwrap_or(0), mark);
    }
}

#[test]
fn racing_writers_never_write_below_the_mark() {
    let base = Database::new();
    let fence = base.fence.clone().with_claim_timeout(Duration::from_secs(300));
    std::thread::scope(|scope| {
        for offset in 0..4_u64 {
            let (fence, base) = (&fence, &base);
            scope.spawn(move || {
                let mut db = base.open();
                for round in 0..50 {
                    let n = 1 + round * 4 + offset;
                    if fence.claim(&mut db, token(n)).is_ok() {
                        for _ in 0..3 {
                            match fence.write(&mut db, token(n), |tx| put(tx, n)) {
                                Ok(()) | Err(Error::Refused(_)) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                }
            });
        }
    });
    let written = base.written();
    assert!(written.is_sorted(), "{written:?}");
    assert!(written.last().copied() <= base.mark(), "the mark is at or above all committed numbers");
    assert_eq!(u64::try_from(written.len()).ok(), Some(fence.counters().snapshot().admitted));
}
