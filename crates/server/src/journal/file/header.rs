//! Header of segments and snapshots, 64 bytes.
//!
//! Magic (8), format version (u32), zero (u32), journal id (16), three numbers (u64), zero (u32), checksum (u32);
//! little-endian. The checksum covers all bytes before it and, in a snapshot, all bytes after it.

use crc32fast::Hasher;

/// Length of a header.
pub const BYTES: usize = 64;
/// The format version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

const SEGMENT: [u8; 8] = *b"LHSEGMNT";
const SNAPSHOT: [u8; 8] = *b"LHSNAPSH";

/// Random id of a journal, which detects files of other journals.
pub type JournalId = [u8; 16];

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The journal.
    pub journal: JournalId,
    /// Number of the segment, from 1.
    pub number: u64,
    /// Sequence of its first batch.
    pub first: u64,
    /// Its length, header and zeros included.
    pub size: u64,
}

/// Header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The journal.
    pub journal: JournalId,
    /// The last batch in it.
    pub sequence: u64,
    /// Bytes that follow.
    pub length: u64,
}

/// The header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHeaderError {
    /// It is damaged.
    Corrupt(&'static str),
    /// It has a newer format version.
    Newer(u32),
}

impl SegmentHeader {
    /// Encodes it; the last four bytes are the salt of the segment's frames.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = layout(SEGMENT, self.journal, [self.number, self.first, self.size]);
        put_checksum(&mut out, &[]);
        out
    }

    /// Decodes a header and the salt of the segment's frames.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), FileHeaderError> {
        let (journal, [number, first, size], check) = decode_fields(SEGMENT, bytes)?;
        if check != checksum(bytes, &[]) {
            return Err(FileHeaderError::Corrupt("wrong checksum of the header"));
        }
        Ok((Self { journal, number, first, size }, check))
    }
}

impl SnapshotHeader {
    /// Encodes the header of a snapshot.
    pub fn encode(journal: JournalId, sequence: u64, bytes: &[u8]) -> [u8; BYTES] {
        let mut out = layout(SNAPSHOT, journal, [sequence, bytes.len() as u64, 0]);
        put_checksum(&mut out, bytes);
        out
    }

    /// Decodes the header of a snapshot file and checks the whole file.
    pub fn decode(file: &[u8]) -> Result<Self, FileHeaderError> {
        let (journal, [sequence, length, _], check) = decode_fields(SNAPSHOT, file)?;
        if length != (file.len() - BYTES) as u64 {
            return Err(FileHeaderError::Corrupt("the length differs from the header"));
        }
        if check != checksum(file, &file[BYTES..]) {
            return Err(FileHeaderError::Corrupt("wrong checksum"));
        }
        Ok(Self { journal, sequence, length })
    }
}

const CHECKSUM_AT: usize = BYTES - 4;

fn layout(magic: [u8; 8], journal: JournalId, numbers: [u64; 3]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out[..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&journal);
    for (at, number) in [32, 40, 48].into_iter().zip(numbers) {
        out[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    out
}

fn put_checksum(header: &mut [u8; BYTES], rest: &[u8]) {
    let check = checksum(header, rest);
    header[CHECKSUM_AT..].copy_from_slice(&check.to_le_bytes());
}

fn decode_fields(magic: [u8; 8], file: &[u8]) -> Result<(JournalId, [u64; 3], u32), FileHeaderError> {
    if file.is_empty() {
        return Err(FileHeaderError::Corrupt("empty file"));
    }
    let header = file.first_chunk::<BYTES>().ok_or(FileHeaderError::Corrupt("truncated header"))?;
    if header[..8] != magic {
        return Err(FileHeaderError::Corrupt("wrong magic bytes"));
    }
    let four = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
    let eight = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
    match four(8) {
        VERSION => {}
        0 => return Err(FileHeaderError::Corrupt("format version 0 does not exist")),
        newer => return Err(FileHeaderError::Newer(newer)),
    }
    let journal = *header[16..].first_chunk().expect("inside the header");
    Ok((journal, [32, 40, 48].map(eight), four(CHECKSUM_AT)))
}

fn checksum(header: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header[..CHECKSUM_AT]);
    hasher.update(rest);
    hasher.finalize()
}
