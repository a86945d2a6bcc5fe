//! What an operator does to a fence: arm it, look, and say what only people know.

use leasehold_core::token::{Incarnation, Number};
use rusqlite::{Connection, params};

use super::{Fence, row};
use crate::place::{Place, Standing};
use crate::{Error, Kept, Lost, Mark, Refusal};

/// Every mark that this database keeps, of all resources.
pub fn survey(db: &Connection) -> Result<Vec<Kept>, Error> {
    row::survey(db)
}

impl Fence {
    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub fn arm(&self, db: &mut Connection) -> Result<(), Error> {
        let tx = self.enter(db)?;
        let Standing { mark, lost, .. } = row::standing(&tx, &self.place)?;
        if (mark, lost) == (Mark::Lost, Lost::Missing) {
            let sql = "INSERT INTO main.leasehold_fence (resource, slot, name, cluster, state) VALUES (?1, ?2, ?3, ?4, 'fresh')";
            let Place { name, guarded } = &self.place;
            tx.execute(sql, params![self.place.resource(), guarded.slot, name, guarded.cluster.to_string()])?;
        }
        tx.commit()?;
        Ok(())
    }

    /// The mark that is kept, for a survey. What is lost is told as a refusal.
    pub fn mark(&self, db: &Connection) -> Result<Option<Number>, Error> {
        let Standing { mark, lost, .. } = row::standing(db, &self.place)?;
        match mark {
            Mark::Armed(mark) => Ok(Some(mark)),
            Mark::Fresh => Ok(None),
            Mark::Lost => Err(Refusal::Lost(lost).into()),
        }
    }

    /// Refuses everything until [`Fence::rearm`]: after the database itself was restored from a copy.
    pub fn declare_lost(&self, db: &mut Connection) -> Result<(), Error> {
        self.set(db, "state = 'lost'", None)
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub fn rearm(&self, db: &mut Connection, floor: Number) -> Result<(), Error> {
        let tx = self.enter(db)?;
        let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, sequence = NULL \
                   WHERE resource = ?1 AND slot = ?2 AND coalesce(mark, 0) <= ?3";
        let number = i64::try_from(floor.get()).expect("a number is below 2^63");
        if tx.execute(sql, params![self.place.resource(), self.place.guarded.slot, number])? == 0 {
            return Err(match row::standing(&tx, &self.place)?.lost {
                Lost::Missing => Refusal::Lost(Lost::Missing).into(),
                _ => Error::Conflict("the floor is below a number that was seen here; take a higher one"),
            });
        }
        tx.commit()?;
        Ok(())
    }

    /// Refuses tokens of another incarnation than the one it follows, until that is adopted: for a target that two restored
    /// copies of one cluster could reach (T5). `false` goes along with whoever shows the higher number, and reports it.
    pub fn strict(&self, db: &mut Connection, strict: bool) -> Result<(), Error> {
        self.set(db, "strict = ?3", Some(u8::from(strict).to_string()))
    }

    /// Follows this incarnation from now on: the cluster was restored, and that was meant. The mark stays.
    pub fn adopt(&self, db: &mut Connection, incarnation: Incarnation) -> Result<(), Error> {
        self.set(db, "incarnation = ?3, sequence = NULL", Some(incarnation.to_string()))
    }

    fn set(&self, db: &mut Connection, what: &str, to: Option<String>) -> Result<(), Error> {
        let tx = self.enter(db)?;
        let sql = format!("UPDATE main.leasehold_fence SET {what} WHERE resource = ?1 AND slot = ?2");
        let (resource, slot) = (self.place.resource(), self.place.guarded.slot);
        let changed = match to {
            Some(to) => tx.execute(&sql, params![resource, slot, to]),
            None => tx.execute(&sql, params![resource, slot]),
        };
        match changed {
            Ok(0) => return Err(Refusal::Lost(Lost::Missing).into()),
            Err(error) if row::no_table(&error) => return Err(Refusal::Lost(Lost::Missing).into()),
            changed => changed?,
        };
        tx.commit()?;
        Ok(())
    }
}
