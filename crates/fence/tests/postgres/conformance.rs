//! The conformance suite against a real server, including kill -9.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    AppliedEntry, BOUNDED_CLAIM, DURABLE, FenceWriter, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RESOURCE, RISING,
    SEALED_TEXTS, SEQUENCES, STALE, STALE_DETAIL, STRICT, StuckHolder, Subject, UNARMED, check, crashes, fence_id,
    race,
};
use leasehold_fence::postgres::{Fence, install, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo};
use tokio_postgres::{Client, Transaction};

use crate::database::{LONG, backend};
use crate::server::Server;

/// How the writers are fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `admit` in a transaction.
    Checked,
    /// The check inside the statement.
    Inline,
    /// The check inside the statement, and the table is protected.
    Protected,
    /// Plain statements, the token is a setting of the connection, and the table is protected.
    Connection,
    /// Without the fence.
    Unfenced,
}

struct PostgresTarget {
    mode: Mode,
    server: Arc<Server>,
    database: Mutex<String>,
}

struct PostgresWriter {
    mode: Mode,
    fence: Fence,
    db: Client,
}

fn fence() -> Fence {
    Fence::new(&fence_id()).with_claim_timeout(Duration::from_secs(300))
}

impl PostgresTarget {
    async fn start(mode: Mode) -> Self {
        let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
        Self { mode, server: Arc::new(server), database: Mutex::default() }
    }

    async fn connect(&self) -> Client {
        let database = self.database.lock().expect("not poisoned").clone();
        self.server.connect("leasehold", &database).await.expect("connected")
    }

    /// Creates a database with the fence's functions and without a mark, and uses it from now on.
    async fn create_database(&self) {
        let count = self.database.lock().expect("not poisoned").trim_start_matches("suite").parse().unwrap_or(0_u32);
        let next = format!("suite{}", count + 1);
        let admin = self.server.connect("leasehold", "postgres").await.expect("connected");
        admin.batch_execute(&format!("CREATE DATABASE {next}")).await.expect("a database");
        *self.database.lock().expect("not poisoned") = next;
        let db = self.connect().await;
        // A row gets its position between check and commit, and no claim succeeds in between.
        let table = "CREATE TABLE written (place bigserial PRIMARY KEY, number bigint NOT NULL, what text NOT NULL)";
        db.batch_execute(table).await.expect("a table");
        install(&db).await.expect("installed");
    }

    /// Dropping the last handle stops the server, which blocks; so it runs off the runtime's threads.
    async fn stop(self) {
        tokio::task::spawn_blocking(move || drop(self)).await.expect("stopped");
    }
}

impl Subject for PostgresTarget {
    type Writer = PostgresWriter;

    async fn fresh(&self) {
        self.create_database().await;
        let db = self.connect().await;
        fence().arm(&db).await.expect("armed");
        if matches!(self.mode, Mode::Protected | Mode::Connection) {
            fence().protect(&db, "written").await.expect("protected");
        }
    }

    /// A table whose fence is not armed cannot be protected, so a token of the connection says nothing there.
    async fn unarmed(&self) -> bool {
        self.create_database().await;
        self.mode != Mode::Connection
    }

    async fn writer(&self) -> PostgresWriter {
        PostgresWriter { mode: self.mode, fence: fence(), db: self.connect().await }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let sql = "SELECT number, what FROM written ORDER BY place";
        let rows = self.connect().await.query(sql, &[]).await.expect("readable");
        let number = |n: i64| u64::try_from(n).ok().and_then(Number::new).expect("a number");
        rows.iter().map(|row| AppliedEntry { number: number(row.get(0)), value: row.get(1) }).collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        fence().mark(&self.connect().await).await
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        fence().declare_lost(&self.connect().await).await.map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        fence().rearm(&self.connect().await, floor).await.map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        fence().strict(&self.connect().await, enabled).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        fence().adopt(&self.connect().await, incarnation).await.map(|()| true)
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&self.connect().await).await.map(Some)
    }

    async fn crash(&self) -> bool {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || server.kill_and_restart()).await.expect("restarted");
        true
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<PostgresWriter>> {
        let impatient = fence().with_claim_timeout(Duration::from_millis(100));
        let successor = PostgresWriter { fence: impatient, ..self.writer().await };
        let db = self.connect().await;
        // Begun with SQL, because a `Transaction` would borrow the connection.
        let admitted_write = format!(
            "BEGIN; SELECT leasehold.admit('{token}', '{RESOURCE}', remaining => '1 h');
             INSERT INTO written (number, what) VALUES ({}, '{value}')",
            number(token)
        );
        db.batch_execute(&admitted_write).await.expect("admitted");
        let who = Some(backend(&db).await);
        let goes_on = Box::pin(async move { Ok(db.batch_execute("COMMIT").await?) });
        Some(StuckHolder { blocker: who, max_claim_time: Duration::from_secs(300), successor, resume: goes_on })
    }
}

fn number(token: &str) -> i64 {
    token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

async fn put(tx: &Transaction<'_>, token: &str, value: &str) -> Result<(), Error> {
    tx.execute("INSERT INTO written (number, what) VALUES ($1, $2)", &[&number(token), &value]).await?;
    Ok(())
}

impl FenceWriter for PostgresWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.fence.claim(&self.db, token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        match self.mode {
            Mode::Checked => {
                let tx = self.db.transaction().await?;
                self.fence.admit(&tx, token, LONG).await?;
                put(&tx, token, value).await?;
                Ok(tx.commit().await?)
            }
            Mode::Inline | Mode::Protected => {
                let sql = format!(
                    "INSERT INTO written (number, what) SELECT $4::bigint, $5::text WHERE {}",
                    Fence::inline_check(1)
                );
                let statement = self.db.prepare(&sql).await?;
                let rows = self.fence.write(&self.db, token, &statement, &[&number(token), &value]).await?;
                assert_eq!(rows, 1, "an admitted write changes a row");
                Ok(())
            }
            Mode::Connection => {
                self.db.execute("SELECT set_config('leasehold.token', $1, false)", &[&token]).await?;
                let sql = "INSERT INTO written (number, what) VALUES ($1, $2)";
                self.db.execute(sql, &[&number(token), &value]).await?;
                Ok(())
            }
            Mode::Unfenced => {
                let sql = "INSERT INTO written (number, what) VALUES ($1, $2)";
                self.db.execute(sql, &[&number(token), &value]).await?;
                Ok(())
            }
        }
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let tx = self.db.transaction().await?;
        let once = self.fence.admit_once(&tx, token, sequence, LONG).await?;
        if once == ApplyOnce::Applied {
            put(&tx, token, value).await?;
        }
        tx.commit().await?;
        Ok(Some(once))
    }
}

const ALL: [&str; 13] = [
    RISING,
    STALE,
    STALE_DETAIL,
    INVALID_TOKENS,
    SEALED_TEXTS,
    UNARMED,
    LOST_MARK,
    LIST_MARKS,
    STRICT,
    DURABLE,
    SEQUENCES,
    BOUNDED_CLAIM,
    RACE,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_conforms_in_every_mode() {
    for mode in [Mode::Checked, Mode::Inline, Mode::Protected, Mode::Connection] {
        let target = PostgresTarget::start(mode).await;
        let held = check(&target).await.unwrap_or_else(|violation| panic!("{mode:?}: {violation}"));
        let expected = ALL.into_iter().filter(|obligation| mode != Mode::Connection || *obligation != UNARMED);
        assert_eq!(held, expected.collect::<Vec<_>>(), "{mode:?}");
        target.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applied_tokens_never_fall_in_a_race_of_ten_thousand_operations_and_do_fall_without_the_fence() {
    for mode in [Mode::Protected, Mode::Connection] {
        let target = PostgresTarget::start(mode).await;
        let raced = race(&target, 8, 10_000, 11).await.unwrap_or_else(|violation| panic!("{mode:?}: {violation}"));
        assert_eq!((raced.operations, raced.undecided), (10_000, 0), "{mode:?}: {raced:?}");
        assert!(raced.refused > 0, "zombies were among them: {mode:?}: {raced:?}");
        target.stop().await;
    }

    let unfenced = PostgresTarget::start(Mode::Unfenced).await;
    let corrupted = race(&unfenced, 8, 2_000, 11).await.expect_err("nothing stops the zombies");
    assert_eq!(corrupted.obligation, RACE, "{corrupted}");
    unfenced.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mark_and_write_survive_kill_9_of_the_server_together() {
    let kills = if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 };
    let target = PostgresTarget::start(Mode::Checked).await;
    let acked = crashes(&target, kills, 13).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(acked > 0, "no write was acknowledged between the kills");
    target.stop().await;
}
