//! What an operator does to a fence: arm it, look, protect tables, and say what only people know.

use leasehold_core::token::{Incarnation, Number};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::Fence;
use crate::{Error, Kept, Lost, Mark, Refusal};

/// Every mark that this database keeps, of all resources.
pub async fn survey(db: &Client) -> Result<Vec<Kept>, Error> {
    let sql = "SELECT cluster, resource, name, slot, mark, lost, incarnation, is_strict FROM leasehold.survey()";
    db.query_typed(sql, &[]).await?.iter().map(kept).collect()
}

fn kept(row: &Row) -> Result<Kept, Error> {
    let unreadable = || Error::Refused(Refusal::Lost(Lost::Unreadable));
    let incarnation: Option<&str> = row.get(6);
    Ok(Kept {
        cluster: row.get::<_, &str>(0).parse().map_err(|_| unreadable())?,
        resource: row.get(1),
        name: Some(row.get(2)),
        slot: u32::try_from(row.get::<_, i64>(3)).map_err(|_| unreadable())?,
        mark: mark(row.get(4), row.get(5)).0,
        incarnation: incarnation.and_then(|of| of.parse().ok()),
        strict: row.get(7),
    })
}

fn mark(mark: Option<i64>, lost: Option<&str>) -> (Mark, Lost) {
    match (mark, lost) {
        (_, Some("lost")) => (Mark::Lost, Lost::Declared),
        (_, Some(_)) => (Mark::Lost, Lost::Moved),
        (None, None) => (Mark::Fresh, Lost::Unreadable),
        (Some(mark), None) => {
            let mark = u64::try_from(mark).ok().and_then(Number::new);
            (mark.map_or(Mark::Lost, Mark::Armed), Lost::Unreadable)
        }
    }
}

impl Fence {
    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub async fn arm(&self, db: &Client) -> Result<(), Error> {
        let cluster = self.place.guarded.cluster.to_string();
        self.call(db, "SELECT leasehold.arm($1, $3, $2)", &[(&cluster, Type::TEXT)]).await
    }

    /// The mark that is kept, for a survey. What is lost is told as a refusal.
    pub async fn mark(&self, db: &Client) -> Result<Option<Number>, Error> {
        let sql = "SELECT mark, lost FROM leasehold.survey() WHERE name = $1 AND slot = $2";
        let found = db.query_typed(sql, &[(&self.place.name, Type::TEXT), (&self.slot(), Type::INT8)]).await?;
        let Some(row) = found.first() else { return Err(Refusal::Lost(Lost::Missing).into()) };
        match mark(row.get(0), row.get(1)) {
            (Mark::Armed(mark), _) => Ok(Some(mark)),
            (Mark::Fresh, _) => Ok(None),
            (Mark::Lost, how) => Err(Refusal::Lost(how).into()),
        }
    }

    /// Refuses everything until [`Fence::rearm`].
    pub async fn declare_lost(&self, db: &Client) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.declare_lost($1, $2)", &[]).await
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub async fn rearm(&self, db: &Client, floor: Number) -> Result<(), Error> {
        let floor = i64::try_from(floor.get()).expect("a number is below 2^63");
        self.call(db, "SELECT leasehold.rearm($1, $3, $2)", &[(&floor, Type::INT8)]).await
    }

    /// Refuses tokens of another incarnation than the one it follows, until that is adopted: for a target that two restored
    /// copies of one cluster could reach (T5). `false` goes along with whoever shows the higher number, and reports it.
    pub async fn strict(&self, db: &Client, strict: bool) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.strict($1, $3, $2)", &[(&strict, Type::BOOL)]).await
    }

    /// Follows this incarnation from now on: the cluster was restored, and that was meant. The mark stays.
    pub async fn adopt(&self, db: &Client, incarnation: Incarnation) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.adopt($1, $3, $2)", &[(&incarnation.to_string(), Type::TEXT)]).await
    }

    /// Lets the database itself refuse every write to this table, and to its partitions and children, that does not show a
    /// current token of this place (F3).
    pub async fn protect(&self, db: &Client, table: &str) -> Result<(), Error> {
        self.call(db, "SELECT leasehold.protect($3::regclass, $1, $2)", &[(&table, Type::TEXT)]).await
    }

    /// Takes that back.
    pub async fn unprotect(&self, db: &Client, table: &str) -> Result<(), Error> {
        db.query_typed("SELECT leasehold.unprotect($1::regclass)", &[(&table, Type::TEXT)]).await?;
        Ok(())
    }

    /// Calls with the place as `$1` and `$2`, and more.
    async fn call(&self, db: &Client, sql: &str, more: &[(&(dyn ToSql + Sync), Type)]) -> Result<(), Error> {
        let slot = self.slot();
        let mut with: Vec<(&(dyn ToSql + Sync), Type)> = vec![(&self.place.name, Type::TEXT), (&slot, Type::INT8)];
        with.extend(more.iter().cloned());
        db.query_typed(sql, &with).await?;
        Ok(())
    }
}
