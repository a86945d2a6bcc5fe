//! Hierarchical timer wheel for deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::paged_vec::PagedVec;
use crate::time::GrantorTime;

/// Each level covers eight bits of a time; together they cover every time, so nothing is beyond the wheel.
const LEVELS: usize = 8;
/// Slots of one level.
const SLOTS: usize = 256;
/// Set in a link that refers to a list and not to an id.
const LIST: u32 = 1 << 31;
/// The previous link of an id in `late`.
const LATE: u32 = LIST | (LEVELS * SLOTS) as u32;
/// The previous link of an id that is not armed.
const UNARMED: u32 = u32::MAX;

/// Timers by dense ids that the owner chooses, in slots of one millisecond and more.
///
/// The wheel knows the slot of an id, not its deadline. A deadline that moves later therefore costs nothing: when the slot
/// comes up, the wheel reads the deadline and links the id again. A deadline that moves earlier must be armed again; otherwise
/// the wheel notices only at the old slot.
pub struct TimerWheel {
    /// All times before this one are processed. The time of an id in a slot above level 0 differs from the cursor first in
    /// the eight bits of that level, so the first filled slot of the lowest level always comes next.
    cursor: u64,
    links: PagedVec<TimerLink>,
    /// The first and last id of each slot's list; meaningless while the slot is not in `filled`.
    lists: Box<[ListEnds; LEVELS * SLOTS]>,
    filled: [[u64; SLOTS / 64]; LEVELS],
    /// Ids armed for a time already processed. An id that was disarmed or armed again leaves its entry behind.
    late: BinaryHeap<Reverse<(u64, u32)>>,
    armed: usize,
}

#[derive(Clone, Copy)]
struct TimerLink {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct ListEnds {
    first: u32,
    last: u32,
}

/// The next slot and its start.
#[derive(Clone, Copy)]
struct NextSlot {
    level: usize,
    slot: usize,
    start: u64,
}

impl TimerWheel {
    /// A wheel without timers at this time.
    pub fn new(now: GrantorTime) -> Self {
        Self {
            cursor: now.0,
            links: PagedVec::new(),
            lists: Box::new([ListEnds { first: UNARMED, last: UNARMED }; LEVELS * SLOTS]),
            filled: [[0; SLOTS / 64]; LEVELS],
            late: BinaryHeap::new(),
            armed: 0,
        }
    }

    /// Arms the timer of an id, in place of an earlier one. A deadline in the past is due at the next advance.
    pub fn arm(&mut self, id: u32, at: GrantorTime) {
        assert!(id < LIST, "the top bit of ids is reserved");
        self.disarm(id);
        while self.links.len() <= id as usize {
            self.links.push(TimerLink { previous: UNARMED, next: UNARMED });
        }
        self.link_at(id, at.0);
        self.armed += 1;
    }

    /// Disarms the timer of an id.
    pub fn disarm(&mut self, id: u32) {
        if !self.is_armed(id) {
            return;
        }
        if self.links[id].previous != LATE {
            self.unlink(id);
        }
        self.links[id].previous = UNARMED;
        self.armed -= 1;
    }

    /// Whether the timer of an id is armed.
    pub fn is_armed(&self, id: u32) -> bool {
        self.links.get(id).is_some_and(|link| link.previous != UNARMED)
    }

    /// Moves every id with a deadline not later than `now` to `due`, in deadline order, and disarms it.
    ///
    /// Ids with the same deadline come in the order in which the wheel visits them, late ones in id order. Each visit costs one
    /// from `budget`; at zero the call returns, and the next call continues exactly there.
    pub fn advance(
        &mut self,
        now: GrantorTime,
        budget: &mut usize,
        mut deadline_of: impl FnMut(u32) -> GrantorTime,
        due: &mut Vec<u32>,
    ) {
        while let Some(&Reverse((at, id))) = self.late.peek()
            && at <= now.0
        {
            if !take_from_budget(budget) {
                return;
            }
            self.late.pop();
            if self.links.get(id).is_some_and(|link| link.previous == LATE) {
                self.expire_or_relink(id, at, deadline_of(id).0, due);
            }
        }
        while let Some(next_slot) = self.next_slot()
            && next_slot.start <= now.0
        {
            self.cursor = next_slot.start;
            let list = next_slot.level * SLOTS + next_slot.slot;
            while next_slot.filled(&self.filled) {
                if !take_from_budget(budget) {
                    return;
                }
                let id = self.pop(list);
                let deadline = deadline_of(id).0;
                if next_slot.level == 0 {
                    self.expire_or_relink(id, next_slot.start, deadline, due);
                } else {
                    // Not due yet even if its deadline has passed: others of this slot may come first.
                    self.link_at(id, deadline.max(self.cursor));
                }
            }
        }
        self.cursor = self.cursor.max(now.0.saturating_add(1));
    }

    /// A time before which no advance makes anything due. It is in the past only if work was left there: by an exhausted
    /// budget, or by arming for a time already processed.
    pub fn next(&self) -> Option<GrantorTime> {
        if self.armed == 0 {
            return None;
        }
        let late = self.late.peek().map(|&Reverse((at, _))| at);
        late.or_else(|| self.next_slot().map(|next_slot| next_slot.start)).map(GrantorTime)
    }

    /// Makes an id due, unless its deadline has moved later.
    fn expire_or_relink(&mut self, id: u32, at: u64, deadline: u64, due: &mut Vec<u32>) {
        if deadline <= at {
            self.links[id].previous = UNARMED;
            self.armed -= 1;
            due.push(id);
        } else {
            self.link_at(id, deadline);
        }
    }

    /// Links an id, which is in no list, into the slot of its deadline.
    fn link_at(&mut self, id: u32, at: u64) {
        if at < self.cursor {
            self.links[id].previous = LATE;
            self.late.push(Reverse((at, id)));
            return;
        }
        let level = ((at ^ self.cursor) | 1).ilog2() as usize / 8;
        let slot = slot_of(at, level);
        let list = level * SLOTS + slot;
        let word = &mut self.filled[level][slot / 64];
        let ends = &mut self.lists[list];
        if *word >> (slot % 64) & 1 == 0 {
            *word |= 1 << (slot % 64);
            *ends = ListEnds { first: id, last: id };
            self.links[id] = TimerLink { previous: LIST | list as u32, next: LIST | list as u32 };
        } else {
            let last = std::mem::replace(&mut ends.last, id);
            self.links[last].next = id;
            self.links[id] = TimerLink { previous: last, next: LIST | list as u32 };
        }
    }

    /// Removes the first id of a list. Its own link stays unchanged.
    fn pop(&mut self, list: usize) -> u32 {
        let id = self.lists[list].first;
        let next = self.links[id].next;
        if next & LIST == 0 {
            self.lists[list].first = next;
            self.links[next].previous = LIST | list as u32;
        } else {
            self.filled[list / SLOTS][list % SLOTS / 64] &= !(1 << (list % 64));
        }
        id
    }

    /// Removes an id from its list. Its own link stays unchanged.
    fn unlink(&mut self, id: u32) {
        let TimerLink { previous, next } = self.links[id];
        match (previous & LIST != 0, next & LIST != 0) {
            (true, true) => {
                let (level, slot) = ((next & !LIST) as usize / SLOTS, (next & !LIST) as usize % SLOTS);
                self.filled[level][slot / 64] &= !(1 << (slot % 64));
            }
            (true, false) => {
                self.lists[(previous & !LIST) as usize].first = next;
                self.links[next].previous = previous;
            }
            (false, true) => {
                self.lists[(next & !LIST) as usize].last = previous;
                self.links[previous].next = next;
            }
            (false, false) => {
                self.links[previous].next = next;
                self.links[next].previous = previous;
            }
        }
    }

    /// The next slot: one that starts at the cursor and is not distributed to lower levels yet, or else the first filled slot
    /// of the lowest level.
    fn next_slot(&self) -> Option<NextSlot> {
        let begins_here = (self.cursor.trailing_zeros() as usize / 8).min(LEVELS - 1);
        for level in 1..=begins_here {
            let next_slot = NextSlot { level, slot: slot_of(self.cursor, level), start: self.cursor };
            if next_slot.filled(&self.filled) {
                return Some(next_slot);
            }
        }
        for (level, words) in self.filled.iter().enumerate() {
            if let Some(word) = words.iter().position(|word| *word != 0) {
                let slot = word * 64 + words[word].trailing_zeros() as usize;
                return Some(NextSlot { level, slot, start: start_of(self.cursor, level, slot) });
            }
        }
        None
    }
}

impl NextSlot {
    fn filled(self, filled: &[[u64; SLOTS / 64]; LEVELS]) -> bool {
        filled[self.level][self.slot / 64] >> (self.slot % 64) & 1 == 1
    }
}

/// Takes one visit from the budget, if any is left.
fn take_from_budget(budget: &mut usize) -> bool {
    let rest = budget.checked_sub(1);
    *budget = rest.unwrap_or(0);
    rest.is_some()
}

/// The eight bits of a time that a level covers.
const fn slot_of(at: u64, level: usize) -> usize {
    (at >> (level * 8)) as usize % SLOTS
}

/// The start of a slot, in the current rotation of its level.
const fn start_of(cursor: u64, level: usize, slot: usize) -> u64 {
    let above = if level + 1 < LEVELS { cursor >> ((level + 1) * 8) << ((level + 1) * 8) } else { 0 };
    above | (slot as u64) << (level * 8)
}

#[cfg(test)]
mod tests;
