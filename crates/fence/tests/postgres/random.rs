//! Whatever several holders do in whatever order: no write below the mark ever lands (F1).

use std::time::Duration;

use leasehold_fence::Error;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_postgres::Client;

use crate::database::{Database, LONG, put};
use crate::support::token;

const HOLDERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim(u64),
    Hold(u64),
    Begin,
    Admit(u64),
    /// Writes what the session holds, if the table is protected.
    Plain,
    Commit,
    GiveUp,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let number = 1..6_u64;
    let what = prop_oneof![
        2 => number.clone().prop_map(Step::Claim),
        2 => number.clone().prop_map(Step::Hold),
        3 => Just(Step::Plain),
        2 => Just(Step::Begin),
        4 => number.prop_map(Step::Admit),
        3 => Just(Step::Commit),
        1 => Just(Step::GiveUp),
    ];
    (0..HOLDERS, what)
}

/// A holder's connection, and what it wrote in its open transaction.
struct Holder {
    db: Client,
    open: bool,
    inside: Vec<u64>,
    held: Option<u64>,
}

impl Holder {
    async fn end(&mut self, how: &str) -> bool {
        let ended = self.open && self.db.batch_execute(how).await.is_ok();
        self.open = false;
        ended
    }
}

async fn play(base: &Database, steps: &[(usize, Step)], lowest: u64, protected: bool) -> Result<(), TestCaseError> {
    let fence = base.fence.clone().patience(Duration::ZERO);
    let mut holders = Vec::new();
    for _ in 0..HOLDERS {
        let db = base.connect().await;
        db.batch_execute("SET lock_timeout = '20ms'").await.expect("nobody waits long");
        holders.push(Holder { db, open: false, inside: Vec::new(), held: None });
    }
    let mut mark = base.mark().await.unwrap_or(0);
    let before = base.written().await.len();
    let mut landed = Vec::new();
    for (who, what) in steps {
        let holder = &mut holders[*who];
        match *what {
            Step::Claim(n) if !holder.open => match fence.claim(&holder.db, &token(lowest + n)).await {
                Ok(number) => {
                    prop_assert!(number.get() >= mark);
                    mark = number.get();
                }
                Err(Error::Refused(_)) => prop_assert!(lowest + n < mark),
                Err(Error::Blocked { .. }) => {}
                Err(other) => prop_assert!(false, "{other}"),
            },
            Step::Hold(n) if !holder.open => {
                let n = lowest + n;
                let sql = format!("CALL leasehold.hold('{}', 'jobs/settle', 0, '1 h')", token(n));
                match holder.db.batch_execute(&sql).await.map_err(Error::from) {
                    Ok(()) => {
                        prop_assert!(n >= mark, "{n} is held at {mark}");
                        (holder.held, mark) = (Some(n), n);
                    }
                    Err(Error::Refused(_)) => prop_assert!(n < mark, "{n} was refused at {mark}"),
                    // It waited for who is inside, and may have raised the mark before.
                    Err(_) => mark = base.mark().await.unwrap_or(0),
                }
            }
            Step::Plain if holder.open && protected => {
                let highest = holder.inside.iter().copied().max().unwrap_or(0).max(mark);
                // What this transaction was admitted with counts before what its session holds.
                let shown = holder.inside.last().copied().or(holder.held);
                let row = i64::try_from(shown.unwrap_or(0)).expect("small");
                match holder.db.execute("INSERT INTO written (number) VALUES ($1)", &[&row]).await.map_err(Error::from)
                {
                    Ok(_) => {
                        prop_assert!(shown.is_some_and(|shown| shown >= highest), "{shown:?} passed {highest}");
                        holder.inside.extend(shown);
                    }
                    Err(refused) => {
                        let stale = shown.is_none_or(|shown| shown < highest);
                        prop_assert!(
                            !matches!(refused, Error::Refused(_)) || stale,
                            "{shown:?} at {highest}: {refused}"
                        );
                        holder.end("ROLLBACK").await;
                    }
                }
            }
            Step::Begin if !holder.open => {
                holder.db.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("begun");
                holder.db.batch_execute("SELECT FROM written LIMIT 1").await.expect("the snapshot is of now");
                (holder.open, holder.inside) = (true, Vec::new());
            }
            Step::Admit(n) if holder.open => {
                let n = lowest + n;
                let highest = holder.inside.iter().copied().max().unwrap_or(0).max(mark);
                let sql = "SELECT leasehold.admit($1, 'jobs/settle', 0, '1 h')";
                match holder.db.query(sql, &[&token(n)]).await.map_err(Error::from) {
                    Ok(_) => {
                        prop_assert!(n >= highest, "{n} passed {highest}");
                        let sql = "INSERT INTO written (number) VALUES ($1)";
                        let row = i64::try_from(n).expect("small");
                        holder.db.execute(sql, &[&row]).await.expect("who is admitted writes");
                        holder.inside.push(n);
                    }
                    Err(refused) => {
                        if matches!(refused, Error::Refused(_)) {
                            prop_assert!(n < highest, "{n} was refused at {highest}: {refused}");
                        }
                        holder.end("ROLLBACK").await;
                    }
                }
            }
            Step::Commit => {
                let inside = std::mem::take(&mut holder.inside);
                if holder.end("COMMIT").await {
                    mark = inside.iter().copied().max().unwrap_or(0).max(mark);
                    landed.extend(inside);
                }
            }
            Step::GiveUp => {
                holder.end("ROLLBACK").await;
            }
            Step::Claim(_) | Step::Hold(_) | Step::Begin | Step::Admit(_) | Step::Plain => {}
        }
    }
    for holder in &mut holders {
        holder.end("ROLLBACK").await;
    }
    let mut written = base.written().await.split_off(before);
    prop_assert_eq!(base.mark().await.unwrap_or(0), mark);
    // Rows take their place when they are written and not when they land, so two of one token may stand crossed.
    written.sort_unstable();
    prop_assert!(landed.is_sorted(), "{landed:?}");
    prop_assert_eq!(written, landed);
    Ok(())
}

#[test]
fn in_any_order_of_claims_writes_and_ends_the_tokens_of_what_landed_never_fall() {
    play_all(false);
}

#[test]
fn so_it_is_with_a_protected_table_and_sessions_that_hold() {
    play_all(true);
}

fn play_all(protected: bool) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let base = runtime.block_on(Database::new());
    if protected {
        runtime.block_on(base.fence.protect(&base.db, "written")).expect("protected");
    }
    let mut runner = TestRunner::new(Config { cases: Config::default().cases.min(64), ..Config::default() });
    // One database for all cases: each shows higher tokens than the one before.
    let lowest = std::cell::Cell::new(0);
    runner
        .run(&prop::collection::vec(step(), 1..30), |steps| {
            lowest.set(lowest.get() + 10);
            runtime.block_on(play(&base, &steps, lowest.get(), protected))
        })
        .unwrap_or_else(|failed| panic!("{failed}"));
    drop(runtime);
}

#[tokio::test]
async fn racing_writers_never_write_below_the_mark() {
    let base = Database::new().await;
    let mut racers = Vec::new();
    for offset in 0..4_u64 {
        let (mut db, fence) = (base.connect().await, base.fence.clone().patience(LONG));
        racers.push(tokio::spawn(async move {
            for round in 0..25 {
                let n = 1 + round * 4 + offset;
                if fence.claim(&db, &token(n)).await.is_err() {
                    continue;
                }
                for _ in 0..3 {
                    let tx = db.transaction().await.expect("begun");
                    match fence.admit(&tx, &token(n), LONG).await {
                        Ok(_) => {
                            put(&tx, n).await.expect("written");
                            tx.commit().await.expect("committed");
                        }
                        Err(Error::Refused(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }));
    }
    for racer in racers {
        racer.await.expect("no panic");
    }
    let written = base.written().await;
    assert!(written.is_sorted(), "{written:?}");
    assert!(!written.is_empty() && written.last().copied() <= base.mark().await);
}
