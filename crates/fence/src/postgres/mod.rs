//! The fence in a PostgreSQL database: its marks are rows beside the data, its rules are functions of the server, so that
//! every client in every language asks the same ones. This is the way to them from Rust.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_core::token::Cluster, token: &str, left: std::time::Duration)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::name::Name;
//! use leasehold_fence::postgres::{Fence, install};
//!
//! let (mut db, connection) = tokio_postgres::connect("host=/run/postgresql", tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! let fence = Fence::new(cluster, Name::parse("jobs/settle")?, 0);
//! install(&db).await?; // once for the database
//! fence.arm(&db).await?; // once for the resource
//!
//! fence.claim(&db, token).await?; // a new holder's first act, before it reads
//! let tx = db.transaction().await?;
//! fence.admit(&tx, token, left).await?; // `left` of the lease; the server ends the transaction after it
//! tx.execute("INSERT INTO paid VALUES (7, 1200)", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod told;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use crate::observer::Watch;
use crate::place::Place;
use crate::{Act, Counters, Error, Lost, Observer, Refusal};

/// The version of [`SQL`].
pub const VERSION: u32 = 1;

/// What is installed in the database, for who installs it by hand: `psql -v ON_ERROR_STOP=1 -f install.sql`.
pub const SQL: &str = include_str!("install.sql");

/// How long a claim waits for who is inside, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Installs the fence in this database; again, it changes nothing. A newer version is refused and left as it is.
pub async fn install(db: &Client) -> Result<(), Error> {
    let installed = db.batch_execute(SQL).await;
    if installed.is_err() {
        // The script's own transaction is still open, and failed.
        db.batch_execute("ROLLBACK").await?;
    }
    Ok(installed?)
}

/// The fence of one resource's slot in a database. It keeps nothing itself and can be used with any connection.
#[derive(Clone, Debug)]
pub struct Fence {
    place: Place,
    patience: Duration,
    evicting: bool,
    watch: Watch,
}

impl Fence {
    /// Guards what is written under this resource's slot; slot 0 under an exclusive lease.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        let place = Place::new(cluster, resource, slot);
        Self { place, patience: PATIENCE, evicting: false, watch: Watch::default() }
    }

    /// How long a claim may wait for who is inside (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// A claim whose patience is over ends the backends that are inside, and waits as long again. The owner of the
    /// installation must be allowed to: a superuser, or a member of `pg_signal_backend`.
    pub const fn evicting(mut self) -> Self {
        self.evicting = true;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence and its clones answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub async fn arm(&self, db: &Client) -> Result<(), Error> {
        let cluster = self.place.guarded.cluster.to_string();
        let with: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.place.name, Type::TEXT), (&cluster, Type::TEXT), (&self.slot(), Type::INT8)];
        db.query_typed("SELECT leasehold.arm($1, $2, $3)", &with).await?;
        Ok(())
    }

    /// The mark that is kept, for a survey. What is lost is told as a refusal.
    pub async fn mark(&self, db: &Client) -> Result<Option<Number>, Error> {
        let sql =
            "SELECT mark, state = 'lost', home <> leasehold.home() FROM leasehold.fence WHERE name = $1 AND slot = $2";
        let found = db.query_typed(sql, &[(&self.place.name, Type::TEXT), (&self.slot(), Type::INT8)]).await?;
        let Some(row) = found.first() else { return Err(Refusal::Lost(Lost::Missing).into()) };
        match (row.get::<_, Option<i64>>(0), row.get(1), row.get(2)) {
            (_, true, _) => Err(Refusal::Lost(Lost::Declared).into()),
            (_, _, true) => Err(Refusal::Lost(Lost::Moved).into()),
            (None, _, _) => Ok(None),
            (Some(mark), _, _) => {
                let mark = u64::try_from(mark).ok().and_then(Number::new);
                mark.map(Some).ok_or(Error::Refused(Refusal::Lost(Lost::Unreadable)))
            }
        }
    }

    /// Refuses everything until [`Fence::rearm`].
    pub async fn declare_lost(&self, db: &Client) -> Result<(), Error> {
        let with: [(&(dyn ToSql + Sync), Type); 2] = [(&self.place.name, Type::TEXT), (&self.slot(), Type::INT8)];
        db.query_typed("SELECT leasehold.declare_lost($1, $2)", &with).await?;
        Ok(())
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub async fn rearm(&self, db: &Client, floor: Number) -> Result<(), Error> {
        let floor = i64::try_from(floor.get()).expect("a number is below 2^63");
        let with: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.place.name, Type::TEXT), (&floor, Type::INT8), (&self.slot(), Type::INT8)];
        db.query_typed("SELECT leasehold.rearm($1, $2, $3)", &with).await?;
        Ok(())
    }

    /// A new holder's first act, before it reads: raises the mark in transactions of its own, durable when this returns.
    pub async fn claim(&self, db: &Client, token: &str) -> Result<Number, Error> {
        let sql = "CALL leasehold.claim($1, $2, $3, $4 * interval '1 ms', $5)";
        let bound = millis(self.patience);
        let with: [(&(dyn ToSql + Sync), Type); 5] = [
            (&token, Type::TEXT),
            (&self.place.name, Type::TEXT),
            (&self.slot(), Type::INT8),
            (&bound, Type::INT8),
            (&self.evicting, Type::BOOL),
        ];
        let answer = match db.query_typed(sql, &with).await {
            Ok(_) => told::number(token),
            Err(error) => Err(told::error(error, self.patience)),
        };
        self.watch.tell(&self.place.name, self.place.guarded.slot, Act::Claim, &answer);
        answer
    }

    /// Admits the rest of this transaction: what it writes lands under the mark it was checked against, or not at all.
    /// On a refusal the transaction has failed, and dropping it gives it up.
    ///
    /// `left` is what is left of the lease: a statement that takes longer, or a transaction that stands still for longer,
    /// is ended by the server, so that a stopped holder does not hold up its successor (F8).
    pub async fn admit(&self, tx: &Transaction<'_>, token: &str, left: Duration) -> Result<Number, Error> {
        let sql = "SELECT leasehold.admit($1, $2, $3, $4 * interval '1 ms')";
        let left = millis(left);
        let with: [(&(dyn ToSql + Sync), Type); 4] =
            [(&token, Type::TEXT), (&self.place.name, Type::TEXT), (&self.slot(), Type::INT8), (&left, Type::INT8)];
        let answer = match tx.query_typed(sql, &with).await {
            Ok(_) => told::number(token),
            Err(error) => Err(told::error(error, Duration::ZERO)),
        };
        self.watch.tell(&self.place.name, self.place.guarded.slot, Act::Write, &answer);
        answer
    }

    fn slot(&self) -> i64 {
        self.place.guarded.slot.into()
    }
}

/// As the server's timeouts can hold it: 24 days are as good as more.
fn millis(time: Duration) -> i64 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).into()
}
