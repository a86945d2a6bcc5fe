//! Operator calls: arm, re-arm, adopt and list marks.

use leasehold_core::token::{Incarnation, Number};
use rusqlite::{Connection, params};

use super::{Fence, row};
use crate::admission::StoredMark;
use crate::{Error, FenceRefusal, Mark, MarkInfo, MarkLoss};

/// Lists all marks of this database.
pub fn list_marks(db: &Connection) -> Result<Vec<MarkInfo>, Error> {
    row::list_marks(db)
}

impl Fence {
    /// Arms the fence for a resource and slot under which nothing was written yet: the first token sets the mark. An existing
    /// mark is left unchanged.
    pub fn arm(&self, db: &mut Connection) -> Result<(), Error> {
        let tx = self.begin(db)?;
        let StoredMark { mark, loss: lost, .. } = row::read_mark(&tx, &self.id)?;
        if (mark, lost) == (Mark::Lost, MarkLoss::Missing) {
            let sql = "INSERT INTO main.leasehold_fence (resource, slot, name, cluster, state) VALUES (?1, ?2, ?3, ?4, 'fresh')";
            let (cluster, id) = (self.id.cluster().to_string(), &self.id);
            tx.execute(sql, params![id.resource_hash(), id.slot(), id.resource(), cluster])?;
        }
        tx.commit()?;
        Ok(())
    }

    /// Reads the mark; `None` if no token was admitted yet. A lost mark is an error.
    pub fn mark(&self, db: &Connection) -> Result<Option<Number>, Error> {
        let StoredMark { mark, loss: lost, .. } = row::read_mark(db, &self.id)?;
        match mark {
            Mark::Armed(mark) => Ok(Some(mark)),
            Mark::Fresh => Ok(None),
            Mark::Lost => Err(FenceRefusal::MarkLost(lost).into()),
        }
    }

    /// Declares the mark lost, for example after the database was restored from a backup: every token is refused until
    /// [`Fence::rearm`].
    pub fn declare_lost(&self, db: &mut Connection) -> Result<(), Error> {
        self.update(db, "state = 'lost'", None)
    }

    /// Sets a lost mark to a floor. No earlier holder may have a higher number. A floor below the mark is refused.
    pub fn rearm(&self, db: &mut Connection, floor: Number) -> Result<(), Error> {
        let tx = self.begin(db)?;
        let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, sequence = NULL \
                   WHERE resource = ?1 AND slot = ?2 AND coalesce(mark, 0) <= ?3";
        let number = i64::try_from(floor.get()).expect("a number is below 2^63");
        if tx.execute(sql, params![self.id.resource_hash(), self.id.slot(), number])? == 0 {
            return Err(match row::read_mark(&tx, &self.id)?.loss {
                MarkLoss::Missing => FenceRefusal::MarkLost(MarkLoss::Missing).into(),
                _ => Error::Conflict("the floor is below the mark; use a higher one"),
            });
        }
        tx.commit()?;
        Ok(())
    }

    /// Sets whether tokens of another incarnation are refused until it is adopted, for a target that two restored copies of
    /// one cluster could reach (T5). If not strict, a higher number is admitted and the change is reported.
    pub fn strict(&self, db: &mut Connection, enabled: bool) -> Result<(), Error> {
        self.update(db, "strict = ?3", Some(u8::from(enabled).to_string()))
    }

    /// Makes the fence follow this incarnation, after an intended restore of the cluster. The mark is unchanged.
    pub fn adopt(&self, db: &mut Connection, incarnation: Incarnation) -> Result<(), Error> {
        self.update(db, "incarnation = ?3, sequence = NULL", Some(incarnation.to_string()))
    }

    fn update(&self, db: &mut Connection, assignment: &str, value: Option<String>) -> Result<(), Error> {
        let tx = self.begin(db)?;
        let sql = format!("UPDATE main.leasehold_fence SET {assignment} WHERE resource = ?1 AND slot = ?2");
        let (resource, slot) = (self.id.resource_hash(), self.id.slot());
        let changed = match value {
            Some(value) => tx.execute(&sql, params![resource, slot, value]),
            None => tx.execute(&sql, params![resource, slot]),
        };
        match changed {
            Ok(0) => return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            Err(error) if row::is_table_missing(&error) => return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            changed => changed?,
        };
        tx.commit()?;
        Ok(())
    }
}
