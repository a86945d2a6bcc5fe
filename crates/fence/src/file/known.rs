//! What a log says up to where it was read: its mark, and all that decides about the next token.

use leasehold_core::token::{Incarnation, Number};

use super::format::{HEADER, Head, Kind, Word};
use super::shelf::Shelf;
use crate::place::Standing;
use crate::{Error, Lost, Mark};

/// The log up to where it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) end: u64,
    pub(super) index: u64,
    pub(super) mark: Mark,
    /// The highest number of all, also while the mark is lost.
    pub(super) seen: Option<Number>,
    pub(super) incarnation: Option<Incarnation>,
    pub(super) strict: bool,
    /// The last sequence applied under the mark.
    last: Option<u64>,
    /// How the mark is lost, if it is.
    lost: Lost,
    /// Which file was armed.
    inode: Option<u64>,
}

impl Known {
    pub(super) const NOTHING: Self = Self {
        end: HEADER as u64,
        index: 0,
        mark: Mark::Lost,
        seen: None,
        incarnation: None,
        strict: false,
        last: None,
        lost: Lost::Unreadable,
        inode: None,
    };

    /// One more entry.
    pub(super) fn apply(&mut self, head: Head, next: u64) {
        let shown = Number::new(head.number);
        match (head.kind, shown) {
            (Kind::Armed { inode }, floor) => {
                self.inode = Some(inode);
                self.mark = floor.map_or(Mark::Fresh, Mark::Armed);
                self.lost = Lost::Unreadable;
                self.last = None;
            }
            (Kind::Claim | Kind::Entry, Some(shown)) => {
                // Two tokens out of order were not written by this fence; the higher one still stands.
                if !matches!(self.mark, Mark::Armed(mark) if mark > shown) {
                    if self.mark != Mark::Armed(shown) {
                        self.last = None;
                    }
                    self.mark = Mark::Armed(shown);
                    self.incarnation = Some(Incarnation(head.incarnation));
                    self.last = head.sequence.or(self.last);
                }
            }
            (Kind::Claim | Kind::Entry, None) => self.mark = Mark::Lost,
            (Kind::Told(Word::Lost), _) => (self.mark, self.lost) = (Mark::Lost, Lost::Declared),
            (Kind::Told(Word::Strict), _) => self.strict = true,
            (Kind::Told(Word::Loose), _) => self.strict = false,
            (Kind::Told(Word::Adopted), _) => {
                (self.incarnation, self.last) = (Some(Incarnation(head.incarnation)), None);
            }
        }
        self.seen = self.seen.max(shown);
        self.index += 1;
        self.end = next;
    }

    /// What counts: no mark, if this is not the file that was armed.
    pub(super) fn standing(&self, shelf: &Shelf) -> Result<Standing, Error> {
        let Self { incarnation, strict, last, .. } = *self;
        let (mark, lost) = match self.inode {
            Some(armed) if armed == shelf.inode()? => (self.mark, self.lost),
            Some(_) => (Mark::Lost, Lost::Moved),
            None => (Mark::Lost, Lost::Unreadable),
        };
        Ok(Standing { mark, lost, incarnation, strict, last })
    }
}
