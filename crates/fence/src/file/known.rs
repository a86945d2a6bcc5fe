//! What a log says up to where it was read: the mark, and whom it follows.

use leasehold_core::token::{Incarnation, Number};

use super::format::{FOLLOWS, HEADER, Head, Kind, STRICT};
use crate::Mark;

/// The log up to where it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) end: u64,
    pub(super) index: u64,
    pub(super) mark: Mark,
    /// The highest number of all, also while the mark is lost.
    pub(super) seen: Option<Number>,
    /// An operator said that the mark is lost.
    pub(super) declared: bool,
    /// Whose token set the mark, or whom an operator adopted.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) strict: bool,
    /// The last sequence applied under the mark.
    pub(super) last: Option<u64>,
    /// Which file was armed.
    pub(super) inode: Option<u64>,
}

impl Known {
    pub(super) const NOTHING: Self = Self {
        end: HEADER as u64,
        index: 0,
        mark: Mark::Lost,
        seen: None,
        declared: false,
        incarnation: None,
        strict: false,
        last: None,
        inode: None,
    };

    /// One more entry.
    pub(super) fn apply(&mut self, head: Head, next: u64) {
        let shown = Number::new(head.number);
        match (head.kind, shown) {
            (Kind::Armed { inode }, floor) => {
                (self.inode, self.declared) = (Some(inode), false);
                let mark = floor.map_or(Mark::Fresh, Mark::Armed);
                if mark != self.mark {
                    self.last = None;
                }
                self.mark = mark;
                self.strict = head.flags & STRICT != 0;
                self.incarnation = (head.flags & FOLLOWS != 0).then_some(Incarnation(head.incarnation));
            }
            (Kind::Claim | Kind::Entry, Some(shown)) => {
                // Two tokens out of order were not written by this fence; the higher one still stands.
                if !matches!(self.mark, Mark::Armed(mark) if mark > shown) {
                    let before = if self.mark == Mark::Armed(shown) { self.last } else { None };
                    self.last = head.flags.checked_sub(1).or(before);
                    (self.mark, self.incarnation) = (Mark::Armed(shown), Some(Incarnation(head.incarnation)));
                }
            }
            (Kind::Claim | Kind::Entry, None) => {
                (self.mark, self.declared) = (Mark::Lost, head.kind == Kind::Claim);
            }
        }
        self.seen = self.seen.max(shown);
        self.index += 1;
        self.end = next;
    }

    /// The head of an arming that says the same about whom the log follows.
    pub(super) fn armed(&self, inode: u64, floor: Option<Number>) -> Head {
        Head {
            kind: Kind::Armed { inode },
            index: self.index,
            number: floor.map_or(0, Number::get),
            incarnation: self.incarnation.map_or(0, |incarnation| incarnation.0),
            flags: if self.strict { STRICT } else { 0 } | if self.incarnation.is_some() { FOLLOWS } else { 0 },
        }
    }
}
