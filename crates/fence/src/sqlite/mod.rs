//! Fence for SQLite. Marks are rows next to the data, so check and write are one transaction.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope, resource_hash};
//! # let dir = tempfile::tempdir()?;
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::sqlite::{Fence, install};
//!
//! let mut db = rusqlite::Connection::open(dir.path().join("ledger.db"))?;
//! db.pragma_update(None, "journal_mode", "wal")?;
//! db.execute_batch("CREATE TABLE paid (invoice INTEGER PRIMARY KEY, cents INTEGER) STRICT")?;
//!
//! let fence = Fence::new(&FenceId::new(cluster, "jobs/settle")?);
//! install(&mut db)?; // once per database
//! fence.arm(&mut db)?; // once per resource
//!
//! fence.claim(&mut db, &token)?; // first call of a new holder, before it reads
//! fence.write(&mut db, &token, |tx| tx.execute("INSERT INTO paid VALUES (7, 1200)", []))?;
//! # Ok(())
//! # }
//! ```

mod begin;
mod durability;
mod operator;
mod probe;
mod protected;
mod row;
mod schema;
mod seal;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::Number;
use rusqlite::{Connection, Transaction};

use crate::admission::Admission;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, Mark, Observer, Operation, SealVerifier};
pub use operator::list_marks;
pub use probe::{GuardFinding, GuardProbe};
pub use protected::protection_sql;
pub use schema::{SQL, UPGRADE_FROM_1, UPGRADE_FROM_2, UPGRADE_FROM_3, UPGRADE_FROM_4, install};
pub use seal::register_verifier;

/// Version of [`SQL`].
pub const VERSION: u32 = 5;

const DEFAULT_CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Fence of one resource and slot. It holds no connection and no state of the mark, so it works with any connection.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    seals: SealCheck,
    claim_timeout: Duration,
    events: EventSink,
}

impl Fence {
    /// Creates the fence of a resource and slot. An exclusive lease has slot 0.
    pub fn new(id: &FenceId) -> Self {
        let (seals, events) = (SealCheck::default(), EventSink::default());
        Self { id: id.clone(), seals, claim_timeout: DEFAULT_CLAIM_TIMEOUT, events }
    }

    /// Sets how long a claim waits for other write transactions (F8). The default is 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
        self
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8). Also registers
    /// [`leasehold_verify`](register_verifier) on the connections that it is called with.
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Self {
        self.seals = SealCheck::new(verifier);
        self
    }

    /// Sets the observer of every decision of this fence.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.events.observer = Some(observer);
        self
    }

    /// Counters shared by this fence and its clones.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Claims the target for a new holder, before it reads anything. Raises the mark in a transaction of its own; the mark is
    /// durable when this returns. No predecessor can change what the holder reads afterwards.
    pub fn claim(&self, db: &mut Connection, token: impl AsRef<str>) -> Result<Number, Error> {
        let result = self.try_claim(db, token.as_ref());
        self.events.record(&self.id, Operation::Claim, result.as_ref());
        result.map(|admission| admission.number)
    }

    fn try_claim(&self, db: &mut Connection, token: &str) -> Result<Admission, Error> {
        self.seals.present(&self.id, token)?;
        durability::check(db)?;
        let tx = self.begin(db)?;
        let (admission, _) = self.raise(&tx, token, None)?;
        // Nothing that an earlier transaction left is of use after a claim.
        self.end_admission(&tx)?;
        tx.commit()?;
        Ok(admission)
    }

    /// Admits the rest of this transaction: its writes commit together with the mark, or not at all. After a refusal roll the
    /// transaction back; dropping it does that.
    ///
    /// Do not call it inside a savepoint that may be rolled back while the transaction continues.
    pub fn admit(&self, tx: &Connection, token: impl AsRef<str>) -> Result<Number, Error> {
        self.try_admit(tx, token.as_ref(), None).map(|(admission, _)| admission.number)
    }

    /// Like [`Fence::admit`], for a sequenced write. Number the writes of one lease in ascending order; a late duplicate
    /// returns [`ApplyOnce::AlreadyApplied`], and the caller must not write.
    pub fn admit_once(&self, tx: &Connection, token: impl AsRef<str>, sequence: u64) -> Result<ApplyOnce, Error> {
        self.try_admit(tx, token.as_ref(), Some(sequence)).map(|(_, once)| once)
    }

    fn try_admit(&self, tx: &Connection, token: &str, sequence: Option<u64>) -> Result<(Admission, ApplyOnce), Error> {
        let result = if tx.is_autocommit() {
            Err(Error::InvalidArgument("admit was called outside of a transaction; begin one, admit, write, commit"))
        } else {
            durability::check(tx).and_then(|()| self.raise(tx, token, sequence)).and_then(|(admission, once)| {
                protected::begin_admission(tx, &self.id, admission.number, token)?;
                Ok((admission, once))
            })
        };
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, Operation::Write, admission);
        result
    }

    /// Runs `work` in a transaction of its own if the token is admitted.
    pub fn write<T>(
        &self,
        db: &mut Connection,
        token: impl AsRef<str>,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let tx = self.begin(db)?;
        self.admit(&tx, token)?;
        let output = work(&tx)?;
        self.end_admission(&tx)?;
        tx.commit()?;
        Ok(output)
    }

    /// Like [`Fence::write`], but runs `work` at most once per sequence. Returns `None` if this sequence was applied before.
    pub fn write_once<T>(
        &self,
        db: &mut Connection,
        token: impl AsRef<str>,
        sequence: u64,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let tx = self.begin(db)?;
        let output = match self.admit_once(&tx, token, sequence)? {
            ApplyOnce::Applied => Some(work(&tx)?),
            ApplyOnce::AlreadyApplied { .. } => None,
        };
        self.end_admission(&tx)?;
        tx.commit()?;
        Ok(output)
    }

    /// Checks the token and raises the mark under the write lock, which is held until the transaction ends.
    fn raise(&self, tx: &Connection, token: &str, sequence: Option<u64>) -> Result<(Admission, ApplyOnce), Error> {
        let presented = self.seals.present(&self.id, token)?;
        self.ensure_registered(tx)?;
        let column = sequence.map(i64::try_from).transpose();
        let column = column
            .map_err(|_| Error::InvalidArgument("the sequence is 2^63 or more; number the writes of a lease from 0"))?;
        self.acquire_write_lock(tx)?;
        let stored = row::read_mark(tx, &self.id)?;
        let (admission, once) = presented.admit(&stored, sequence)?;
        let same = (stored.mark, stored.incarnation) == (Mark::Armed(admission.number), Some(presented.incarnation));
        if once == ApplyOnce::Applied && (!same || sequence.is_some()) {
            row::raise_mark(tx, &self.id, presented, column)?;
        }
        Ok((admission, once))
    }
}
