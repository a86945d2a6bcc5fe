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
mod row;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use crate::observer::Watch;
use crate::place::Place;
use crate::{Act, Counters, Error, Lost, Mark, Observer, Refusal, blocker};
pub use schema::{SQL, VERSION, install};

/// How long a claim tries to get in, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a claim sleeps between two tries; SQLite wakes nobody.
const BETWEEN: Duration = Duration::from_millis(2);

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

    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub fn arm(&self, db: &mut Connection) -> Result<(), Error> {
        let tx = self.enter(db)?;
        if let (Mark::Lost, Lost::Missing) = row::mark(&tx, &self.place)? {
            let sql = "INSERT INTO main.leasehold_fence (resource, slot, name, cluster, state) VALUES (?1, ?2, ?3, ?4, 'fresh')";
            let Place { name, guarded } = &self.place;
            tx.execute(sql, params![self.place.resource(), guarded.slot, name, guarded.cluster.to_string()])?;
        }
        tx.commit()?;
        Ok(())
    }

    /// The mark that is kept, for a survey. What is lost is told as a refusal.
    pub fn mark(&self, db: &Connection) -> Result<Option<Number>, Error> {
        match row::mark(db, &self.place)? {
            (Mark::Armed(mark), _) => Ok(Some(mark)),
            (Mark::Fresh, _) => Ok(None),
            (Mark::Lost, how) => Err(Refusal::Lost(how).into()),
        }
    }

    /// Refuses everything until [`Fence::rearm`]: after the database itself was restored from a copy.
    pub fn declare_lost(&self, db: &mut Connection) -> Result<(), Error> {
        let tx = self.enter(db)?;
        let sql = "UPDATE main.leasehold_fence SET state = 'lost' WHERE resource = ?1 AND slot = ?2";
        if tx.execute(sql, params![self.place.resource(), self.place.guarded.slot])? == 0 {
            return Err(Refusal::Lost(Lost::Missing).into());
        }
        tx.commit()?;
        Ok(())
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub fn rearm(&self, db: &mut Connection, floor: Number) -> Result<(), Error> {
        let tx = self.enter(db)?;
        let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, sequence = NULL \
                   WHERE resource = ?1 AND slot = ?2 AND coalesce(mark, 0) <= ?3";
        let number = i64::try_from(floor.get()).expect("a number is below 2^63");
        if tx.execute(sql, params![self.place.resource(), self.place.guarded.slot, number])? == 0 {
            return Err(match row::mark(&tx, &self.place)? {
                (Mark::Lost, Lost::Missing) => Refusal::Lost(Lost::Missing).into(),
                _ => Error::Conflict("the floor is below a number that was seen here; take a higher one"),
            });
        }
        tx.commit()?;
        Ok(())
    }

    /// A new holder's first act, before it reads: raises the mark in a transaction of its own, durable when this returns.
    /// What is read after it, no predecessor changes any more.
    pub fn claim(&self, db: &mut Connection, token: &str) -> Result<Number, Error> {
        let answer = self.claimed(db, token);
        self.watch.tell(&self.place.name, self.place.guarded.slot, Act::Claim, &answer);
        answer
    }

    fn claimed(&self, db: &mut Connection, token: &str) -> Result<Number, Error> {
        self.place.read(token)?;
        durable::check(db)?;
        let tx = self.enter(db)?;
        let number = self.raise(&tx, token)?;
        tx.commit()?;
        Ok(number)
    }

    /// Admits the rest of the caller's own transaction: what it writes lands together with the mark, or not at all. On a
    /// refusal the transaction must be given up; dropping it does that.
    ///
    /// Call it in the transaction itself, not inside a savepoint that may be rolled back while the transaction goes on.
    pub fn admit(&self, tx: &Connection, token: &str) -> Result<Number, Error> {
        let answer = if tx.is_autocommit() {
            Err(Error::Misplaced("admit was asked outside of a transaction; begin one, admit, write, commit"))
        } else {
            durable::check(tx).and_then(|()| self.raise(tx, token))
        };
        self.watch.tell(&self.place.name, self.place.guarded.slot, Act::Write, &answer);
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
        tx.commit()?;
        Ok(done)
    }

    /// Check and mark, under the write lock that is held until the transaction ends.
    fn raise(&self, tx: &Connection, token: &str) -> Result<Number, Error> {
        let shown = self.place.read(token)?;
        self.lock(tx)?;
        let (mark, how) = row::mark(tx, &self.place)?;
        let raised = shown.against(mark, how)?;
        if mark != Mark::Armed(raised) {
            row::raise(tx, &self.place, shown)?;
        }
        Ok(raised)
    }

    /// Changes no row and takes the write lock: what is read from here on, nobody else changes before the commit. A
    /// transaction whose snapshot is already old is told to begin anew.
    fn lock(&self, tx: &Connection) -> Result<(), Error> {
        let lock = "UPDATE main.leasehold_fence SET mark = mark WHERE resource IS NULL";
        match tx.prepare_cached(lock).and_then(|mut lock| lock.execute([])) {
            Ok(_) => Ok(()),
            Err(error) if row::no_table(&error) => Err(Refusal::Lost(Lost::Missing).into()),
            Err(error) => Err(entered(error, tx, Duration::ZERO)),
        }
    }

    /// Begins a write transaction within the bound, whatever the connection's own patience is.
    fn enter<'db>(&self, db: &'db mut Connection) -> Result<Transaction<'db>, Error> {
        let db: &Connection = db;
        if !db.is_autocommit() {
            return Err(Error::Misplaced("a transaction is open on this connection; this needs one of its own"));
        }
        let began = Instant::now();
        // A handler of the caller's own shows as 0 here and is left in place.
        let own: u32 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        if own > 0 {
            db.busy_timeout(Duration::ZERO)?;
        }
        let tx = loop {
            match Transaction::new_unchecked(db, TransactionBehavior::Immediate) {
                Err(error) if busy(&error) && began.elapsed() < self.patience => thread::sleep(BETWEEN),
                tx => break tx,
            }
        };
        if own > 0 {
            db.busy_timeout(Duration::from_millis(own.into()))?;
        }
        tx.map_err(|error| entered(error, db, began.elapsed()))
    }
}

/// Why a write lock was not had.
fn entered(error: rusqlite::Error, db: &Connection, waited: Duration) -> Error {
    if !busy(&error) {
        return error.into();
    }
    let file = db.path().map(PathBuf::from).unwrap_or_default();
    let mut shared = file.clone().into_os_string();
    shared.push("-shm");
    Error::Blocked { waited, by: blocker::holders(&[&file, Path::new(&shared)]) }
}

fn busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
