//! A list that grows by whole pages, so that no push ever moves what is already there.

use std::ops::{Index, IndexMut};

/// Items of one page.
const PAGE: usize = 1_024;

/// A list of `T` under dense `u32` numbers. It only grows.
pub struct Pages<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Pages<T> {
    /// An empty list, which holds no memory yet.
    pub const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        match self.pages.last() {
            Some(last) => (self.pages.len() - 1) * PAGE + last.len(),
            None => 0,
        }
    }

    /// Adds an item and tells its number.
    pub fn push(&mut self, item: T) -> u32 {
        let number = u32::try_from(self.len()).expect("a table has fewer than 2^32 places");
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

    /// The item with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.pages.get(number as usize / PAGE)?.get(number as usize % PAGE)
    }

    /// The item with this number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.pages.get_mut(number as usize / PAGE)?.get_mut(number as usize % PAGE)
    }

    /// Every item with its number, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.pages.iter().flatten())
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<u32> for Pages<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

impl<T> IndexMut<u32> for Pages<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_number_and_their_place() {
        let mut list = Pages::new();
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
    fn a_page_holds_no_more_than_its_items() {
        let mut list = Pages::new();
        assert!(list.len() == 0);
        for n in 0..=PAGE {
            list.push(n);
        }
        assert_eq!(list.len(), PAGE + 1);
        assert_eq!(list.pages.iter().map(Vec::capacity).collect::<Vec<_>>(), [PAGE, PAGE]);
    }
}
