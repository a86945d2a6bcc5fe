//! Property tests: in any order of operations of several holders, no write below the mark commits (F1).

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
    SetToken(u64),
    /// Sets the token of the connection, which is presented only by writes.
    SetConnectionToken(u64),
    Begin,
    Admit(u64),
    /// Writes with the session token, if the table is protected.
    Plain,
    Commit,
    Rollback,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let number = 1..6_u64;
    let step = prop_oneof![
        2 => number.clone().prop_map(Step::Claim),
        2 => number.clone().prop_map(Step::SetToken),
        2 => number.clone().prop_map(Step::SetConnectionToken),
        3 => Just(Step::Plain),
        2 => Just(Step::Begin),
        4 => number.prop_map(Step::Admit),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
    ];
    (0..HOLDERS, step)
}

/// A holder's connection, the numbers written in its open transaction, and its tokens.
struct Holder {
    db: Client,
    open: bool,
    uncommitted: Vec<u64>,
    session_token: Option<u64>,
    connection_token: Option<u64>,
}

impl Holder {
    async fn end(&mut self, statement: &str) -> bool {
        let ended = self.open && self.db.batch_execute(statement).await.is_ok();
        self.open = false;
        ended
    }
}

async fn run_steps(
    base: &Database,
    steps: &[(usize, Step)],
    lowest: u64,
    protected: bool,
) -> Result<(), TestCaseError> {
    let fence = base.fence.clone().with_claim_timeout(Duration::ZERO);
    let mut holders = Vec::new();
    for _ in 0..HOLDERS {
        let db = base.connect().await;
        db.batch_execute("SET lock_timeout = '20ms'").await.expect("set");
        holders.push(Holder { db, open: false, uncommitted: Vec::new(), session_token: None, connection_token: None });
    }
    let mut mark = base.mark().await.unwrap_or(0);
    let before = base.written().await.len();
    let mut committed = Vec::new();
    for (index, step) in steps {
        let holder = &mut holders[*index];
        match *step {
            Step::Claim(n) if !holder.open => match fence.claim(&holder.db, &token(lowest + n)).await {
                Ok(number) => {
                    prop_assert!(number.get() >= mark);
                    mark = number.get();
                }
                Err(Error::Refused(_)) => prop_assert!(lowest + n < mark),
                Err(Error::Blocked { .. }) => {}
                Err(other) => prop_assert!(false, "{other}"),
            },
            Step::SetToken(n) if !holder.open => {
                let n = lowest + n;
                let sql = format!("CALL leasehold.set_session_token('{}', 'jobs/settle', 0, '1 h')", token(n));
                match holder.db.batch_execute(&sql).await.map_err(Error::from) {
                    Ok(()) => {
                        prop_assert!(n >= mark, "{n} was set at {mark}");
                        (holder.session_token, mark) = (Some(n), n);
                    }
                    Err(Error::Refused(_)) => prop_assert!(n < mark, "{n} was refused at {mark}"),
                    // It was blocked by an admitted transaction and may have raised the mark before.
                    Err(_) => mark = base.mark().await.unwrap_or(0),
                }
            }
            Step::SetConnectionToken(n) if !holder.open => {
                let sql = format!("SET leasehold.token = '{}'", token(lowest + n));
                holder.db.batch_execute(&sql).await.expect("set");
                holder.connection_token = Some(lowest + n);
            }
            Step::Plain if holder.open && protected => {
                let highest = holder.uncommitted.iter().copied().max().unwrap_or(0).max(mark);
                // The token of the transaction overrides that of the session, which overrides that of the connection.
                let presented = holder.uncommitted.last().copied().or(holder.session_token).or(holder.connection_token);
                let row = i64::try_from(presented.unwrap_or(0)).expect("small");
                match holder.db.execute("INSERT INTO written (number) VALUES ($1)", &[&row]).await.map_err(Error::from)
                {
                    Ok(_) => {
                        prop_assert!(
                            presented.is_some_and(|presented| presented >= highest),
                            "{presented:?} passed {highest}"
                        );
                        holder.uncommitted.extend(presented);
                    }
                    Err(refused) => {
                        let stale = presented.is_none_or(|presented| presented < highest);
                        prop_assert!(
                            !matches!(refused, Error::Refused(_)) || stale,
                            "{presented:?} at {highest}: {refused}"
                        );
                        holder.end("ROLLBACK").await;
                    }
                }
            }
            Step::Begin if !holder.open => {
                holder.db.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("begun");
                holder.db.batch_execute("SELECT FROM written LIMIT 1").await.expect("takes the snapshot");
                (holder.open, holder.uncommitted) = (true, Vec::new());
            }
            Step::Admit(n) if holder.open => {
                let n = lowest + n;
                let highest = holder.uncommitted.iter().copied().max().unwrap_or(0).max(mark);
                let sql = "SELECT leasehold.admit($1, 'jobs/settle', 0, '1 h')";
                match holder.db.query(sql, &[&token(n)]).await.map_err(Error::from) {
                    Ok(_) => {
                        prop_assert!(n >= highest, "{n} passed {highest}");
                        let sql = "INSERT INTO written (number) VALUES ($1)";
                        let row = i64::try_from(n).expect("small");
                        holder.db.execute(sql, &[&row]).await.expect("an admitted write succeeds");
                        holder.uncommitted.push(n);
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
                let uncommitted = std::mem::take(&mut holder.uncommitted);
                if holder.end("COMMIT").await {
                    mark = uncommitted.iter().copied().max().unwrap_or(0).max(mark);
                    committed.extend(uncommitted);
                }
            }
            Step::Rollback => {
                holder.end("ROLLBACK").await;
            }
            Step::Claim(_)
            | Step::SetToken(_)
            | Step::SetConnectionToken(_)
            | Step::Begin
            | Step::Admit(_)
            | Step::Plain => {}
        }
    }
    for holder in &mut holders {
        holder.end("ROLLBACK").await;
    }
    let mut written = base.written().await.split_off(before);
    prop_assert_eq!(base.mark().await.unwrap_or(0), mark);
    // Rows get their position when written, not when committed, so rows of one token may be swapped.
    written.sort_unstable();
    prop_assert!(committed.is_sorted(), "{committed:?}");
    prop_assert_eq!(written, committed);
    Ok(())
}

#[test]
fn committed_tokens_never_fall_in_any_order_of_operations() {
    run_property(false);
}

#[test]
fn committed_tokens_never_fall_with_protected_tables_and_session_tokens() {
    run_property(true);
}

fn run_property(protected: bool) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let base = runtime.block_on(Database::new());
    if protected {
        runtime.block_on(base.fence.protect(&base.db, "written")).expect("protected");
    }
    let mut runner = TestRunner::new(Config { cases: Config::default().cases.min(64), ..Config::default() });
    // All cases share one database; each presents higher tokens than the one before.
    let lowest = std::cell::Cell::new(0);
    runner
        .run(&prop::collection::vec(step(), 1..30), |steps| {
            lowest.set(lowest.get() + 10);
            runtime.block_on(run_steps(&base, &steps, lowest.get(), protected))
        })
        .unwrap_or_else(|failed| panic!("{failed}"));
    drop(runtime);
}

#[tokio::test]
async fn racing_writers_never_write_below_the_mark() {
    let base = Database::new().await;
    let mut racers = Vec::new();
    for offset in 0..4_u64 {
        let (mut db, fence) = (base.connect().await, base.fence.clone().with_claim_timeout(LONG));
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
