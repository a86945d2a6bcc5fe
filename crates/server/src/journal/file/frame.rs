//! Frame of a batch in a segment: one checksum per batch.
//!
//! A frame is length (u32), checksum (u32), sequence (u64), bytes, padding to eight bytes; all numbers little-endian. The
//! checksum covers length, sequence and bytes and starts from the checksum of the segment's header, so that a frame is
//! valid only in its own segment, and no one can forge one inside a batch without knowing the journal's random id. A
//! frame without bytes is a seal: the log continues in the next segment, at the seal's sequence.

use crc32fast::Hasher;

/// Length of a frame's header.
pub const HEAD: usize = 16;
/// Alignment of frames.
pub const ALIGN: usize = 8;

/// The frame at an offset.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameScan<'a> {
    /// A complete batch; the next frame starts at `end`.
    Batch { sequence: u64, bytes: &'a [u8], end: usize },
    /// The log continues in the next segment.
    Seal { sequence: u64 },
    /// Unwritten space, or the end of the segment.
    Empty,
    /// Damaged bytes.
    Damaged(&'static str),
}

/// Size of the frame of a batch.
pub fn size(batch: usize) -> usize {
    (HEAD + batch).next_multiple_of(ALIGN)
}

/// Encodes the frame of a batch, or a seal if there are no bytes, into `out`.
pub fn encode(salt: u32, sequence: u64, batch: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(batch.len()).expect("a batch is within its limit");
    out.clear();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(salt, length, sequence, batch).to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(batch);
    out.resize(size(batch.len()), 0);
}

/// Decodes the frame at an offset of a segment. Nothing is allocated, whatever length the frame claims.
pub fn read(salt: u32, segment: &[u8], at: usize) -> FrameScan<'_> {
    let Some((head, rest)) = segment.get(at..).and_then(|rest| rest.split_first_chunk::<HEAD>()) else {
        return FrameScan::Empty;
    };
    if *head == [0; HEAD] {
        return FrameScan::Empty;
    }
    let [length, check] = [0, 4].map(|from| u32::from_le_bytes(*head[from..].first_chunk().expect("inside the head")));
    let sequence = sequence_of(head);
    let Some(bytes) = rest.get(..length as usize) else {
        return FrameScan::Damaged("the length of a batch exceeds its segment");
    };
    if check != checksum(salt, length, sequence, bytes) {
        return FrameScan::Damaged("wrong checksum of a batch");
    }
    if bytes.is_empty() {
        FrameScan::Seal { sequence }
    } else {
        FrameScan::Batch { sequence, bytes, end: at + size(bytes.len()) }
    }
}

/// Finds a valid frame after the offset where `expected` should be. It proves that the batch there was durable, because a batch is
/// written only after the previous one is durable.
pub fn find_later(salt: u32, segment: &[u8], at: usize, expected: u64) -> Option<usize> {
    let end = written_bytes(segment);
    (at + ALIGN..end).step_by(ALIGN).find(|&offset| {
        let Some(head) = segment.get(offset..).and_then(|rest| rest.first_chunk::<HEAD>()) else { return false };
        // Few offsets have a plausible sequence; only for those is the checksum computed.
        let max = expected.saturating_add(((offset - at) / ALIGN) as u64);
        (expected.saturating_add(1)..=max).contains(&sequence_of(head))
            && matches!(read(salt, segment, offset), FrameScan::Batch { .. } | FrameScan::Seal { .. })
    })
}

/// Offset of the zeros at the end of a segment. Most of a segment may be zeros, so whole blocks of them are compared.
pub fn written_bytes(segment: &[u8]) -> usize {
    const ZEROS: [u8; 4_096] = [0; 4_096];
    let zeros = segment.rchunks_exact(ZEROS.len()).take_while(|block| **block == ZEROS).count() * ZEROS.len();
    let rest = &segment[..segment.len() - zeros];
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
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

#[cfg(test)]
mod tests {
    use super::written_bytes;

    #[test]
    fn the_zeros_at_the_end_are_found_at_every_length() {
        for length in [0, 1, 4_095, 4_096, 4_097, 8_192, 12_289] {
            assert_eq!(written_bytes(&vec![0; length]), 0, "{length} zeros");
            for last in [0, 1, 4_094, 4_095, 4_096, 8_191, 8_192].into_iter().filter(|last| *last < length) {
                let mut bytes = vec![0; length];
                bytes[last] = 1;
                assert_eq!(written_bytes(&bytes), last + 1, "byte {last} of {length}");
            }
        }
    }
}
