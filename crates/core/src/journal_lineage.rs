//! Lineage of a journal: which tenures it contains, by content, so that a server recognizes a journal that was restored (V2).
//!
//! A number that is lower than before reveals a restore only until others have appended more. The digest of a batch never repeats, so a
//! server remembers the last batch it has seen ([`SeenBatch`]) and compares it with the journal. Batches are trimmed, so the journal's
//! openings are remembered too: a tenure has one writer, so a journal that contains its opening contains its batches up to the next one.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use crate::codec::{DecodeError, Reader, Write};
use crate::limits;

/// Digest of a batch; the next batch names it in its header.
pub fn digest(batch: &[u8]) -> [u8; 32] {
    Sha256::digest(batch).into()
}

/// A batch that opens a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenureStart {
    /// Sequence of the batch.
    pub sequence: u64,
    /// Digest of the batch.
    pub digest: [u8; 32],
}

/// The last batch that a server has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenBatch {
    /// Sequence of the batch.
    pub sequence: u64,
    /// Digest of the batch.
    pub digest: [u8; 32],
    /// The opening of its tenure.
    pub opening: TenureStart,
    /// The first opening of its incarnation; `None` if the server did not know it.
    pub incarnation: Option<TenureStart>,
}

/// What a journal says about a batch that a server has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineageVerdict {
    /// The journal contains the batch.
    Contained,
    /// The journal lost the batch, and an operator has accepted that: a new incarnation began.
    Superseded,
    /// The journal lost the batch.
    Lost,
    /// The journal does not reach back that far.
    Unknown,
}

/// The newest openings of a journal, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Every opening from this sequence on is known.
    complete_from: u64,
    tenures: VecDeque<TenureStart>,
    incarnations: VecDeque<TenureStart>,
}

impl Lineage {
    /// The lineage of a journal whose openings are known from this sequence on.
    pub fn starting_at(sequence: u64) -> Self {
        Self { complete_from: sequence, tenures: VecDeque::new(), incarnations: VecDeque::new() }
    }

    /// A batch opened a tenure, and a new incarnation if `is_new_incarnation`.
    pub fn opened(&mut self, start: TenureStart, is_new_incarnation: bool) {
        self.tenures.push_back(start);
        if is_new_incarnation {
            self.incarnations.push_back(start);
        }
        if self.tenures.len() > limits::TENURES {
            self.tenures.pop_front();
            self.complete_from = self.tenures[0].sequence;
        }
        if self.incarnations.len() > limits::INCARNATIONS {
            self.incarnations.pop_front();
        }
    }

    /// The opening of the current tenure, if it is known.
    pub fn opening(&self) -> Option<TenureStart> {
        self.tenures.back().copied()
    }

    /// The first opening of the current incarnation, if it is known.
    pub fn incarnation(&self) -> Option<TenureStart> {
        self.incarnations.back().copied()
    }

    /// Compares a batch that a server has seen with a journal that ends with the batch `last`.
    pub fn compare(&self, seen: &SeenBatch, last: u64) -> LineageVerdict {
        let newer = match seen.incarnation {
            Some(known) => match self.incarnations.iter().position(|start| *start == known) {
                Some(at) => self.incarnations.len() - at - 1,
                // The journal was restored to a time before the incarnation began.
                None if known.sequence >= self.complete_from => return LineageVerdict::Lost,
                None => return LineageVerdict::Unknown,
            },
            // It is the first one that is known here, or one before that.
            None => self.incarnations.iter().filter(|start| start.sequence > seen.opening.sequence).count(),
        };
        if newer > 0 {
            return LineageVerdict::Superseded;
        }
        match self.tenures.iter().position(|start| *start == seen.opening) {
            Some(at) => {
                let end = self.tenures.get(at + 1).map_or(last, |next| next.sequence - 1);
                if seen.sequence <= end { LineageVerdict::Contained } else { LineageVerdict::Lost }
            }
            None if seen.opening.sequence >= self.complete_from => LineageVerdict::Lost,
            None => LineageVerdict::Unknown,
        }
    }

    /// Appends the encoded lineage.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.complete_from);
        for starts in [&self.tenures, &self.incarnations] {
            out.num(starts.len() as u64);
            for start in starts {
                out.num(start.sequence);
                out.raw(&start.digest);
            }
        }
    }

    /// Decodes a lineage.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let complete_from = from.num()?;
        let tenures = decode_starts(from, limits::TENURES)?;
        let incarnations = decode_starts(from, limits::INCARNATIONS)?;
        Ok(Self { complete_from, tenures, incarnations })
    }
}

fn decode_starts(from: &mut Reader<'_>, limit: usize) -> Result<VecDeque<TenureStart>, DecodeError> {
    let count = from.num()?;
    if count > limit as u64 {
        return Err(from.wrong("too many openings"));
    }
    let mut starts: VecDeque<TenureStart> = VecDeque::new();
    for _ in 0..count {
        let start = TenureStart { sequence: from.num()?, digest: from.array()? };
        if start.sequence == 0 || starts.back().is_some_and(|last| last.sequence >= start.sequence) {
            return Err(from.wrong("openings that are not in order"));
        }
        starts.push_back(start);
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(sequence: u64, digest: u8) -> TenureStart {
        TenureStart { sequence, digest: [digest; 32] }
    }

    fn seen(sequence: u64, opening: TenureStart, incarnation: TenureStart) -> SeenBatch {
        SeenBatch { sequence, digest: [9; 32], opening, incarnation: Some(incarnation) }
    }

    /// Tenures at 1 and 6, in one incarnation.
    fn two_tenures() -> Lineage {
        let mut lineage = Lineage::starting_at(1);
        lineage.opened(start(1, 1), true);
        lineage.opened(start(6, 2), false);
        lineage
    }

    #[test]
    fn a_journal_contains_the_batches_of_its_tenures_up_to_the_next_opening() {
        let lineage = two_tenures();
        let first = start(1, 1);
        assert_eq!(lineage.compare(&seen(5, first, first), 9), LineageVerdict::Contained);
        assert_eq!(lineage.compare(&seen(6, first, first), 9), LineageVerdict::Lost, "the tenure ended before it");
        assert_eq!(lineage.compare(&seen(9, start(6, 2), first), 9), LineageVerdict::Contained);
        assert_eq!(lineage.compare(&seen(10, start(6, 2), first), 9), LineageVerdict::Lost, "the journal is shorter");
    }

    #[test]
    fn a_restored_journal_is_recognized_although_others_have_appended_more() {
        let first = start(1, 1);
        let lost = start(6, 7);
        assert_eq!(two_tenures().compare(&seen(8, lost, first), 900), LineageVerdict::Lost);
    }

    #[test]
    fn an_accepted_restore_supersedes_what_was_seen_and_can_itself_be_lost() {
        let mut lineage = two_tenures();
        lineage.opened(start(9, 3), true);
        let (first, second) = (start(1, 1), start(9, 3));
        assert_eq!(lineage.compare(&seen(500, start(400, 5), first), 12), LineageVerdict::Superseded);
        assert_eq!(two_tenures().compare(&seen(10, second, second), 12), LineageVerdict::Lost);
    }

    #[test]
    fn openings_before_a_snapshot_without_lineage_are_unknown() {
        let mut lineage = Lineage::starting_at(100);
        lineage.opened(start(120, 4), false);
        let old = seen(90, start(80, 5), start(1, 1));
        assert_eq!(lineage.compare(&old, 130), LineageVerdict::Unknown);
        assert_eq!((lineage.opening(), lineage.incarnation()), (Some(start(120, 4)), None));
        let newer = SeenBatch { incarnation: None, ..seen(125, start(120, 4), start(1, 1)) };
        assert_eq!(lineage.compare(&newer, 130), LineageVerdict::Contained);
        assert_eq!(lineage.compare(&newer, 124), LineageVerdict::Lost);
        lineage.opened(start(124, 6), true);
        assert_eq!(lineage.compare(&newer, 124), LineageVerdict::Superseded);
    }

    #[test]
    fn the_oldest_openings_are_forgotten_first_and_then_unknown() {
        let mut lineage = Lineage::starting_at(1);
        lineage.opened(start(1, 1), true);
        for tenure in 1..=limits::TENURES as u64 {
            lineage.opened(start(10 * tenure, 2), false);
        }
        assert_eq!(lineage.tenures.len(), limits::TENURES);
        assert_eq!(lineage.compare(&seen(3, start(1, 1), start(1, 1)), 1 << 20), LineageVerdict::Unknown);
        assert_eq!(lineage.compare(&seen(11, start(10, 2), start(1, 1)), 1 << 20), LineageVerdict::Contained);
        assert_eq!(lineage.compare(&seen(11, start(10, 8), start(1, 1)), 1 << 20), LineageVerdict::Lost);
    }

    #[test]
    fn a_lineage_decodes_as_written_and_an_impossible_one_is_refused() {
        let lineage = two_tenures();
        let mut bytes = Vec::new();
        lineage.encode(&mut bytes);
        assert_eq!(Lineage::decode(&mut Reader::new(&bytes)), Ok(lineage));
        for cut in 0..bytes.len() {
            assert!(Lineage::decode(&mut Reader::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        let mut backwards = Lineage::starting_at(1);
        backwards.tenures.extend([start(6, 1), start(6, 2)]);
        bytes.clear();
        backwards.encode(&mut bytes);
        assert!(Lineage::decode(&mut Reader::new(&bytes)).is_err());
    }
}
