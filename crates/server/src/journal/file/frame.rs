//! How a batch lies in a segment: the batch is the checksum unit.
//!
//! A frame is length (u32), checksum (u32), sequence (u64), bytes, zeros up to eight; all numbers little-endian. The
//! checksum covers length, sequence and bytes and starts from the checksum of the segment's header, so that a frame is
//! valid in its own segment only, and nobody who does not know the journal's random id can write one into a batch. A
//! frame without bytes is a seal: the log goes on in the next segment, at the seal's sequence.

use crc32fast::Hasher;

/// What stands before a batch's bytes.
pub const HEAD: usize = 16;
/// Frames begin at multiples of this.
pub const ALIGN: usize = 8;

/// What is at an offset.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A whole batch; the next frame begins at `end`.
    Batch { sequence: u64, bytes: &'a [u8], end: usize },
    /// The log goes on in the next segment.
    Seal { sequence: u64 },
    /// Nothing was written here, or the segment is over.
    Nothing,
    /// Something that is no frame.
    Broken(&'static str),
}

/// How much of a segment a batch takes.
pub fn size(batch: usize) -> usize {
    (HEAD + batch).next_multiple_of(ALIGN)
}

/// Writes a batch's frame, or a seal if there are no bytes, in place of what was in `out`.
pub fn encode(salt: u32, sequence: u64, batch: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(batch.len()).expect("a batch is below its limit");
    out.clear();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(salt, length, sequence, batch).to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(batch);
    out.resize(size(batch.len()), 0);
}

/// Looks at an offset of a segment. Nothing is allocated, whatever the length claims.
pub fn look(salt: u32, segment: &[u8], at: usize) -> Found<'_> {
    let Some((head, rest)) = segment.get(at..).and_then(|rest| rest.split_first_chunk::<HEAD>()) else {
        return Found::Nothing;
    };
    if *head == [0; HEAD] {
        return Found::Nothing;
    }
    let [length, check] = [0, 4].map(|from| u32::from_le_bytes(*head[from..].first_chunk().expect("inside the head")));
    let sequence = sequence_of(head);
    let Some(bytes) = rest.get(..length as usize) else {
        return Found::Broken("a batch's length reaches past its segment");
    };
    if check != checksum(salt, length, sequence, bytes) {
        return Found::Broken("a batch's checksum is wrong");
    }
    if bytes.is_empty() {
        Found::Seal { sequence }
    } else {
        Found::Batch { sequence, bytes, end: at + size(bytes.len()) }
    }
}

/// Finds a valid frame behind a place where `expected` should be: the proof that what was there had been durable,
/// because a batch is written only after the one before it was.
pub fn later(salt: u32, segment: &[u8], at: usize, expected: u64) -> Option<usize> {
    let end = written(segment);
    (at + ALIGN..end).step_by(ALIGN).find(|&place| {
        let Some(head) = segment.get(place..).and_then(|rest| rest.first_chunk::<HEAD>()) else { return false };
        // Few places carry a sequence that can be: only those are worth a checksum.
        let most = expected.saturating_add(((place - at) / ALIGN) as u64);
        (expected.saturating_add(1)..=most).contains(&sequence_of(head))
            && matches!(look(salt, segment, place), Found::Batch { .. } | Found::Seal { .. })
    })
}

/// Where the zeros at the end of a segment begin.
pub fn written(segment: &[u8]) -> usize {
    segment.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn sequence_of(head: &[u8; HEAD]) -> u64 {
    u64::from_le_bytes(*head.last_chunk().expect("inside the head"))
}

fn checksum(salt: u32, length: u32, sequence: u64, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(&length.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}
