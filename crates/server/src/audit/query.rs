//! Queries of the audit log by resource and entry number, from the newest or the oldest entry.
//!
//! A page reads a bounded number of bytes (A16): a search that finds little returns a continuation instead of reading the whole log.

use std::collections::VecDeque;

use super::frame::{self, FileHeader};
use super::segment::{EntryFrame, read, scan};
use super::{AuditEntry, AuditHead, FILE_BYTES, Hash};
use crate::journal::{AuditFiles, ReadError};

/// Bytes of files that one page of a search reads.
pub const MAX_SEARCH_BYTES: u64 = 2 * FILE_BYTES;

/// Selects entries of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries of this resource; all entries if there is none.
    pub resource: Option<String>,
    /// Only entries with a higher number.
    pub after: u64,
    /// Only entries with a lower number; zero for no limit.
    pub before: u64,
    /// Oldest entry first; otherwise newest first.
    pub oldest_first: bool,
    /// Maximum number of entries.
    pub limit: usize,
    /// Bytes of files to read. At least one file is read, so that each page continues.
    pub max_bytes: u64,
}

impl Default for AuditQuery {
    fn default() -> Self {
        Self { resource: None, after: 0, before: 0, oldest_first: false, limit: 0, max_bytes: MAX_SEARCH_BYTES }
    }
}

impl AuditQuery {
    /// Whether an entry number is selected.
    pub(super) fn spans(&self, head: AuditHead, number: u64) -> bool {
        number > self.after && number <= head.entries && (self.before == 0 || number < self.before)
    }

    fn matches(&self, head: AuditHead, frame: &EntryFrame<'_>) -> bool {
        self.spans(head, frame.entry)
            && self.resource.as_deref().is_none_or(|name| {
                frame.key == AuditEntry::key_of(name)
                    && AuditEntry::parse(frame.text).is_some_and(|entry| entry.resource.as_deref() == Some(name))
            })
    }

    /// Where the search continues after all entries up to this one, in its order; `None` if no entry is left.
    pub(super) fn continuation(&self, head: AuditHead, searched: u64) -> Option<u64> {
        let next = if self.oldest_first { searched + 1 } else { searched.saturating_sub(1) };
        let is_left = if self.oldest_first {
            next <= head.entries && (self.before == 0 || next < self.before)
        } else {
            next > self.after
        };
        is_left.then_some(searched)
    }
}

/// One page of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditMatches {
    /// The texts of the entries with their hashes, in the order of the query.
    pub entries: Vec<(String, Hash)>,
    /// Where the search continues: the `before` of the next page, or its `after` if the oldest entry comes first. `None` if the search
    /// is complete.
    pub next: Option<u64>,
}

/// Searches files. `is_visible` selects by resource, with the empty name for entries that concern none; without it every entry is
/// visible.
pub fn query(
    files: &dyn AuditFiles,
    head: AuditHead,
    query: &AuditQuery,
    is_visible: Option<&dyn Fn(&str) -> bool>,
) -> Result<AuditMatches, ReadError> {
    let mut found = AuditMatches::default();
    if query.after >= head.entries || query.limit == 0 {
        return Ok(found);
    }
    let mut segments = segments(files)?;
    if !query.oldest_first {
        segments.reverse();
    }
    let (mut bytes, mut read_bytes, mut searched) = (Vec::new(), 0, None);
    for (at, &(number, length, first)) in segments.iter().enumerate() {
        let later = if query.oldest_first { segments.get(at + 1) } else { at.checked_sub(1).map(|at| &segments[at]) };
        let all_before = later.is_some_and(|(_, _, next)| *next <= query.after.saturating_add(1));
        if all_before || (query.before != 0 && first >= query.before) {
            continue;
        }
        if let Some(searched) = searched
            && read_bytes + length > query.max_bytes
        {
            let searched = if query.oldest_first { first.saturating_sub(1) } else { searched };
            found.next = query.continuation(head, searched);
            return Ok(found);
        }
        read(files, number, length, &mut bytes)?;
        (read_bytes, searched) = (read_bytes + length, Some(first));
        let room = query.limit - found.entries.len();
        let mut kept = VecDeque::new();
        // A query returns the valid entries; verification reports damage.
        let _ = scan(&bytes, false, |entry| {
            let is_full = kept.len() == room;
            if (is_full && query.oldest_first) || !query.matches(head, &entry) {
                return;
            }
            if is_visible.is_none_or(|is_visible| sees(is_visible, &entry)) {
                if is_full {
                    kept.pop_front();
                }
                kept.push_back(entry);
            }
        });
        if !query.oldest_first {
            kept.make_contiguous().reverse();
        }
        let last = kept.back().map(|entry| entry.entry);
        let text = |entry: EntryFrame<'_>| (String::from_utf8_lossy(entry.text).into_owned(), entry.hash);
        found.entries.extend(kept.into_iter().map(text));
        if found.entries.len() == query.limit {
            found.next = last.and_then(|last| query.continuation(head, last));
            return Ok(found);
        }
    }
    Ok(found)
}

/// Whether an entry may be seen. An entry whose text is damaged names no resource, so that only all names cover it.
fn sees(is_visible: &dyn Fn(&str) -> bool, frame: &EntryFrame<'_>) -> bool {
    let entry = AuditEntry::parse(frame.text);
    is_visible(entry.and_then(|entry| entry.resource).as_deref().unwrap_or_default())
}

/// Number, length and first entry of each file with a valid header, oldest first.
pub(super) fn segments(files: &dyn AuditFiles) -> Result<Vec<(u64, u64, u64)>, ReadError> {
    let mut segments = Vec::new();
    for (number, length) in files.files()? {
        let mut header = [0; frame::HEADER_BYTES];
        files.read(number, 0, &mut header)?;
        if let Ok((header, _)) = FileHeader::decode(&header) {
            segments.push((number, length, header.first));
        }
    }
    Ok(segments)
}
