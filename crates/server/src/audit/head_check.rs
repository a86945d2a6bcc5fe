//! Comparison of an audit log with ends of it that are known from elsewhere: noted by a person, or signed (A13).

use std::fmt;
use std::str::FromStr;

use super::{Hash, hex, unhex};

/// An entry that was noted elsewhere: its number and its hash, as `ENTRY:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedEntry {
    /// The number of the entry.
    pub entry: u64,
    /// Its hash.
    pub hash: Hash,
}

impl FromStr for ExpectedEntry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once(':').and_then(|(entry, hash)| {
            let entry = entry.parse().ok().filter(|entry| *entry > 0)?;
            Some(Self { entry, hash: unhex(hash)? })
        });
        parsed.ok_or("must be ENTRY:HASH: the last entry and the last hash that `audit verify` prints")
    }
}

/// How a log differs from what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadMismatch {
    /// Two known ends contradict each other.
    Contradiction {
        /// The entry that both name.
        entry: u64,
    },
    /// The entry has another hash.
    Rewritten {
        /// The first entry that differs from a known one.
        entry: u64,
        /// The last known entry before it that is the same.
        intact: Option<u64>,
        /// Its hash.
        found: Hash,
        /// The known hash.
        expected: Hash,
    },
    /// The log ends before the entry.
    CutAtEnd {
        /// The last known entry.
        entry: u64,
        /// The first entry of the log.
        first: u64,
        /// The last entry of the log.
        last: u64,
    },
    /// The log starts after the entry, which must be in it.
    CutAtStart {
        /// The entry.
        entry: u64,
        /// The first entry of the log.
        first: u64,
    },
}

impl fmt::Display for HeadMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction { entry } => {
                write!(f, "two heads of entry {entry} have different hashes: they are of different logs")
            }
            Self::Rewritten { entry, intact, found, expected } => {
                write!(f, "entry {entry} has hash {}, expected {}: the log was rewritten", hex(found), hex(expected))?;
                match intact {
                    Some(intact) => write!(f, " after entry {intact}"),
                    None => Ok(()),
                }
            }
            Self::CutAtEnd { entry, first, last } => write!(
                f,
                "entry {entry} is expected, but the log has entries {first} to {last}: entries {} to {entry} were cut",
                last + 1
            ),
            Self::CutAtStart { entry, first } => write!(
                f,
                "entry {entry} is expected, but the log starts at entry {first}: the retention removed it, or it was cut"
            ),
        }
    }
}

impl std::error::Error for HeadMismatch {}

/// Known ends of a log, compared while its entries are read in order.
#[derive(Clone, Debug, Default)]
pub struct HeadCheck {
    /// Sorted by entry, each entry once.
    known: Vec<ExpectedEntry>,
    /// Whether an entry before the first one of the log is an error. The retention removes old entries, so heads may be older.
    must_contain: Option<u64>,
    next: usize,
    compared: u64,
    intact: Option<u64>,
    mismatch: Option<HeadMismatch>,
}

impl HeadCheck {
    /// A check of these ends; the log must contain the one that a person noted.
    pub fn new(
        heads: impl IntoIterator<Item = ExpectedEntry>,
        noted: Option<ExpectedEntry>,
    ) -> Result<Self, HeadMismatch> {
        let mut known: Vec<ExpectedEntry> = heads.into_iter().chain(noted).collect();
        known.sort_unstable();
        known.dedup();
        if let Some(pair) = known.windows(2).find(|pair| pair[0].entry == pair[1].entry) {
            return Err(HeadMismatch::Contradiction { entry: pair[0].entry });
        }
        Ok(Self { known, must_contain: noted.map(|noted| noted.entry), ..Self::default() })
    }

    /// Compares an entry of the log. The log's first call is for the entry before its first one.
    pub fn see(&mut self, entry: u64, hash: &Hash) {
        while self.known.get(self.next).is_some_and(|known| known.entry < entry) {
            self.next += 1;
        }
        let Some(known) = self.known.get(self.next).filter(|known| known.entry == entry) else { return };
        self.next += 1;
        self.compared += 1;
        if known.hash == *hash {
            self.intact = self.intact.max(self.mismatch.is_none().then_some(entry));
        } else if self.mismatch.is_none() {
            let (found, expected) = (*hash, known.hash);
            self.mismatch = Some(HeadMismatch::Rewritten { entry, intact: self.intact, found, expected });
        }
    }

    /// The number of ends that were compared, after the whole log was read.
    pub fn finish(self, first: u64, last: u64) -> Result<u64, HeadMismatch> {
        if let Some(mismatch) = self.mismatch {
            return Err(mismatch);
        }
        if let Some(newest) = self.known.last().filter(|newest| newest.entry > last) {
            return Err(HeadMismatch::CutAtEnd { entry: newest.entry, first, last });
        }
        match self.must_contain {
            Some(entry) if entry < first.saturating_sub(1) => Err(HeadMismatch::CutAtStart { entry, first }),
            _ => Ok(self.compared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(entry: u64, hash: u8) -> ExpectedEntry {
        ExpectedEntry { entry, hash: [hash; 32] }
    }

    /// A log whose entry N has hash N, from `first` to `last`.
    fn run(mut check: HeadCheck, first: u64, last: u64) -> Result<u64, HeadMismatch> {
        (first - 1..=last).for_each(|entry| check.see(entry, &[entry as u8; 32]));
        check.finish(first, last)
    }

    fn heads(all: &[(u64, u8)]) -> HeadCheck {
        HeadCheck::new(all.iter().map(|(entry, hash)| known(*entry, *hash)), None).expect("no contradiction")
    }

    #[test]
    fn a_log_that_contains_all_heads_passes_and_older_heads_do_not_count() {
        assert_eq!(run(heads(&[]), 1, 9), Ok(0));
        assert_eq!(run(heads(&[(9, 9), (3, 3), (3, 3)]), 1, 9), Ok(2));
        assert_eq!(run(heads(&[(2, 77), (4, 4), (8, 8)]), 5, 9), Ok(2), "entry 4 is the one before the first");
    }

    #[test]
    fn a_cut_and_a_rewritten_log_are_distinguished_with_the_place() {
        let cut = run(heads(&[(3, 3), (12, 12)]), 1, 9).expect_err("cut");
        assert_eq!(cut, HeadMismatch::CutAtEnd { entry: 12, first: 1, last: 9 });
        assert!(cut.to_string().contains("entries 10 to 12 were cut"), "{cut}");
        let rewritten = run(heads(&[(3, 3), (5, 1), (7, 7)]), 1, 9).expect_err("rewritten");
        assert!(matches!(rewritten, HeadMismatch::Rewritten { entry: 5, intact: Some(3), .. }), "{rewritten:?}");
        assert!(rewritten.to_string().ends_with("the log was rewritten after entry 3"), "{rewritten}");
        let whole = run(heads(&[(5, 1), (12, 1)]), 1, 9).expect_err("rewritten");
        assert!(matches!(whole, HeadMismatch::Rewritten { entry: 5, intact: None, .. }), "{whole:?}");
    }

    #[test]
    fn a_noted_entry_must_be_in_the_log_and_heads_may_not_contradict() {
        let noted = HeadCheck::new([], Some(known(2, 2))).expect("one");
        assert_eq!(run(noted.clone(), 5, 9), Err(HeadMismatch::CutAtStart { entry: 2, first: 5 }));
        assert_eq!(run(noted, 3, 9), Ok(1), "the file starts with its hash");
        let both = HeadCheck::new([known(2, 2), known(2, 3)], None);
        assert_eq!(both.expect_err("contradiction"), HeadMismatch::Contradiction { entry: 2 });
    }
}
