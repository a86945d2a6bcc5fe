//! The latest entries of the audit log, as they were written. Pages that show what just happened are made from them, and read no file.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{AuditHead, AuditMatches, AuditQuery, Hash};

/// Entries that are kept, and their bytes.
const MAX_ENTRIES: usize = 1_024;
const MAX_BYTES: usize = 4 << 20;

/// The latest entries of one log.
#[derive(Debug, Default)]
pub struct RecentEntries(Mutex<RecentState>);

#[derive(Debug, Default)]
struct RecentState {
    /// Oldest first, with numbers that end at `last`.
    entries: VecDeque<RecentEntry>,
    last: u64,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct RecentEntry {
    /// Empty if it concerns no resource.
    resource: Box<str>,
    text: Box<str>,
    hash: Hash,
}

impl RecentState {
    /// The number of the oldest entry, or of the next one if there is none.
    fn first(&self) -> u64 {
        self.last + 1 - self.entries.len() as u64
    }
}

impl RecentEntries {
    fn state(&self) -> MutexGuard<'_, RecentState> {
        // A thread that panicked while it held the lock left whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log ends at this entry. What was kept is forgotten, because it may differ from the files.
    pub fn restart(&self, last: u64) {
        *self.state() = RecentState { last, ..RecentState::default() };
    }

    /// Adds the entry after the last one.
    pub(super) fn push(&self, resource: &str, text: &[u8], hash: Hash) {
        let text = String::from_utf8_lossy(text).into_owned().into_boxed_str();
        let mut state = self.state();
        state.last += 1;
        state.bytes += text.len();
        state.entries.push_back(RecentEntry { resource: resource.into(), text, hash });
        while state.entries.len() > MAX_ENTRIES || state.bytes > MAX_BYTES {
            let oldest = state.entries.pop_front().expect("there are entries");
            state.bytes -= oldest.text.len();
        }
    }

    /// The first part of a search from the newest entry, or a whole search of the latest entries, and the entry before which it
    /// continues in files, if it does.
    pub fn search(
        &self,
        head: AuditHead,
        query: &AuditQuery,
        is_visible: impl Fn(&str) -> bool,
    ) -> (AuditMatches, Option<u64>) {
        let state = self.state();
        let first = state.first();
        let in_files = query.after.saturating_add(1) < first.min(head.entries + 1) && query.limit > 0;
        if state.last < head.entries || (query.oldest_first && in_files) {
            return (AuditMatches::default(), Some(query.before));
        }
        let selected = |(number, entry): &(u64, &RecentEntry)| {
            let is_named = query.resource.as_deref().is_none_or(|name| *entry.resource == *name);
            query.spans(head, *number) && is_named && is_visible(&entry.resource)
        };
        let numbered = (first..).zip(&state.entries).filter(selected);
        let found: Vec<_> = match query.oldest_first {
            true => numbered.take(query.limit).collect(),
            false => {
                // From the back, because only a few are needed.
                let newest_first = state.entries.iter().enumerate().rev().map(|(at, entry)| (first + at as u64, entry));
                newest_first.filter(selected).take(query.limit).collect()
            }
        };
        let text = |(_, entry): &(u64, &RecentEntry)| (String::from(&*entry.text), entry.hash);
        let mut matches = AuditMatches { entries: found.iter().map(text).collect(), next: None };
        if found.len() == query.limit {
            matches.next = found.last().and_then(|(last, _)| query.continuation(head, *last));
            return (matches, None);
        }
        let before = if query.before == 0 { first } else { query.before.min(first) };
        (matches, in_files.then_some(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of entries 1 to `last`, of which those from `first` on are kept; every third one is of `b`.
    fn recent(first: u64, last: u64) -> (RecentEntries, AuditHead) {
        let recent = RecentEntries::default();
        recent.restart(first - 1);
        for number in first..=last {
            let resource = if number % 3 == 0 { "b" } else { "a" };
            recent.push(resource, number.to_string().as_bytes(), [0; 32]);
        }
        (recent, AuditHead { entries: last, ..AuditHead::default() })
    }

    fn numbers(matches: &AuditMatches) -> Vec<u64> {
        matches.entries.iter().map(|(text, _)| text.parse().expect("a number")).collect()
    }

    #[test]
    fn a_page_of_the_latest_entries_reads_no_file() {
        let (recent, head) = recent(11, 30);
        let query = |before, limit| AuditQuery { before, limit, ..AuditQuery::default() };
        let search = |query: &AuditQuery| recent.search(head, query, |resource| resource == "b");
        let (found, files) = search(&query(0, 3));
        assert_eq!((numbers(&found), found.next, files), (vec![30, 27, 24], Some(24), None));
        let (found, files) = search(&query(24, 9));
        assert_eq!(
            (numbers(&found), found.next, files),
            (vec![21, 18, 15, 12], None, Some(11)),
            "older ones are in files"
        );
        let (found, files) = search(&query(9, 9));
        assert_eq!((numbers(&found), files), (vec![], Some(9)));
        let newer = AuditQuery { after: 20, ..query(0, 9) };
        let (found, files) = search(&newer);
        assert_eq!((numbers(&found), found.next, files), (vec![30, 27, 24, 21], None, None), "all of them are kept");
        let (found, files) = search(&AuditQuery { oldest_first: true, limit: 2, ..newer.clone() });
        assert_eq!((numbers(&found), found.next, files), (vec![21, 24], Some(24), None));
        let (found, files) = search(&AuditQuery { oldest_first: true, after: 5, ..newer });
        assert_eq!((numbers(&found), files), (vec![], Some(0)), "a search from an older entry begins in files");
    }

    #[test]
    fn entries_after_the_head_are_not_shown_and_a_log_without_them_is_searched_in_files() {
        let (recent, head) = recent(1, 10);
        let query = AuditQuery { limit: 4, ..AuditQuery::default() };
        let earlier = AuditHead { entries: 6, ..head };
        assert_eq!(numbers(&recent.search(earlier, &query, |_| true).0), [6, 5, 4, 3]);
        recent.restart(10);
        assert_eq!(recent.search(head, &query, |_| true), (AuditMatches::default(), Some(11)));
        recent.restart(4);
        assert_eq!(recent.search(head, &query, |_| true), (AuditMatches::default(), Some(0)), "it is behind the log");
    }

    #[test]
    fn the_number_and_the_bytes_of_the_entries_are_limited() {
        let (many, _) = recent(1, 5_000);
        let state = many.state();
        assert_eq!((state.entries.len(), state.first()), (MAX_ENTRIES, 5_001 - MAX_ENTRIES as u64));
        let large = RecentEntries::default();
        (0..200).for_each(|_| large.push("a", &[b'x'; 64 << 10], [0; 32]));
        let state = large.state();
        assert!(state.bytes <= MAX_BYTES && state.last == 200);
    }
}
