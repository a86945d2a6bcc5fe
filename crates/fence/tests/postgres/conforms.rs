//! The suite that every target passes, here in a server that is really killed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    Applied, BOUNDED, CLUSTER, DURABLE, Inside, LOST, MISSING, MISTAKES, RACE, RESOURCE, RISING, SEQUENCES, STALE,
    STRICT, SURVEY, Subject, TOLD, Writer, check, crashes, name, race,
};
use leasehold_fence::postgres::{Fence, install, survey};
use leasehold_fence::{Error, Kept, Once};
use tokio_postgres::{Client, Transaction};

use crate::database::{LONG, backend};
use crate::server::Server;

/// How the writers go: through the check in a transaction, folded into the statement, or into a table that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Checked,
    Folded,
    Forced,
    /// Past the fence.
    Unfenced,
}

struct Base {
    mode: Mode,
    server: Arc<Server>,
    database: Mutex<String>,
}

struct Way {
    mode: Mode,
    fence: Fence,
    db: Client,
}

fn fence() -> Fence {
    Fence::new(CLUSTER, name(), 0).patience(Duration::from_secs(300))
}

impl Base {
    async fn start(mode: Mode) -> Self {
        let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
        Self { mode, server: Arc::new(server), database: Mutex::default() }
    }

    async fn connect(&self) -> Client {
        let database = self.database.lock().expect("nobody panics").clone();
        self.server.connect("leasehold", &database).await.expect("connected")
    }

    /// The last handle stops the server, which must not happen on the runtime's own thread.
    async fn stop(self) {
        tokio::task::spawn_blocking(move || drop(self)).await.expect("stopped");
    }
}

impl Subject for Base {
    type Writer = Way;

    async fn fresh(&self) {
        assert!(self.unarmed().await);
        let db = self.connect().await;
        fence().arm(&db).await.expect("armed");
        if self.mode == Mode::Forced {
            fence().protect(&db, "written").await.expect("protected");
        }
    }

    async fn unarmed(&self) -> bool {
        let count = self.database.lock().expect("nobody panics").trim_start_matches("suite").parse().unwrap_or(0_u32);
        let next = format!("suite{}", count + 1);
        let admin = self.server.connect("leasehold", "postgres").await.expect("connected");
        admin.batch_execute(&format!("CREATE DATABASE {next}")).await.expect("a database");
        *self.database.lock().expect("nobody panics") = next;
        let db = self.connect().await;
        // A row takes its place after the check and before the commit, between which no claim gets in.
        let table = "CREATE TABLE written (place bigserial PRIMARY KEY, number bigint NOT NULL, what text NOT NULL)";
        db.batch_execute(table).await.expect("a table");
        install(&db).await.expect("installed");
        true
    }

    async fn writer(&self) -> Way {
        Way { mode: self.mode, fence: fence(), db: self.connect().await }
    }

    async fn applied(&self) -> Vec<Applied> {
        let sql = "SELECT number, what FROM written ORDER BY place";
        let rows = self.connect().await.query(sql, &[]).await.expect("readable");
        let number = |n: i64| u64::try_from(n).ok().and_then(Number::new).expect("a number");
        rows.iter().map(|row| Applied { number: number(row.get(0)), value: row.get(1) }).collect()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        fence().strict(&self.connect().await, true).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        fence().adopt(&self.connect().await, incarnation).await.map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(&self.connect().await).await.map(Some)
    }

    async fn crash(&self) -> bool {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || server.kill_and_restart()).await.expect("it is up again");
        true
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<Way>> {
        let hasty = fence().patience(Duration::from_millis(100));
        let successor = Way { fence: hasty, ..self.writer().await };
        let db = self.connect().await;
        // Open on the connection itself, which can then be kept: a transaction of the client's borrows it.
        let inside = format!(
            "BEGIN; SELECT leasehold.admit('{token}', '{RESOURCE}', remaining => '1 h');
             INSERT INTO written (number, what) VALUES ({}, '{value}')",
            number(token)
        );
        db.batch_execute(&inside).await.expect("admitted");
        let who = Some(backend(&db).await);
        let goes_on = Box::pin(async move { Ok(db.batch_execute("COMMIT").await?) });
        Some(Inside { who, bound: Duration::from_secs(300), successor, goes_on })
    }
}

fn number(token: &str) -> i64 {
    token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

async fn put(tx: &Transaction<'_>, token: &str, value: &str) -> Result<(), Error> {
    tx.execute("INSERT INTO written (number, what) VALUES ($1, $2)", &[&number(token), &value]).await?;
    Ok(())
}

impl Writer for Way {
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
            Mode::Folded | Mode::Forced => {
                let sql =
                    format!("INSERT INTO written (number, what) SELECT $4::bigint, $5::text WHERE {}", Fence::FOLDED);
                let folded = self.db.prepare(&sql).await?;
                let rows = self.fence.execute(&self.db, token, &folded, &[&number(token), &value]).await?;
                assert_eq!(rows, 1, "who is admitted writes");
                Ok(())
            }
            Mode::Unfenced => {
                let sql = "INSERT INTO written (number, what) VALUES ($1, $2)";
                self.db.execute(sql, &[&number(token), &value]).await?;
                Ok(())
            }
        }
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let tx = self.db.transaction().await?;
        let once = self.fence.admit_once(&tx, token, sequence, LONG).await?;
        if once == Once::Applied {
            put(&tx, token, value).await?;
        }
        tx.commit().await?;
        Ok(Some(once))
    }
}

const ALL: [&str; 12] =
    [RISING, STALE, TOLD, MISTAKES, MISSING, LOST, SURVEY, STRICT, DURABLE, SEQUENCES, BOUNDED, RACE];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_checked_folded_and_forced() {
    for mode in [Mode::Checked, Mode::Folded, Mode::Forced] {
        let base = Base::start(mode).await;
        let held = check(&base).await.unwrap_or_else(|violation| panic!("{mode:?}: {violation}"));
        assert_eq!(held, ALL, "{mode:?}");
        base.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_racing_operations_never_fall_and_without_the_fence_they_do() {
    let base = Base::start(Mode::Forced).await;
    let raced = race(&base, 8, 10_000, 11).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((raced.operations, raced.undecided), (10_000, 0), "{raced:?}");
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    base.stop().await;

    let bare = Base::start(Mode::Unfenced).await;
    let corrupted = race(&bare, 8, 2_000, 11).await.expect_err("nothing stops the zombies");
    assert_eq!(corrupted.obligation, RACE, "{corrupted}");
    bare.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_at_random_moments_keeps_mark_and_write_together() {
    let kills = if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 };
    let base = Base::start(Mode::Checked).await;
    let acked = crashes(&base, kills, 13).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(acked > 0, "somebody wrote between the kills");
    base.stop().await;
}
