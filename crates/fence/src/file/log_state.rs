//! The state of a fenced log after replaying its entries: mark, incarnation, last sequence.

use leasehold_core::token::{Incarnation, Number};

use super::identity::FileIdentity;
use super::log_format::{EntryHead, EntryKind, HAS_INCARNATION, HEADER_LEN, SEALED, STRICT};
use crate::Mark;

/// State after replaying the entries up to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogState {
    pub(super) end: u64,
    pub(super) index: u64,
    pub(super) mark: Mark,
    /// The highest number of all entries. It is kept while the mark is lost.
    pub(super) highest: Option<Number>,
    /// An operator declared the mark lost.
    pub(super) declared_lost: bool,
    /// The incarnation that set the mark, or that an operator adopted.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) strict: bool,
    /// An arming sealed the log. No later one unseals it, also not one of an earlier release, which does not know the flag.
    pub(super) sealed: bool,
    /// The last sequence applied under the mark.
    pub(super) last_sequence: Option<u64>,
    /// Identity of the file that was armed.
    pub(super) identity: Option<FileIdentity>,
}

impl LogState {
    pub(super) const EMPTY: Self = Self {
        end: HEADER_LEN as u64,
        index: 0,
        mark: Mark::Lost,
        highest: None,
        declared_lost: false,
        incarnation: None,
        strict: false,
        sealed: false,
        last_sequence: None,
        identity: None,
    };

    /// Applies the next entry, which ends at `next`.
    pub(super) fn apply(&mut self, head: EntryHead, next: u64) {
        let number = Number::new(head.number);
        match (head.kind, number) {
            (EntryKind::Armed { identity }, floor) => {
                (self.identity, self.declared_lost) = (Some(identity), false);
                let mark = floor.map_or(Mark::Fresh, Mark::Armed);
                if mark != self.mark {
                    self.last_sequence = None;
                }
                self.mark = mark;
                self.strict = head.flags & STRICT != 0;
                self.sealed |= head.flags & SEALED != 0;
                self.incarnation = (head.flags & HAS_INCARNATION != 0).then_some(Incarnation(head.incarnation));
            }
            (EntryKind::Claim | EntryKind::Entry, Some(number)) => {
                // A lower token after a higher one was not written by this fence. The higher one stays the mark.
                if !matches!(self.mark, Mark::Armed(mark) if mark > number) {
                    let before = if self.mark == Mark::Armed(number) { self.last_sequence } else { None };
                    self.last_sequence = head.flags.checked_sub(1).or(before);
                    (self.mark, self.incarnation) = (Mark::Armed(number), Some(Incarnation(head.incarnation)));
                }
            }
            (EntryKind::Claim | EntryKind::Entry, None) => {
                (self.mark, self.declared_lost) = (Mark::Lost, head.kind == EntryKind::Claim);
            }
        }
        self.highest = self.highest.max(number);
        self.index += 1;
        self.end = next;
    }

    /// The head of an arming that keeps the incarnation, strictness and seal.
    pub(super) fn armed_head(&self, identity: FileIdentity, floor: Option<Number>) -> EntryHead {
        EntryHead {
            kind: EntryKind::Armed { identity },
            index: self.index,
            number: floor.map_or(0, Number::get),
            incarnation: self.incarnation.map_or(0, |incarnation| incarnation.0),
            flags: if self.strict { STRICT } else { 0 }
                | if self.incarnation.is_some() { HAS_INCARNATION } else { 0 }
                | if self.sealed { SEALED } else { 0 },
        }
    }
}
