//! Operator calls: arm, re-arm, adopt, list marks, and protect tables.

use leasehold_core::token::{Incarnation, Number};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::{Fence, StampKey};
use crate::{Error, FenceRefusal, Mark, MarkInfo, MarkLoss};

/// Lists all marks of this database.
pub async fn list_marks(db: &Client) -> Result<Vec<MarkInfo>, Error> {
    // Read as JSON, because databases before version 4 have no column for the seal.
    let sql = "SELECT m.cluster, m.resource, m.name, m.slot, m.mark, m.lost, m.incarnation, m.is_strict,
        coalesce((pg_catalog.to_jsonb(f) ->> 'is_sealed')::boolean, false)
      FROM leasehold.list_marks() AS m JOIN leasehold.fence AS f ON (f.name, f.slot) = (m.name, m.slot) ORDER BY m.name, m.slot";
    db.query_typed(sql, &[]).await?.iter().map(mark_info).collect()
}

fn mark_info(row: &Row) -> Result<MarkInfo, Error> {
    let unreadable = || Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable));
    let incarnation: Option<&str> = row.get(6);
    Ok(MarkInfo {
        cluster: row.get::<_, &str>(0).parse().map_err(|_| unreadable())?,
        resource_hash: row.get(1),
        name: Some(row.get(2)),
        slot: u32::try_from(row.get::<_, i64>(3)).map_err(|_| unreadable())?,
        mark: mark(row.get(4), row.get(5)).0,
        incarnation: incarnation.and_then(|text| text.parse().ok()),
        strict: row.get(7),
        sealed: row.get(8),
    })
}

fn mark(mark: Option<i64>, lost: Option<&str>) -> (Mark, MarkLoss) {
    match (mark, lost) {
        (_, Some("lost")) => (Mark::Lost, MarkLoss::Declared),
        (_, Some(_)) => (Mark::Lost, MarkLoss::Moved),
        (None, None) => (Mark::Fresh, MarkLoss::Unreadable),
        (Some(mark), None) => {
            let mark = u64::try_from(mark).ok().and_then(Number::new);
            (mark.map_or(Mark::Lost, Mark::Armed), MarkLoss::Unreadable)
        }
    }
}

impl Fence {
    /// Arms the fence for a resource and slot under which nothing was written yet: the first token sets the mark. An existing
    /// mark is left unchanged.
    pub async fn arm(&self, db: &Client) -> Result<(), Error> {
        let cluster = self.id.cluster().to_string();
        self.call(db, "SELECT leasehold.arm($1, $3, $2)", &[(&cluster, Type::TEXT)]).await
    }

    /// Reads the mark; `None` if no token was admitted yet. A lost mark is an error.
    pub async fn mark(&self, db: &Client) -> Result<Option<Number>, Error> {
        let sql = "SELECT mark, lost FROM leasehold.list_marks() WHERE name = $1 AND slot = $2";
        let found = db.query_typed(sql, &[(&self.id.resource(), Type::TEXT), (&self.slot(), Type::INT8)]).await?;
        let Some(row) = found.first() else { return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()) };
        match mark(row.get(0), row.get(1)) {
            (Mark::Armed(mark), _) => Ok(Some(mark)),
            (Mark::Fresh, _) => Ok(None),
            (Mark::Lost, loss) => Err(FenceRefusal::MarkLost(loss).into()),
        }
    }

    /// Declares the mark lost: every token is refused until [`Fence::rearm`].
    pub async fn declare_lost(&self, db: &Client) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.declare_lost($1, $2)", &[]).await
    }

    /// Sets a lost mark to a floor. No earlier holder may have a higher number. A floor below the mark is refused.
    pub async fn rearm(&self, db: &Client, floor: Number) -> Result<(), Error> {
        let floor = i64::try_from(floor.get()).expect("a number is below 2^63");
        self.call(db, "SELECT leasehold.rearm($1, $3, $2)", &[(&floor, Type::INT8)]).await
    }

    /// Sets whether tokens of another incarnation are refused until it is adopted, for a target that two restored copies of
    /// one cluster could reach (T5). If not strict, a higher number is admitted and the change is reported.
    pub async fn strict(&self, db: &Client, enabled: bool) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.set_strict($1, $3, $2)", &[(&enabled, Type::BOOL)]).await
    }

    /// Seals the fence, permanently: it accepts only tokens with a stamp of this key. A second key is accepted besides the first
    /// until [`Fence::retire_stamp_key`], so that keys can be replaced. Returns the id of the key.
    pub async fn seal(&self, db: &Client, key: &StampKey) -> Result<String, Error> {
        let (resource, slot) = (self.id.resource(), self.slot());
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&resource, Type::TEXT), (&slot, Type::INT8), (&key.expose(), Type::BYTEA)];
        Ok(db.query_typed("SELECT leasehold.seal($1, $3, $2)", &params).await?[0].get(0))
    }

    /// Removes a stamp key by its id: tokens that it stamped are refused from now on. The last key stays.
    pub async fn retire_stamp_key(&self, db: &Client, key_id: &str) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.retire_stamp_key($1, $3, $2)", &[(&key_id, Type::TEXT)]).await
    }

    /// Makes the fence follow this incarnation, after an intended restore of the cluster. The mark is unchanged.
    pub async fn adopt(&self, db: &Client, incarnation: Incarnation) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.adopt($1, $3, $2)", &[(&incarnation.to_string(), Type::TEXT)]).await
    }

    /// Protects a table with its partitions and children: the database refuses every write that does not present a current
    /// token of this fence, whichever table, view or function it names (F3). Protecting the root of a partitioned table is faster
    /// than protecting its partitions, because rows below an unprotected table are checked one by one.
    pub async fn protect(&self, db: &Client, table: &str) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.protect($3::regclass, $1, $2)", &[(&table, Type::TEXT)]).await
    }

    /// Removes the protection of a table with its partitions and children. A table that is protected with its parent is refused.
    pub async fn unprotect(&self, db: &Client, table: &str) -> Result<(), Error> {
        db.query_typed("SELECT leasehold.unprotect($1::regclass)", &[(&table, Type::TEXT)]).await?;
        Ok(())
    }

    /// Runs `sql` with the resource as `$1`, the slot as `$2` and more parameters.
    async fn call(&self, db: &Client, sql: &str, more: &[(&(dyn ToSql + Sync), Type)]) -> Result<(), Error> {
        let (resource, slot) = (self.id.resource(), self.slot());
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![(&resource, Type::TEXT), (&slot, Type::INT8)];
        params.extend(more.iter().cloned());
        db.query_typed(sql, &params).await?;
        Ok(())
    }
}
