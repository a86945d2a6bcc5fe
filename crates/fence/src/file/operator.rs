//! What an operator does to a log: look, arm it again, and say what only people know.

use leasehold_core::token::{Incarnation, Number};

use super::format::{Head, Kind, Word};
use super::shelf::Hold;
use super::{Log, caught_up, keep};
use crate::{Error, Kept, Mark, Refusal};

impl Log {
    /// The mark that is kept. What is lost is told as a refusal.
    pub fn mark(&mut self) -> Result<Option<Number>, Error> {
        let standing = self.looked()?;
        match standing.mark {
            Mark::Armed(mark) => Ok(Some(mark)),
            Mark::Fresh => Ok(None),
            Mark::Lost => Err(Refusal::Lost(standing.lost).into()),
        }
    }

    /// Every mark that this log keeps: one. It knows its resource by the hash only; the name is the one it was opened with.
    pub fn survey(&mut self) -> Result<Vec<Kept>, Error> {
        let standing = self.looked()?;
        let (resource, guarded) = (self.place.resource(), &self.place.guarded);
        Ok(vec![Kept {
            cluster: guarded.cluster,
            resource,
            name: Some(self.place.name.clone()),
            slot: guarded.slot,
            mark: standing.mark,
            incarnation: standing.incarnation,
            strict: standing.strict,
        }])
    }

    fn looked(&mut self) -> Result<crate::place::Standing, Error> {
        let locked = self.shelf.lock(Hold::Beside, self.patience)?;
        self.known = caught_up(&self.shelf, self.known)?;
        let standing = self.known.standing(&self.shelf)?;
        drop(locked);
        Ok(standing)
    }

    /// Arms a log that was copied, restored or declared lost, in this file, from a floor that no holder of before lies above.
    /// A floor below what the log has seen is refused.
    pub fn rearm(&mut self, floor: Number) -> Result<(), Error> {
        self.told(|log| {
            if log.known.seen.is_some_and(|seen| seen > floor) {
                return Err(Error::Conflict("the floor is below a number that was seen here; take a higher one"));
            }
            Ok((Kind::Armed { inode: log.shelf.inode()? }, floor.get(), 0))
        })
    }

    /// Refuses everything until [`Log::rearm`].
    pub fn declare_lost(&mut self) -> Result<(), Error> {
        self.told(|_| Ok((Kind::Told(Word::Lost), 0, 0)))
    }

    /// Refuses tokens of another incarnation than the one it follows, until that is adopted: for a target that two restored
    /// copies of one cluster could reach (T5). `false` goes along with whoever shows the higher number, and reports it.
    pub fn strict(&mut self, strict: bool) -> Result<(), Error> {
        self.told(|_| Ok((Kind::Told(if strict { Word::Strict } else { Word::Loose }), 0, 0)))
    }

    /// Follows this incarnation from now on: the cluster was restored, and that was meant. The mark stays.
    pub fn adopt(&mut self, incarnation: Incarnation) -> Result<(), Error> {
        self.told(|_| Ok((Kind::Told(Word::Adopted), 0, incarnation.0)))
    }

    /// Keeps one entry that is nobody's write: its kind, number and incarnation.
    fn told(&mut self, what: impl FnOnce(&Self) -> Result<(Kind, u64, u32), Error>) -> Result<(), Error> {
        self.usable()?;
        let locked = self.shelf.lock(Hold::Alone, self.patience)?;
        self.known = caught_up(&self.shelf, self.known)?;
        let (kind, number, incarnation) = what(self)?;
        let head = Head { kind, index: self.known.index, number, incarnation, sequence: None };
        let kept = keep(&self.shelf, &mut self.known, head, &[]);
        drop(locked);
        self.noted(kept)
    }
}
