//! First in, first out, in pages: neither a push nor a pop moves the rest.

use std::collections::VecDeque;

/// Numbers of one page.
const PAGE: usize = 1_024;

/// Numbers, first in, first out.
pub struct Queue {
    pages: VecDeque<Vec<u32>>,
    /// How many of the first page are gone.
    taken: usize,
    /// A page kept for the next push that needs one, so that a steady queue allocates nothing.
    spare: Vec<u32>,
    len: usize,
}

impl Queue {
    /// An empty queue, which holds no memory yet.
    pub const fn new() -> Self {
        Self { pages: VecDeque::new(), taken: 0, spare: Vec::new(), len: 0 }
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Adds one at the end.
    pub fn push(&mut self, slot: u32) {
        if self.pages.back().is_none_or(|last| last.len() == PAGE) {
            let mut page = std::mem::take(&mut self.spare);
            page.reserve_exact(PAGE);
            self.pages.push_back(page);
        }
        self.pages.back_mut().expect("a page was just made sure of").push(slot);
        self.len += 1;
    }

    /// The one that comes out next.
    pub fn first(&self) -> Option<u32> {
        self.pages.front()?.get(self.taken).copied()
    }

    /// Takes the first out.
    pub fn pop(&mut self) -> Option<u32> {
        let slot = self.first()?;
        self.taken += 1;
        self.len -= 1;
        if self.taken == PAGE {
            self.taken = 0;
            self.spare = self.pages.pop_front().unwrap_or_default();
            self.spare.clear();
        }
        Some(slot)
    }

    /// All of them, first to last.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let skip = self.taken;
        self.pages.iter().enumerate().flat_map(move |(n, page)| page[if n == 0 { skip } else { 0 }..].iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_queue_keeps_its_memory() {
        let mut queue = Queue::new();
        (0..3_000).for_each(|n| queue.push(n));
        for n in 0..20_000 {
            queue.push(n + 3_000);
            assert_eq!(queue.pop(), Some(n));
        }
        assert!(queue.pages.len() <= 4);
        assert_eq!(queue.iter().collect::<Vec<_>>(), (20_000..23_000).collect::<Vec<_>>());
        assert_eq!((20_000..23_000).filter(|n| queue.pop() == Some(*n)).count(), 3_000);
        assert_eq!((queue.pop(), queue.len()), (None, 0));
    }
}
