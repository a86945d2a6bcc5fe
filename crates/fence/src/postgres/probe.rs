//! Probe of a protected table: attempts writes that must be refused, and reads what the database knows of its guards (F3).

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::{Fence, error};
use crate::Error;

/// Limits each statement of a probe, which must not wait behind a long transaction.
const TIMEOUTS: &str = "SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '30s'";
/// Remaining lease time that the stale admission declares.
const REMAINING: Duration = Duration::from_secs(5);

/// State of one guard of a protected table or of its database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardInfo {
    /// The table, function or event trigger.
    pub object: String,
    /// Kind of the guard: `statement trigger`, `row trigger`, `definition`, `list`, `function` or `event trigger`. Three kinds are listed
    /// only with a problem: `grants`, `installed function` and `own trigger` of the fence's own objects.
    pub guard: String,
    /// What is wrong with it; `None` if it is in order.
    pub problem: Option<String>,
}

/// A write without a token that a probe attempted and undid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbedWrite {
    /// The table.
    pub table: String,
    /// Whether the fence refused it. If not, the write passed, or failed for another reason and proves nothing.
    pub refused: bool,
    /// SQLSTATE of the outcome: `LH002` if the fence refused it, `LH000` if it passed.
    pub sqlstate: String,
    /// Message of the outcome.
    pub message: String,
}

/// What a probe of a fence found. It changed nothing.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProbeReport {
    /// Outcome of an admission with the stale token; `None` if it was admitted, which it must not be.
    pub admission: Option<Error>,
    /// One write without a token for each protected table; empty if the fence protects none.
    pub writes: Vec<ProbedWrite>,
    /// Guards of these tables and of the database.
    pub guards: Vec<GuardInfo>,
}

impl ProbeReport {
    /// What is open, one sentence each; empty if the stale token and every write without a token were refused and all guards are in
    /// order. For a fence without protected tables only the admission counts, because it promises no more.
    pub fn holes(&self) -> Vec<String> {
        let admission = match &self.admission {
            Some(error) if error.refusal().is_some() => None,
            Some(error) => Some(format!("the stale token was not refused by the fence: {error}")),
            None => Some("a stale token was admitted".to_owned()),
        };
        let writes = self.writes.iter().filter(|write| !write.refused);
        let writes = writes.map(|write| match write.sqlstate.as_str() {
            "LH000" => format!("table {} accepted a write without a token", write.table),
            code => format!("the write to table {} proves nothing: {code} {}", write.table, write.message),
        });
        let guards = self.guards.iter().filter(|_| self.is_forced()).filter_map(|guard| {
            let problem = guard.problem.as_ref()?;
            Some(format!("{} of {}: {problem}", guard.guard, guard.object))
        });
        admission.into_iter().chain(writes).chain(guards).collect()
    }

    /// Whether the fence protects tables, or a table that it does not list has a guard.
    pub fn is_forced(&self) -> bool {
        !self.writes.is_empty() || self.guards.iter().any(|guard| guard.guard == "list")
    }
}

/// Restores the guards of all protected tables of this database: after it was restored from a dump or copied, or after a superuser
/// changed them. Returns the tables. Marks are left as they are; see [`Fence::rearm`].
pub async fn repair_guards(db: &Client) -> Result<Vec<String>, Error> {
    let rows = db.query_typed("SELECT g::text FROM leasehold.repair_guards() AS g", &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

impl Fence {
    /// Lists the guards of the tables that this fence protects, and of the database.
    pub async fn list_guards(&self, db: &Client) -> Result<Vec<GuardInfo>, Error> {
        let sql = "SELECT object, guard, problem FROM leasehold.list_guards($1, $2)";
        let rows = db.query_typed(sql, &[(&self.id.resource(), Type::TEXT), (&self.slot(), Type::INT8)]).await?;
        Ok(rows.iter().map(guard_info).collect())
    }

    /// Probes the fence: presents `stale`, a token below the mark, attempts a write without a token to each protected table, and lists
    /// the guards. Everything is undone. The role needs the rights of the schema's owner, and the right to delete from the tables.
    ///
    /// The attempted statements affect no rows; statement triggers of the application run, and their changes are undone.
    pub async fn probe(&self, db: &mut Client, stale: impl AsRef<str>) -> Result<ProbeReport, Error> {
        let tx = db.transaction().await?;
        tx.batch_execute(TIMEOUTS).await?;
        let sql = "SELECT leasehold.admit($1, $2, $3, $4 * interval '1 ms')";
        let admitted = tx
            .query_typed(
                sql,
                &[
                    (&stale.as_ref(), Type::TEXT),
                    (&self.id.resource(), Type::TEXT),
                    (&self.slot(), Type::INT8),
                    (&super::millis(REMAINING), Type::INT8),
                ],
            )
            .await;
        tx.rollback().await?;
        let admission = admitted.err().map(|failed| error::decode(failed, REMAINING));

        let tx = db.transaction().await?;
        tx.batch_execute(TIMEOUTS).await?;
        let sql = "SELECT object, refused, sqlstate, message FROM leasehold.probe_writes($1, $2)";
        let writes = tx.query_typed(sql, &[(&self.id.resource(), Type::TEXT), (&self.slot(), Type::INT8)]).await?;
        let writes = writes.iter().map(probed_write).collect();
        tx.rollback().await?;
        Ok(ProbeReport { admission, writes, guards: self.list_guards(db).await? })
    }
}

fn guard_info(row: &Row) -> GuardInfo {
    GuardInfo { object: row.get(0), guard: row.get(1), problem: row.get(2) }
}

fn probed_write(row: &Row) -> ProbedWrite {
    ProbedWrite { table: row.get(0), refused: row.get(1), sqlstate: row.get(2), message: row.get(3) }
}
