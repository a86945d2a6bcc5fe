//! What ends next, unless renewed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pages::Pages;
use crate::time::Millis;

/// Each level tells eight bits of a time, and all of them together tell any time: nothing lies beyond the wheel.
const LEVELS: usize = 8;
/// Slots of one level.
const SLOTS: usize = 256;
/// Set in a link that leads to a list and not to an id.
const LIST: u32 = 1 << 31;
/// The previous link of an id that waits in `late`.
const LATE: u32 = LIST | (LEVELS * SLOTS) as u32;
/// The previous link of an id that is not armed.
const UNARMED: u32 = u32::MAX;

/// Timers under dense ids that their owner chooses, in slots of one millisecond and upwards.
///
/// The wheel knows in which slot an id is linked, not its deadline. So a deadline that moves later costs nothing: the
/// wheel asks when the slot comes up, and links the id again. A deadline that moves earlier must be armed again,
/// or the old slot is when the wheel finds out.
pub struct Wheel {
    /// All times before this one have been dealt with. An id in a slot above level 0 differs from it first in the eight
    /// bits of that level, so the first slot of the lowest level that has any always comes next.
    cursor: u64,
    links: Pages<Link>,
    /// The first and last id of each slot's list; meaningless while the slot is not in `filled`.
    lists: Box<[Ends; LEVELS * SLOTS]>,
    filled: [[u64; SLOTS / 64]; LEVELS],
    /// Ids armed for a time already dealt with. An id that was disarmed or armed again since leaves its entry behind.
    late: BinaryHeap<Reverse<(u64, u32)>>,
    armed: usize,
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// A slot that comes next, and when.
#[derive(Clone, Copy)]
struct Front {
    level: usize,
    slot: usize,
    start: u64,
}

impl Wheel {
    /// A wheel without timers that stands at this time.
    pub fn new(now: Millis) -> Self {
        Self {
            cursor: now.0,
            links: Pages::new(),
            lists: Box::new([Ends { first: UNARMED, last: UNARMED }; LEVELS * SLOTS]),
            filled: [[0; SLOTS / 64]; LEVELS],
            late: BinaryHeap::new(),
            armed: 0,
        }
    }

    /// Watches an id until this deadline, and no other. One that has passed is due at the next advance.
    pub fn arm(&mut self, id: u32, at: Millis) {
        assert!(id < LIST, "ids leave the top bit to the wheel");
        self.disarm(id);
        while self.links.len() <= id as usize {
            self.links.push(Link { previous: UNARMED, next: UNARMED });
        }
        self.place(id, at.0);
        self.armed += 1;
    }

    /// Watches an id no longer.
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

    /// Whether an id is watched.
    pub fn is_armed(&self, id: u32) -> bool {
        self.links.get(id).is_some_and(|link| link.previous != UNARMED)
    }

    /// Moves every id whose deadline is not later than `now` to `due`, in order of deadlines, and watches it no longer.
    ///
    /// Ids of one deadline come in the order in which the wheel met them, late ones in order of ids. Each look at an id
    /// costs one from `budget`; at zero the call returns, and the next one goes on exactly there.
    pub fn advance(
        &mut self,
        now: Millis,
        budget: &mut usize,
        mut deadline_of: impl FnMut(u32) -> Millis,
        due: &mut Vec<u32>,
    ) {
        while let Some(&Reverse((at, id))) = self.late.peek()
            && at <= now.0
        {
            if !spend(budget) {
                return;
            }
            self.late.pop();
            if self.links.get(id).is_some_and(|link| link.previous == LATE) {
                self.settle(id, at, deadline_of(id).0, due);
            }
        }
        while let Some(front) = self.front()
            && front.start <= now.0
        {
            self.cursor = front.start;
            let list = front.level * SLOTS + front.slot;
            while front.filled(&self.filled) {
                if !spend(budget) {
                    return;
                }
                let id = self.pop(list);
                let deadline = deadline_of(id).0;
                if front.level == 0 {
                    self.settle(id, front.start, deadline, due);
                } else {
                    // Not due yet even if it has passed: others of this slot may come before it.
                    self.place(id, deadline.max(self.cursor));
                }
            }
        }
        self.cursor = self.cursor.max(now.0.saturating_add(1));
    }

    /// A time before which no advance makes anything due. It lies in the past only if something was left there: by a
    /// budget that ran out, or by arming for a time already dealt with.
    pub fn next(&self) -> Option<Millis> {
        if self.armed == 0 {
            return None;
        }
        let late = self.late.peek().map(|&Reverse((at, _))| at);
        late.or_else(|| self.front().map(|front| front.start)).map(Millis)
    }

    /// An id whose time has come: due, unless its deadline has moved later.
    fn settle(&mut self, id: u32, at: u64, deadline: u64, due: &mut Vec<u32>) {
        if deadline <= at {
            self.links[id].previous = UNARMED;
            self.armed -= 1;
            due.push(id);
        } else {
            self.place(id, deadline);
        }
    }

    /// Puts an id that is in no list where its deadline belongs.
    fn place(&mut self, id: u32, at: u64) {
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
            *ends = Ends { first: id, last: id };
            self.links[id] = Link { previous: LIST | list as u32, next: LIST | list as u32 };
        } else {
            let last = std::mem::replace(&mut ends.last, id);
            self.links[last].next = id;
            self.links[id] = Link { previous: last, next: LIST | list as u32 };
        }
    }

    /// Takes the first id out of a list. Its own link is left as it was.
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

    /// Takes an id out of its list. Its own link is left as it was.
    fn unlink(&mut self, id: u32) {
        let Link { previous, next } = self.links[id];
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

    /// The slot that comes next: one that begins at the cursor and is not spread over lower levels yet, or else the
    /// first of the lowest level that has any.
    fn front(&self) -> Option<Front> {
        let begins_here = (self.cursor.trailing_zeros() as usize / 8).min(LEVELS - 1);
        for level in 1..=begins_here {
            let front = Front { level, slot: slot_of(self.cursor, level), start: self.cursor };
            if front.filled(&self.filled) {
                return Some(front);
            }
        }
        for (level, words) in self.filled.iter().enumerate() {
            if let Some(word) = words.iter().position(|word| *word != 0) {
                let slot = word * 64 + words[word].trailing_zeros() as usize;
                return Some(Front { level, slot, start: start_of(self.cursor, level, slot) });
            }
        }
        None
    }
}

impl Front {
    fn filled(self, filled: &[[u64; SLOTS / 64]; LEVELS]) -> bool {
        filled[self.level][self.slot / 64] >> (self.slot % 64) & 1 == 1
    }
}

/// Takes one look from the budget, if there is any.
fn spend(budget: &mut usize) -> bool {
    let rest = budget.checked_sub(1);
    *budget = rest.unwrap_or(0);
    rest.is_some()
}

/// The eight bits of a time that a level tells.
const fn slot_of(at: u64, level: usize) -> usize {
    (at >> (level * 8)) as usize % SLOTS
}

/// When a slot begins, in the turn of its level that the cursor is in.
const fn start_of(cursor: u64, level: usize, slot: usize) -> u64 {
    let above = if level + 1 < LEVELS { cursor >> ((level + 1) * 8) << ((level + 1) * 8) } else { 0 };
    above | (slot as u64) << (level * 8)
}

#[cfg(test)]
mod tests;
