//! What the trail tells about a resource, page by page, from the newest or from the oldest.

use super::frame::{self, Part};
use super::segment::{Found, read, walk};
use super::{Entry, Hash, Head};
use crate::journal::{NotTold, Rack};

/// What somebody wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// About this resource; about all if there is none.
    pub resource: Option<String>,
    /// Only entries with a higher number.
    pub after: u64,
    /// Only entries with a lower number; zero for no such bound.
    pub before: u64,
    /// From the oldest on; otherwise from the newest back.
    pub oldest_first: bool,
    /// At most so many.
    pub most: usize,
}

impl Asked {
    fn wants(&self, head: Head, found: &Found<'_>) -> bool {
        let number = found.entry;
        let inside = number > self.after && number <= head.entries && (self.before == 0 || number < self.before);
        inside
            && self.resource.as_deref().is_none_or(|name| {
                found.key == Entry::key_of(name)
                    && Entry::read(found.text).is_some_and(|entry| entry.resource.as_deref() == Some(name))
            })
    }
}

/// The texts of the entries that are wanted, each with its hash.
pub fn page(rack: &dyn Rack, head: Head, asked: &Asked) -> Result<Vec<(String, Hash)>, NotTold> {
    let mut parts = parts(rack)?;
    if !asked.oldest_first {
        parts.reverse();
    }
    let (mut told, mut bytes) = (Vec::new(), Vec::new());
    for (at, &(number, length, first)) in parts.iter().enumerate() {
        let later = if asked.oldest_first { parts.get(at + 1) } else { at.checked_sub(1).map(|at| &parts[at]) };
        let all_before = later.is_some_and(|(_, _, next)| *next <= asked.after.saturating_add(1));
        if all_before || (asked.before != 0 && first >= asked.before) {
            continue;
        }
        read(rack, number, length, &mut bytes)?;
        let mut found = Vec::new();
        // What is damaged is for the verifier to say; here what is good is told.
        let _ = walk(&bytes, false, |entry| {
            if asked.wants(head, &entry) {
                found.push((String::from_utf8_lossy(entry.text).into_owned(), entry.hash));
            }
        });
        if !asked.oldest_first {
            found.reverse();
        }
        told.extend(found);
        if told.len() >= asked.most {
            break;
        }
    }
    told.truncate(asked.most);
    Ok(told)
}

/// Number, length and first entry of each part that has a good beginning, oldest first.
pub(super) fn parts(rack: &dyn Rack) -> Result<Vec<(u64, u64, u64)>, NotTold> {
    let mut parts = Vec::new();
    for (number, length) in rack.files()? {
        let mut head = [0; frame::HEADER];
        rack.read(number, 0, &mut head)?;
        if let Ok((part, _)) = Part::decode(&head) {
            parts.push((number, length, part.first));
        }
    }
    Ok(parts)
}
