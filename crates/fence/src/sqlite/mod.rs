//! The fence in an SQLite database: its marks are rows beside the data, so check and write are one transaction.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::{name::Name, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # let dir = tempfile::tempdir()?;
//! # let cluster = Cluster(*b"examples");
//! # let name = Name::parse("jobs/settle")?;
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: leasehold_core::name::resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::sqlite::{Fence, install};
//!
//! let mut db = rusqlite::Connection::open(dir.path().join("ledger.db"))?;
//! db.pragma_update(None, "journal_mode", "wal")?;
//! db.execute_batch("CREATE TABLE paid (invoice INTEGER PRIMARY KEY, cents INTEGER) STRICT")?;
//!
//! let fence = Fence::new(cluster, name, 0);
//! install(&mut db)?; // once for the database
//! fence.arm(&mut db)?; // once for the resource
//!
//! fence.claim(&mut db, &token)?; // a new holder's first act, before it reads
//! fence.write(&mut db, &token, |tx| tx.execute("INSERT INTO paid VALUES (7, 1200)", []))?;
//! # Ok(())
//! # }
//! ```

mod durable;
mod enter;
mod forced;
mod operator;
mod row;
mod schema;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use rusqlite::{Connection, Transaction};

use crate::observer::Watch;
use crate::place::{Passed, Place};
use crate::{Act, Counters, Error, Mark, Observer, Once};
pub use forced::protection;
pub use operator::survey;
pub use schema::{FROM_1, SQL, VERSION, install};

/// How long a claim tries to get in, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// The fence of one resource's slot in a database. It keeps nothing itself and can be used with any connection.
#[derive(Clone, Debug)]
pub struct Fence {
    place: Place,
    patience: Duration,
    watch: Watch,
}

impl Fence {
    /// Guards what is written under this resource's slot; slot 0 under an exclusive lease.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { place: Place::new(cluster, resource, slot), patience: PATIENCE, watch: Watch::default() }
    }

    /// How long a claim may wait for others to leave (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
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

    /// A new holder's first act, before it reads: raises the mark in a transaction of its own, durable when this returns.
    /// What is read after it, no predecessor changes any more.
    pub fn claim(&self, db: &mut Connection, token: &str) -> Result<Number, Error> {
        let answer = self.claimed(db, token);
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Claim, answer.as_ref());
        answer.map(|passed| passed.number)
    }

    fn claimed(&self, db: &mut Connection, token: &str) -> Result<Passed, Error> {
        self.place.read(token)?;
        durable::check(db)?;
        let tx = self.enter(db)?;
        let (passed, _) = self.raise(&tx, token, None)?;
        tx.commit()?;
        Ok(passed)
    }

    /// Admits the rest of the caller's own transaction: what it writes lands together with the mark, or not at all. On a
    /// refusal the transaction must be given up; dropping it does that.
    ///
    /// Call it in the transaction itself, not inside a savepoint that may be rolled back while the transaction goes on.
    pub fn admit(&self, tx: &Connection, token: &str) -> Result<Number, Error> {
        self.admitted(tx, token, None).map(|(passed, _)| passed.number)
    }

    /// Like [`Fence::admit`], for a write that carries its sequence inside the hold, rising from write to write: one that
    /// arrives a second time is told as already applied, and then the caller writes nothing.
    pub fn admit_once(&self, tx: &Connection, token: &str, sequence: u64) -> Result<Once, Error> {
        self.admitted(tx, token, Some(sequence)).map(|(_, once)| once)
    }

    fn admitted(&self, tx: &Connection, token: &str, sequence: Option<u64>) -> Result<(Passed, Once), Error> {
        let answer = if tx.is_autocommit() {
            Err(Error::Misplaced("admit was asked outside of a transaction; begin one, admit, write, commit"))
        } else {
            durable::check(tx).and_then(|()| self.raise(tx, token, sequence)).and_then(|(passed, once)| {
                forced::enter(tx, &self.place, passed.number)?;
                Ok((passed, once))
            })
        };
        let told = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Write, told);
        answer
    }

    /// Runs a write behind the fence, in a transaction of its own.
    pub fn write<T>(
        &self,
        db: &mut Connection,
        token: &str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let tx = self.enter(db)?;
        self.admit(&tx, token)?;
        let done = work(&tx)?;
        self.leave(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    /// Runs a write behind the fence once, however often it is asked under this sequence. `None` if it was applied before.
    pub fn write_once<T>(
        &self,
        db: &mut Connection,
        token: &str,
        sequence: u64,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let tx = self.enter(db)?;
        let done = match self.admit_once(&tx, token, sequence)? {
            Once::Applied => Some(work(&tx)?),
            Once::AlreadyApplied { .. } => None,
        };
        self.leave(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    /// Check and mark, under the write lock that is held until the transaction ends.
    fn raise(&self, tx: &Connection, token: &str, sequence: Option<u64>) -> Result<(Passed, Once), Error> {
        let shown = self.place.read(token)?;
        let column = sequence.map(i64::try_from).transpose();
        let column = column.map_err(|_| Error::Misplaced("the sequence is 2^63 or more; number the writes from 0"))?;
        self.lock(tx)?;
        let standing = row::standing(tx, &self.place)?;
        let (passed, once) = shown.pass(&standing, sequence)?;
        let same = (standing.mark, standing.incarnation) == (Mark::Armed(passed.number), Some(shown.incarnation));
        if once == Once::Applied && (!same || sequence.is_some()) {
            row::raise(tx, &self.place, shown, column)?;
        }
        Ok((passed, once))
    }
}
