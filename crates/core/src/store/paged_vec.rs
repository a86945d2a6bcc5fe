//! Vector that grows by whole pages, so that no push moves existing elements.

use std::ops::{Index, IndexMut};

/// Elements of one page.
const PAGE: usize = 1_024;

/// A vector with `u32` indexes. It only grows.
pub struct PagedVec<T> {
    pages: Vec<Vec<T>>,
}

impl<T> PagedVec<T> {
    /// An empty vector without memory.
    pub const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self.pages.last() {
            Some(last) => (self.pages.len() - 1) * PAGE + last.len(),
            None => 0,
        }
    }

    /// Appends an element and returns its index.
    pub fn push(&mut self, item: T) -> u32 {
        let number = u32::try_from(self.len()).expect("a table has fewer than 2^32 entries");
        match self.pages.last_mut() {
            Some(last) if last.len() < PAGE => last.push(item),
            _ => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(item);
                self.pages.push(page);
            }
        }
        number
    }

    /// The element at this index.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.pages.get(number as usize / PAGE)?.get(number as usize % PAGE)
    }

    /// The element at this index, mutable.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.pages.get_mut(number as usize / PAGE)?.get_mut(number as usize % PAGE)
    }

    /// All elements with their indexes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.pages.iter().flatten())
    }
}

impl<T> Default for PagedVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<u32> for PagedVec<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

impl<T> IndexMut<u32> for PagedVec<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_index_and_their_address() {
        let mut list = PagedVec::new();
        assert_eq!(list.push(0_u64), 0);
        let first: *const u64 = &list[0];
        for n in 1..5_000_u64 {
            assert_eq!(list.push(n), n as u32);
        }
        assert_eq!(list.len(), 5_000);
        assert!(std::ptr::eq(first, &list[0]));
        assert!(list.iter().all(|(number, item)| u64::from(number) == *item));
        assert_eq!(list.iter().count(), 5_000);
        list[4_999] = 7;
        assert_eq!(list.get(4_999), Some(&7));
        assert_eq!(list.get(5_000), None);
        assert_eq!(list.get_mut(u32::MAX), None);
    }

    #[test]
    fn a_page_allocates_no_more_than_its_elements() {
        let mut list = PagedVec::new();
        assert!(list.len() == 0);
        for n in 0..=PAGE {
            list.push(n);
        }
        assert_eq!(list.len(), PAGE + 1);
        assert_eq!(list.pages.iter().map(Vec::capacity).collect::<Vec<_>>(), [PAGE, PAGE]);
    }
}
