//! Does every entry follow on the one before it? A walk through all of the trail that is kept.

use std::fmt;

use super::segment::{Walked, read, walk};
use super::{Entry, Hash, Head};
use crate::journal::{NotTold, Rack};

/// A trail that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The number of the first entry that is kept.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Verified {
    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }
}

/// The first place that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// In a file, at a byte.
    At {
        /// Which file.
        file: String,
        /// At which byte.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It could not be read.
    NotTold(NotTold),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { file, offset, why } => write!(f, "{file} at byte {offset}: {why}; compare it with an export"),
            Self::NotTold(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Broken {}

impl From<NotTold> for Broken {
    fn from(why: NotTold) -> Self {
        Self::NotTold(why)
    }
}

/// Walks through everything that is kept, up to where the trail ends.
pub fn verify(rack: &dyn Rack, head: Head) -> Result<Verified, Broken> {
    let broken = |number: u64, offset: usize, why: &str| Broken::At {
        file: rack.label(number),
        offset: offset as u64,
        why: why.to_owned(),
    };
    let mut before: Option<(u64, Walked)> = None;
    let (mut first, mut last) = (None, None);
    let mut bytes = Vec::new();
    for (number, length) in rack.files()? {
        read(rack, number, length, &mut bytes)?;
        let mut gap = None;
        let walked = walk(&bytes, true, |found| {
            // A part that begins with a gap did not find what was to be told again.
            let is_gap = || Entry::read(found.text).is_some_and(|entry| entry.kind == "gap");
            gap.get_or_insert_with(is_gap);
            if found.entry == head.entries {
                last = Some(found.hash);
            }
        });
        let walked = walked.map_err(|why| broken(number, 0, why))?;
        if let Some((other, before)) = &before {
            let follows = (walked.part.first, walked.part.before) == (before.next, before.hash);
            match before.wrong {
                Some(why) if !follows || gap == Some(true) => return Err(broken(*other, before.at, why)),
                None if !follows => return Err(broken(number, 24, "it does not follow on the part before it")),
                _ => {}
            }
        }
        first.get_or_insert(walked.part.first);
        before = Some((number, walked));
    }
    let Some((number, walked)) = before else {
        return Ok(Verified { first: 1, last: 0, hash: head.hash });
    };
    if walked.next <= head.entries {
        let why = walked.wrong.unwrap_or("entries at the end are missing");
        return Err(broken(number, walked.at, why));
    }
    if walked.part.first <= head.entries && last != Some(head.hash) {
        return Err(broken(number, walked.at, "the last entry is another than was told"));
    }
    Ok(Verified { first: first.unwrap_or(1), last: head.entries, hash: head.hash })
}
