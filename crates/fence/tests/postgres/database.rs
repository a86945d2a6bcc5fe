//! Fixture: a database with an armed fence and a table that records the token number of each write, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_fence::Error;
use leasehold_fence::postgres::{Fence, install};
use tokio_postgres::{Client, Transaction};

use crate::server::Server;
use crate::support::{fence_id, token};

/// Longer than any test runs.
pub const LONG: Duration = Duration::from_secs(3_600);

pub struct Database {
    pub server: Arc<Server>,
    pub name: String,
    pub fence: Fence,
    pub db: Client,
}

impl Database {
    /// Creates a database with an armed fence on the shared server.
    pub async fn new() -> Self {
        Self::on(tokio::task::spawn_blocking(Server::shared).await.expect("a server")).await
    }

    pub async fn on(server: Arc<Server>) -> Self {
        Self::prepared(server, |_| String::new()).await
    }

    /// Like [`Database::on`], with statements that run in the new database, given its name, before the fence is installed.
    pub async fn prepared(server: Arc<Server>, before: impl FnOnce(&str) -> String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = server.connect("leasehold", "postgres").await.expect("connected");
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        let db = server.connect("leasehold", &name).await.expect("connected");
        db.batch_execute("CREATE TABLE written (place bigserial PRIMARY KEY, number bigint NOT NULL)")
            .await
            .expect("a table");
        db.batch_execute(&before(&name)).await.expect("prepared");
        install(&db).await.expect("installed");
        let fence = Fence::new(&fence_id());
        fence.arm(&db).await.expect("armed");
        Self { server, name, fence, db }
    }

    /// Opens another connection.
    pub async fn connect(&self) -> Client {
        self.server.connect("leasehold", &self.name).await.expect("connected")
    }

    /// Opens another connection whose startup options set `leasehold.token`.
    pub async fn connect_with_tokens(&self, tokens: &str) -> Client {
        let options = format!("-c leasehold.token={}", tokens.replace(' ', "\\ ").replace('\t', "\\\t"));
        self.server.connect_with_options("leasehold", &self.name, &options).await.expect("connected")
    }

    /// Token numbers of all writes, in order.
    pub async fn written(&self) -> Vec<u64> {
        let db = self.connect().await;
        let rows = db.query("SELECT number FROM written ORDER BY place", &[]).await.expect("readable");
        rows.iter().map(|row| u64::try_from(row.get::<_, i64>(0)).expect("a number")).collect()
    }

    pub async fn mark(&self) -> Option<u64> {
        self.fence.mark(&self.connect().await).await.expect("the mark is there").map(|mark| mark.get())
    }

    /// Writes one row in a transaction with the token of this number.
    pub async fn write(&self, db: &mut Client, number: u64) -> Result<(), Error> {
        let tx = db.transaction().await?;
        self.fence.admit(&tx, &token(number), LONG).await?;
        put(&tx, number).await?;
        Ok(tx.commit().await?)
    }
}

pub async fn put(tx: &Transaction<'_>, number: u64) -> Result<(), tokio_postgres::Error> {
    let number = i64::try_from(number).expect("small numbers");
    tx.execute("INSERT INTO written (number) VALUES ($1)", &[&number]).await.map(|_| ())
}

/// Backend process id of this connection.
pub async fn backend(db: &Client) -> u32 {
    let row = db.query_one("SELECT pg_backend_pid()", &[]).await.expect("a row");
    u32::try_from(row.get::<_, i32>(0)).expect("a process id")
}

pub fn fence() -> Fence {
    Fence::new(&fence_id())
}
