//! Fence for PostgreSQL.
//!
//! Marks are rows next to the data, and the checks are functions of the database, so clients in every language run the same
//! ones. This module installs and calls them from Rust.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_fence::Cluster, token: &str, remaining: std::time::Duration)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::FenceId;
//! use leasehold_fence::postgres::{Fence, install};
//!
//! let (mut db, connection) = tokio_postgres::connect("host=/run/postgresql", tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! let fence = Fence::new(&FenceId::new(cluster, "jobs/settle")?);
//! install(&db).await?; // once per database
//! fence.arm(&db).await?; // once per resource
//!
//! fence.claim(&db, token).await?; // first call of a new holder, before it reads
//! let tx = db.transaction().await?;
//! fence.admit(&tx, token, remaining).await?; // the server ends the transaction with the lease
//! tx.execute("INSERT INTO paid VALUES (7, 1200)", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod operator;
mod probe;
mod stamp;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::Number;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement, Transaction};

use crate::fence_id::wall_clock;
use crate::observer::EventSink;
use crate::{ApplyOnce, Counters, Error, FenceId, Observer, Operation};
pub use operator::list_marks;
pub use probe::{GuardInfo, ProbeReport, ProbedWrite, repair_guards};
pub use stamp::{StampKey, TargetStampKey, stamp};

/// Version of [`SQL`].
pub const VERSION: u32 = 5;

/// Installation script. To run it by hand, use `psql -v ON_ERROR_STOP=1 -f install.sql`, which includes the same files.
pub const SQL: &str = concat!(
    include_str!("sql/1-marks.sql"),
    include_str!("sql/2-token.sql"),
    include_str!("sql/3-check.sql"),
    include_str!("sql/4-claim.sql"),
    include_str!("sql/5-guards.sql"),
    include_str!("sql/6-protected-tables.sql"),
    include_str!("sql/7-ddl-check.sql"),
    include_str!("sql/8-probe.sql"),
    include_str!("sql/9-operator.sql"),
);

const DEFAULT_CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Installs the fence in this database or upgrades an older version; marks are preserved. Fails without a change if a newer
/// version is installed, or if schema `leasehold` or an object in it belongs to another role.
pub async fn install(db: &Client) -> Result<(), Error> {
    let installed = db.batch_execute(SQL).await;
    if installed.is_err() {
        // The script's transaction failed and is still open.
        db.batch_execute("ROLLBACK").await?;
    }
    Ok(installed?)
}

/// Fence of one resource and slot. It holds no connection and no state of the mark, so it works with any connection.
///
/// The database checks every token, also its stamp if the fence is sealed; so a token argument is the text of the grant, or the
/// stamped text that the server sends with the grant, or that [`stamp()`] returns.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    claim_timeout: Duration,
    terminate_blockers: bool,
    events: EventSink,
}

impl Fence {
    /// Creates the fence of a resource and slot. An exclusive lease has slot 0.
    pub fn new(id: &FenceId) -> Self {
        let id = id.clone();
        Self { id, claim_timeout: DEFAULT_CLAIM_TIMEOUT, terminate_blockers: false, events: EventSink::default() }
    }

    /// Sets how long a claim waits for admitted transactions (F8). The default is 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
        self
    }

    /// Lets a claim that reaches its timeout terminate the blocking backends and wait for the timeout once more. The role needs
    /// `EXECUTE` on `leasehold.terminate_blockers`, and the owner of the installed functions must be a superuser or a member of
    /// `pg_signal_backend`.
    pub const fn terminate_blockers(mut self) -> Self {
        self.terminate_blockers = true;
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

    /// Claims the target for a new holder, before it reads anything. Raises the mark in transactions of its own; the mark is
    /// durable when this returns.
    pub async fn claim(&self, db: &Client, token: impl AsRef<str>) -> Result<Number, Error> {
        let token = token.as_ref();
        let sql = "CALL leasehold.claim($1, $2, $3, $4 * interval '1 ms', $5, NULL)";
        let timeout = millis(self.claim_timeout);
        let params: [(&(dyn ToSql + Sync), Type); 5] = [
            (&token, Type::TEXT),
            (&self.id.resource(), Type::TEXT),
            (&self.slot(), Type::INT8),
            (&timeout, Type::INT8),
            (&self.terminate_blockers, Type::BOOL),
        ];
        let result = match db.query_typed(sql, &params).await {
            Ok(rows) => error::admission(token, rows.first().and_then(|row| row.get(0))),
            Err(error) => Err(error::decode(error, self.claim_timeout)),
        };
        self.events.record(&self.id, Operation::Claim, result.as_ref());
        result.map(|admission| admission.number)
    }

    /// Admits the rest of this transaction: its writes commit under the mark they were checked against, or not at all. After
    /// a refusal the transaction has failed; drop it to roll it back.
    ///
    /// `remaining` is the remaining time of the lease. The server ends a statement that runs longer and a transaction that is
    /// idle for longer, so that a paused holder does not block its successor (F8). The call waits no longer than this for a claim.
    pub async fn admit(
        &self,
        tx: &Transaction<'_>,
        token: impl AsRef<str>,
        remaining: Duration,
    ) -> Result<Number, Error> {
        let token = token.as_ref();
        let sql = "SELECT leasehold.admit($1, $2, $3, $4 * interval '1 ms')";
        let remaining = millis(remaining);
        let params: [(&(dyn ToSql + Sync), Type); 4] = [
            (&token, Type::TEXT),
            (&self.id.resource(), Type::TEXT),
            (&self.slot(), Type::INT8),
            (&remaining, Type::INT8),
        ];
        let result = match tx.query_typed(sql, &params).await {
            Ok(_) => error::admission(token, None),
            Err(error) => Err(error::decode(error, Duration::ZERO)),
        };
        self.events.record(&self.id, Operation::Write, result.as_ref());
        result.map(|admission| admission.number)
    }

    /// Presents a token once for all later writes of this connection to protected tables. The statements carry no token; the
    /// tables check each of them. Use it on a dedicated connection only; on pooled connections use [`Fence::admit`].
    /// `remaining` limits the connection's transactions as in [`Fence::admit`], until the next call of this method.
    pub async fn set_session_token(
        &self,
        db: &Client,
        token: impl AsRef<str>,
        remaining: Duration,
    ) -> Result<Number, Error> {
        let token = token.as_ref();
        let sql = "CALL leasehold.set_session_token($1, $2, $3, $4 * interval '1 ms', NULL)";
        let remaining = millis(remaining);
        let params: [(&(dyn ToSql + Sync), Type); 4] = [
            (&token, Type::TEXT),
            (&self.id.resource(), Type::TEXT),
            (&self.slot(), Type::INT8),
            (&remaining, Type::INT8),
        ];
        let result = match db.query_typed(sql, &params).await {
            Ok(_) => error::admission(token, None),
            Err(error) => Err(error::decode(error, Duration::ZERO)),
        };
        self.events.record(&self.id, Operation::Write, result.as_ref());
        result.map(|admission| admission.number)
    }

    /// Like [`Fence::admit`], for a sequenced write. Number the writes of one lease in ascending order; a late duplicate
    /// returns [`ApplyOnce::AlreadyApplied`], and the caller must not write.
    pub async fn admit_once(
        &self,
        tx: &Transaction<'_>,
        token: impl AsRef<str>,
        sequence: u64,
        remaining: Duration,
    ) -> Result<ApplyOnce, Error> {
        let token = token.as_ref();
        let sequence = i64::try_from(sequence)
            .map_err(|_| Error::InvalidArgument("the sequence is 2^63 or more; number the writes of a lease from 0"))?;
        let sql = "SELECT leasehold.admit_once($1, $2, $3, $4, $5 * interval '1 ms')";
        let remaining = millis(remaining);
        let params: [(&(dyn ToSql + Sync), Type); 5] = [
            (&token, Type::TEXT),
            (&sequence, Type::INT8),
            (&self.id.resource(), Type::TEXT),
            (&self.slot(), Type::INT8),
            (&remaining, Type::INT8),
        ];
        let result = match tx.query_typed(sql, &params).await {
            Ok(rows) => {
                error::admission(token, None).map(|admission| (admission, rows.first().and_then(|row| row.get(0))))
            }
            Err(error) => Err(error::decode(error, Duration::ZERO)),
        };
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, Operation::Write, admission);
        let last: Option<i64> = result?.1;
        Ok(match last.map(u64::try_from) {
            Some(Ok(last)) => ApplyOnce::AlreadyApplied { last },
            _ => ApplyOnce::Applied,
        })
    }

    /// Executes one statement outside of a transaction, with the check inside the statement, so it costs no extra round trip.
    /// The statement's condition must contain [`Fence::inline_check(1)`](Fence::inline_check); its own `params` start at `$4`.
    ///
    /// ```no_run
    /// # use leasehold_fence::postgres::Fence;
    /// # async fn example(db: tokio_postgres::Client, fence: Fence, token: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let sql = format!("UPDATE paid SET cents = $5 WHERE invoice = $4 AND {}", Fence::inline_check(1));
    /// let update = db.prepare(&sql).await?;
    /// fence.write(&db, token, &update, &[&7_i64, &1200_i64]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(
        &self,
        db: &Client,
        token: impl AsRef<str>,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let token = token.as_ref();
        let (resource, slot) = (self.id.resource(), self.slot());
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![&token, &resource, &slot];
        all.extend(params);
        let executed = db.execute(statement, &all).await.map_err(|error| error::decode(error, Duration::ZERO));
        let result = match &executed {
            Ok(_) => error::admission(token, None),
            Err(Error::Refused(refusal)) => Err(Error::Refused(*refusal)),
            Err(_) => return executed,
        };
        self.events.record(&self.id, Operation::Write, result.as_ref());
        executed
    }

    /// SQL condition that checks a token inside a statement. It uses three parameters from `$first_param`: the token, the
    /// resource and the slot, which [`Fence::write`] passes as `$1` to `$3`.
    pub fn inline_check(first_param: usize) -> String {
        let [token, resource, slot] = [first_param, first_param + 1, first_param + 2];
        format!("(SELECT leasehold.admit_inline(${token}::text, ${resource}::text, ${slot}::bigint)) > 0")
    }

    /// Returns the number of a token of this fence, for rows that store their own mark:
    /// `UPDATE account SET cents = $1, lease = $2 WHERE id = $3 AND lease <= $2`. The update itself is the check, and a claim is
    /// the same statement without other changes.
    pub fn number(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        Ok(self.id.parse_token_at(stamp::without_stamp(token.as_ref()), wall_clock())?.number)
    }

    fn slot(&self) -> i64 {
        self.id.slot().into()
    }
}

/// Milliseconds within the range of the server's timeout settings, which is 24 days.
fn millis(duration: Duration) -> i64 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX).into()
}
