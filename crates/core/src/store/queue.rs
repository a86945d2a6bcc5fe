//! Paged FIFO queue of numbers: neither a push nor a pop moves other elements.

use std::collections::VecDeque;

/// Numbers of one page.
const PAGE: usize = 1_024;

/// A FIFO queue of numbers.
pub struct PagedQueue {
    pages: VecDeque<Vec<u32>>,
    /// Elements of the first page that were popped.
    taken: usize,
    /// A page for the next push that needs one, so that a queue of constant length allocates nothing.
    spare: Vec<u32>,
    len: usize,
}

impl PagedQueue {
    /// An empty queue without memory.
    pub const fn new() -> Self {
        Self { pages: VecDeque::new(), taken: 0, spare: Vec::new(), len: 0 }
    }

    /// The number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Appends an element.
    pub fn push(&mut self, slot: u32) {
        if self.pages.back().is_none_or(|last| last.len() == PAGE) {
            let mut page = std::mem::take(&mut self.spare);
            page.reserve_exact(PAGE);
            self.pages.push_back(page);
        }
        self.pages.back_mut().expect("a page was just added").push(slot);
        self.len += 1;
    }

    /// The first element.
    pub fn first(&self) -> Option<u32> {
        self.pages.front()?.get(self.taken).copied()
    }

    /// Removes the first element.
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

    /// All elements, first to last.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let skip = self.taken;
        self.pages.iter().enumerate().flat_map(move |(n, page)| page[if n == 0 { skip } else { 0 }..].iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_constant_length_keeps_its_memory() {
        let mut queue = PagedQueue::new();
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
