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

mod operator;
mod told;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement, Transaction};

use crate::observer::Watch;
use crate::place::Place;
use crate::{Act, Counters, Error, Observer, Once};
pub use operator::survey;

/// The version of [`SQL`].
pub const VERSION: u32 = 2;

/// What is installed in the database. By hand: `psql -v ON_ERROR_STOP=1 -f install.sql`, which reads the same files.
pub const SQL: &str = concat!(
    include_str!("sql/1-marks.sql"),
    include_str!("sql/2-token.sql"),
    include_str!("sql/3-check.sql"),
    include_str!("sql/4-claim.sql"),
    include_str!("sql/5-forced.sql"),
    include_str!("sql/6-operator.sql"),
);

/// How long a claim waits for who is inside, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Installs the fence in this database, or brings an older version up to date; marks stay. A newer version is refused and
/// left as it is.
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

    /// A new holder's first act, before it reads: raises the mark in transactions of its own, durable when this returns.
    pub async fn claim(&self, db: &Client, token: &str) -> Result<Number, Error> {
        let sql = "CALL leasehold.claim($1, $2, $3, $4 * interval '1 ms', $5, NULL)";
        let bound = millis(self.patience);
        let with: [(&(dyn ToSql + Sync), Type); 5] = [
            (&token, Type::TEXT),
            (&self.place.name, Type::TEXT),
            (&self.slot(), Type::INT8),
            (&bound, Type::INT8),
            (&self.evicting, Type::BOOL),
        ];
        let answer = match db.query_typed(sql, &with).await {
            Ok(rows) => told::passed(token, rows.first().and_then(|row| row.get(0))),
            Err(error) => Err(told::error(error, self.patience)),
        };
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Claim, answer.as_ref());
        answer.map(|passed| passed.number)
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
            Ok(_) => told::passed(token, None),
            Err(error) => Err(told::error(error, Duration::ZERO)),
        };
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Write, answer.as_ref());
        answer.map(|passed| passed.number)
    }

    /// Shows a token once for all that this connection writes to protected tables from now on: each statement is checked by
    /// the table itself, and none carries a token. For a connection of one's own; where clients share connections, use
    /// [`Fence::admit`]. `left` bounds its transactions as there, until the next call of this.
    pub async fn hold(&self, db: &Client, token: &str, left: Duration) -> Result<Number, Error> {
        let sql = "CALL leasehold.hold($1, $2, $3, $4 * interval '1 ms', NULL)";
        let left = millis(left);
        let with: [(&(dyn ToSql + Sync), Type); 4] =
            [(&token, Type::TEXT), (&self.place.name, Type::TEXT), (&self.slot(), Type::INT8), (&left, Type::INT8)];
        let answer = match db.query_typed(sql, &with).await {
            Ok(_) => told::passed(token, None),
            Err(error) => Err(told::error(error, Duration::ZERO)),
        };
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Write, answer.as_ref());
        answer.map(|passed| passed.number)
    }

    /// Like [`Fence::admit`], for a write that carries its sequence inside the hold, rising from write to write: one that
    /// arrives a second time is told as already applied, and then the caller writes nothing.
    pub async fn admit_once(
        &self,
        tx: &Transaction<'_>,
        token: &str,
        sequence: u64,
        left: Duration,
    ) -> Result<Once, Error> {
        let number = i64::try_from(sequence)
            .map_err(|_| Error::Misplaced("the sequence is 2^63 or more; number the writes from 0"))?;
        let sql = "SELECT leasehold.admit_once($1, $2, $3, $4, $5 * interval '1 ms')";
        let left = millis(left);
        let with: [(&(dyn ToSql + Sync), Type); 5] = [
            (&token, Type::TEXT),
            (&number, Type::INT8),
            (&self.place.name, Type::TEXT),
            (&self.slot(), Type::INT8),
            (&left, Type::INT8),
        ];
        let answer = match tx.query_typed(sql, &with).await {
            Ok(rows) => told::passed(token, None).map(|passed| (passed, rows.first().and_then(|row| row.get(0)))),
            Err(error) => Err(told::error(error, Duration::ZERO)),
        };
        let passed = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Write, passed);
        let last: Option<i64> = answer?.1;
        Ok(match last.map(u64::try_from) {
            Some(Ok(last)) => Once::AlreadyApplied { last },
            _ => Once::Applied,
        })
    }

    /// Runs one statement behind the fence, outside of a transaction: the check is folded into it, so it costs no round
    /// trip of its own. Write the statement with [`Fence::FOLDED`] in its condition.
    pub async fn execute(
        &self,
        db: &Client,
        token: &str,
        folded: &Statement,
        with: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let slot = self.slot();
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![&token, &self.place.name, &slot];
        all.extend(with);
        let done = db.execute(folded, &all).await.map_err(|error| told::error(error, Duration::ZERO));
        let answer = match &done {
            Ok(_) => told::passed(token, None),
            Err(Error::Refused(refusal)) => Err(Error::Refused(*refusal)),
            Err(_) => return done,
        };
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Write, answer.as_ref());
        done
    }

    /// The condition that folds the check into a statement for [`Fence::execute`]; its own parameters begin with `$4`:
    /// `UPDATE paid SET cents = $5 WHERE invoice = $4 AND` …
    pub const FOLDED: &'static str = "(SELECT leasehold.folded($1::text, $2::text, $3::bigint)) > 0";

    /// The number of a token that is for this place, for a row that carries its own mark:
    /// `UPDATE account SET cents = $1, lease = $2 WHERE id = $3 AND lease <= $2`. The row's own update is the check, and a
    /// claim is the same statement that changes nothing else.
    pub fn number(&self, token: &str) -> Result<Number, Error> {
        Ok(self.place.read(token)?.number)
    }

    fn slot(&self) -> i64 {
        self.place.guarded.slot.into()
    }
}

/// As the server's timeouts can hold it: 24 days are as good as more.
fn millis(time: Duration) -> i64 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).into()
}
