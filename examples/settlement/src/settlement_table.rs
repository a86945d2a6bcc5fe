//! The table of settled merchants: in SQLite, or in PostgreSQL if a database is given.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use leasehold_fence::{Error, FenceId, postgres, sqlite};
use rusqlite::{Connection, Transaction, params};
use tokio::runtime::Runtime;

use crate::AnyError;

/// Environment variable with the PostgreSQL connection string. It may contain a secret.
pub const POSTGRES: &str = "SETTLEMENT_POSTGRES";

/// The open table of one process.
pub enum SettlementTable {
    Sqlite { db: Connection, fence: Option<sqlite::Fence> },
    Postgres(Box<PostgresTable>),
}

/// A table in PostgreSQL.
pub struct PostgresTable {
    runtime: Runtime,
    db: tokio_postgres::Client,
    fence: Option<postgres::Fence>,
    /// Each run has its own table.
    table: &'static str,
}

impl SettlementTable {
    pub fn open(dir: &Path, fenced: bool, id: &FenceId) -> Result<Self, AnyError> {
        let Ok(connection_string) = std::env::var(POSTGRES) else {
            let db = Connection::open(dir.join("table.db"))?;
            db.pragma_update(None, "journal_mode", "wal")?;
            db.busy_timeout(Duration::from_secs(10))?;
            return Ok(Self::Sqlite { db, fence: fenced.then(|| sqlite::Fence::new(id)) });
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (db, connection) = runtime.block_on(tokio_postgres::connect(&connection_string, tokio_postgres::NoTls))?;
        // Ends with the client, or with an error that the client's calls report.
        runtime.spawn(connection);
        let fence = fenced.then(|| postgres::Fence::new(id));
        let table = if fenced { "settled_fenced" } else { "settled_unfenced" };
        Ok(Self::Postgres(Box::new(PostgresTable { runtime, db, fence, table })))
    }

    /// Creates the table. It has one row per merchant: settling a merchant again replaces the row, which looks harmless.
    pub fn create(&mut self) -> Result<(), AnyError> {
        match self {
            Self::Sqlite { db, fence } => {
                db.execute_batch("CREATE TABLE settled (merchant TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT")?;
                if let Some(fence) = fence {
                    sqlite::install(db)?;
                    fence.arm(db)?;
                }
            }
            Self::Postgres(postgres_table) => {
                let PostgresTable { runtime, db, fence, table } = &mut **postgres_table;
                runtime.block_on(async {
                    let create = format!("CREATE TABLE {table} (merchant text PRIMARY KEY, cents bigint NOT NULL)");
                    db.batch_execute(&create).await?;
                    if let Some(fence) = fence {
                        postgres::install(db).await?;
                        fence.arm(db).await?;
                    }
                    Ok::<_, AnyError>(())
                })?;
            }
        }
        Ok(())
    }

    pub fn claim(&mut self, token: &str) -> Result<(), Error> {
        match self {
            Self::Sqlite { db, fence: Some(fence) } => fence.claim(db, token).map(drop),
            Self::Sqlite { fence: None, .. } => Ok(()),
            Self::Postgres(postgres_table) => match &postgres_table.fence {
                Some(fence) => postgres_table.runtime.block_on(fence.claim(&postgres_table.db, token)).map(drop),
                None => Ok(()),
            },
        }
    }

    /// Merchants that are settled.
    pub fn settled(&self) -> Result<BTreeSet<String>, AnyError> {
        match self {
            Self::Sqlite { db, .. } => {
                let mut rows = db.prepare("SELECT merchant FROM settled")?;
                let merchants = rows.query_map([], |row| row.get(0))?;
                Ok(merchants.collect::<Result<_, _>>()?)
            }
            Self::Postgres(postgres_table) => {
                let select = format!("SELECT merchant FROM {}", postgres_table.table);
                let rows = postgres_table.runtime.block_on(postgres_table.db.query(&select, &[]))?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
        }
    }

    /// Writes one row; with a fence, in the same transaction as the check.
    pub fn put(&mut self, merchant: &str, cents: i64, token: &str, remaining: Duration) -> Result<(), Error> {
        match self {
            Self::Sqlite { db, fence: Some(fence) } => fence.write(db, token, |tx| put(tx, merchant, cents)),
            Self::Sqlite { db, fence: None } => {
                let tx = db.transaction()?;
                put(&tx, merchant, cents)?;
                Ok(tx.commit()?)
            }
            Self::Postgres(postgres_table) => {
                let PostgresTable { runtime, db, fence, table } = &mut **postgres_table;
                runtime.block_on(async {
                    let tx = db.transaction().await?;
                    if let Some(fence) = fence {
                        fence.admit(&tx, token, remaining).await?;
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
