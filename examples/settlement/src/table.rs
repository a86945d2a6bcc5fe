//! The table of what is settled: in SQLite, or in PostgreSQL where one is given.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::{Error, postgres, sqlite};
use rusqlite::{Connection, Transaction, params};
use tokio::runtime::Runtime;

use crate::Fault;

/// Names a PostgreSQL database for the table: `host=… user=… dbname=…`. In the environment, because it may hold a secret.
pub const POSTGRES: &str = "SETTLEMENT_POSTGRES";

/// The table, as one process has it open.
pub enum Table {
    Sqlite { db: Connection, fence: Option<sqlite::Fence> },
    Postgres(Box<Served>),
}

/// A table that a server keeps.
pub struct Served {
    runtime: Runtime,
    db: tokio_postgres::Client,
    fence: Option<postgres::Fence>,
    /// One for each night.
    table: &'static str,
}

impl Table {
    pub fn open(dir: &Path, fenced: bool, cluster: Cluster, resource: Name<'_>) -> Result<Self, Fault> {
        let Ok(given) = std::env::var(POSTGRES) else {
            let db = Connection::open(dir.join("table.db"))?;
            db.pragma_update(None, "journal_mode", "wal")?;
            db.busy_timeout(Duration::from_secs(10))?;
            return Ok(Self::Sqlite { db, fence: fenced.then(|| sqlite::Fence::new(cluster, resource, 0)) });
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (db, connection) = runtime.block_on(tokio_postgres::connect(&given, tokio_postgres::NoTls))?;
        // It ends with the client, or with an error that the client's own calls tell.
        runtime.spawn(connection);
        let fence = fenced.then(|| postgres::Fence::new(cluster, resource, 0));
        let table = if fenced { "settled_fenced" } else { "settled_unfenced" };
        Ok(Self::Postgres(Box::new(Served { runtime, db, fence, table })))
    }

    /// Makes it. One row for each merchant: settling it again replaces the row, and that looks harmless.
    pub fn create(&mut self) -> Result<(), Fault> {
        match self {
            Self::Sqlite { db, fence } => {
                db.execute_batch("CREATE TABLE settled (merchant TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT")?;
                if let Some(fence) = fence {
                    sqlite::install(db)?;
                    fence.arm(db)?;
                }
            }
            Self::Postgres(served) => {
                let Served { runtime, db, fence, table } = &mut **served;
                runtime.block_on(async {
                    let create = format!("CREATE TABLE {table} (merchant text PRIMARY KEY, cents bigint NOT NULL)");
                    db.batch_execute(&create).await?;
                    if let Some(fence) = fence {
                        postgres::install(db).await?;
                        fence.arm(db).await?;
                    }
                    Ok::<_, Fault>(())
                })?;
            }
        }
        Ok(())
    }

    pub fn claim(&mut self, token: &str) -> Result<(), Error> {
        match self {
            Self::Sqlite { db, fence: Some(fence) } => fence.claim(db, token).map(drop),
            Self::Sqlite { fence: None, .. } => Ok(()),
            Self::Postgres(served) => match &served.fence {
                Some(fence) => served.runtime.block_on(fence.claim(&served.db, token)).map(drop),
                None => Ok(()),
            },
        }
    }

    /// Who has been settled.
    pub fn settled(&self) -> Result<BTreeSet<String>, Fault> {
        match self {
            Self::Sqlite { db, .. } => {
                let mut rows = db.prepare("SELECT merchant FROM settled")?;
                let merchants = rows.query_map([], |row| row.get(0))?;
                Ok(merchants.collect::<Result<_, _>>()?)
            }
            Self::Postgres(served) => {
                let select = format!("SELECT merchant FROM {}", served.table);
                let rows = served.runtime.block_on(served.db.query(&select, &[]))?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
        }
    }

    /// Writes one row; behind the fence, if there is one, in the same transaction as its check.
    pub fn put(&mut self, merchant: &str, cents: i64, token: &str, left: Duration) -> Result<(), Error> {
        match self {
            Self::Sqlite { db, fence: Some(fence) } => fence.write(db, token, |tx| put(tx, merchant, cents)),
            Self::Sqlite { db, fence: None } => {
                let tx = db.transaction()?;
                put(&tx, merchant, cents)?;
                Ok(tx.commit()?)
            }
            Self::Postgres(served) => {
                let Served { runtime, db, fence, table } = &mut **served;
                runtime.block_on(async {
                    let tx = db.transaction().await?;
                    if let Some(fence) = fence {
                        fence.admit(&tx, token, left).await?;
                    }
                    let insert = format!(
                        "INSERT INTO {table} VALUES ($1, $2) ON CONFLICT (merchant) DO UPDATE SET cents = EXCLUDED.cents"
                    );
                    tx.execute(&insert, &[&merchant, &cents]).await?;
                    Ok(tx.commit().await?)
                })
            }
        }
    }
}

fn put(tx: &Transaction<'_>, merchant: &str, cents: i64) -> rusqlite::Result<()> {
    tx.execute("INSERT OR REPLACE INTO settled VALUES (?1, ?2)", params![merchant, cents]).map(drop)
}
