//! What an operator does to a fenced log: look, arm it again, and say what only people know.

use std::path::Path;

use leasehold_core::token::{Incarnation, Number};

use super::format::{Head, Kind};
use super::known::Known;
use super::shelf::{Hold, Shelf};
use super::{Log, PATIENCE, caught_up, keep, standing};
use crate::place::Standing;
use crate::{Error, Kept, Lost, Mark, Refusal};

impl Log {
    /// The mark that is kept. What is lost is told as a refusal.
    pub fn mark(&mut self) -> Result<Option<Number>, Error> {
        let locked = self.shelf.lock(Hold::Beside, self.patience)?;
        self.known = caught_up(&self.shelf, self.known)?;
        let standing = standing(&self.shelf, &self.known)?;
        drop(locked);
        match standing {
            Standing { mark: Mark::Armed(mark), .. } => Ok(Some(mark)),
            Standing { mark: Mark::Fresh, .. } => Ok(None),
            Standing { mark: Mark::Lost, lost, .. } => Err(Refusal::Lost(lost).into()),
        }
    }

    /// The mark that a log keeps, whosever it is.
    pub fn survey(path: &Path) -> Result<Vec<Kept>, Error> {
        let (shelf, header) = Shelf::any(path)?;
        let locked = shelf.lock(Hold::Beside, PATIENCE)?;
        let known = caught_up(&shelf, Known::NOTHING)?;
        let Standing { mark, incarnation, strict, .. } = standing(&shelf, &known)?;
        drop(locked);
        let resource = format!("{:016x}", u64::from_be_bytes(header.resource));
        let (cluster, slot) = (header.cluster, header.slot);
        Ok(vec![Kept { cluster, resource, name: None, slot, mark, incarnation, strict }])
    }

    /// Arms a log that was copied or restored, in this file, from a floor that no holder of before lies above. A floor
    /// below what the log has seen is refused.
    pub fn rearm(&mut self, floor: Number) -> Result<(), Error> {
        self.set(|known, inode| {
            if known.seen > Some(floor) {
                return Err(Error::Conflict("the floor is below a number that was seen here; take a higher one"));
            }
            Ok(known.armed(inode, Some(floor)))
        })
    }

    /// Refuses everything until [`Log::rearm`].
    pub fn declare_lost(&mut self) -> Result<(), Error> {
        let lost = |known: &Known| Head { kind: Kind::Claim, index: known.index, number: 0, incarnation: 0, flags: 0 };
        self.set(|known, _| Ok(lost(known)))
    }

    /// Refuses tokens of another incarnation than the one it follows, until that is adopted (T5).
    pub fn strict(&mut self, strict: bool) -> Result<(), Error> {
        self.follow(|known| known.strict = strict)
    }

    /// Follows this incarnation from now on: the cluster was restored, and that was meant. The mark stays.
    pub fn adopt(&mut self, incarnation: Incarnation) -> Result<(), Error> {
        self.follow(|known| known.incarnation = Some(incarnation))
    }

    fn follow(&mut self, change: impl FnOnce(&mut Known)) -> Result<(), Error> {
        self.set(|known, inode| {
            // Arming anew would take a copy for the log itself.
            if known.inode != Some(inode) {
                return Err(Refusal::Lost(Lost::Moved).into());
            }
            let floor = match known.mark {
                Mark::Armed(mark) => Some(mark),
                Mark::Fresh => None,
                Mark::Lost => return Err(Error::Conflict("the mark is lost; re-arm the log first")),
            };
            let mut with = *known;
            change(&mut with);
            Ok(with.armed(inode, floor))
        })
    }

    fn set(&mut self, head: impl FnOnce(&Known, u64) -> Result<Head, Error>) -> Result<(), Error> {
        self.usable()?;
        let locked = self.shelf.lock(Hold::Alone, self.patience)?;
        let inode = self.shelf.inode()?;
        self.known = caught_up(&self.shelf, self.known)?;
        let head = head(&self.known, inode)?;
        let kept = keep(&self.shelf, &mut self.known, head, &[]);
        drop(locked);
        self.noted(kept)
    }
}
