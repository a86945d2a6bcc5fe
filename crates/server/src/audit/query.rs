//! Queries of the audit log by resource and entry number, from the newest or the oldest entry.

use super::frame::{self, FileHeader};
use super::segment::{EntryFrame, read, scan};
use super::{AuditEntry, AuditHead, Hash};
use crate::journal::{AuditFiles, ReadError};

/// Selects entries of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl AuditQuery {
    fn matches(&self, head: AuditHead, frame: &EntryFrame<'_>) -> bool {
        let number = frame.entry;
        let inside = number > self.after && number <= head.entries && (self.before == 0 || number < self.before);
        inside
            && self.resource.as_deref().is_none_or(|name| {
                frame.key == AuditEntry::key_of(name)
                    && AuditEntry::parse(frame.text).is_some_and(|entry| entry.resource.as_deref() == Some(name))
            })
    }
}

/// The texts of the selected entries with their hashes. `is_visible` selects by resource, with the empty name for entries that
/// concern none; without it every entry is visible.
pub fn query(
    files: &dyn AuditFiles,
    head: AuditHead,
    query: &AuditQuery,
    is_visible: Option<&dyn Fn(&str) -> bool>,
) -> Result<Vec<(String, Hash)>, ReadError> {
    let mut segments = segments(files)?;
    if !query.oldest_first {
        segments.reverse();
    }
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    for (at, &(number, length, first)) in segments.iter().enumerate() {
        let later = if query.oldest_first { segments.get(at + 1) } else { at.checked_sub(1).map(|at| &segments[at]) };
        let all_before = later.is_some_and(|(_, _, next)| *next <= query.after.saturating_add(1));
        if all_before || (query.before != 0 && first >= query.before) {
            continue;
        }
        read(files, number, length, &mut bytes)?;
        let mut found = Vec::new();
        // A query returns the valid entries; verification reports damage.
        let _ = scan(&bytes, false, |entry| {
            if query.matches(head, &entry) && is_visible.is_none_or(|is_visible| sees(is_visible, &entry)) {
                found.push((String::from_utf8_lossy(entry.text).into_owned(), entry.hash));
            }
        });
        if !query.oldest_first {
            found.reverse();
        }
        entries.extend(found);
        if entries.len() >= query.limit {
            break;
        }
    }
    entries.truncate(query.limit);
    Ok(entries)
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
