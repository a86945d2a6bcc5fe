//! The sixty-four bytes that every segment and every snapshot begin with.
//!
//! Magic (8), format version (u32), zero (u32), journal id (16), three numbers (u64), zero (u32), checksum (u32);
//! little-endian. The checksum covers all before it and, of a snapshot, all behind it.

use crc32fast::Hasher;

/// How long a header is.
pub const BYTES: usize = 64;
/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

const SEGMENT: [u8; 8] = *b"LHSEGMNT";
const SNAPSHOT: [u8; 8] = *b"LHSNAPSH";

/// Names a journal for ever, so that another journal's file is told.
pub type JournalId = [u8; 16];

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The journal.
    pub journal: JournalId,
    /// Its place among the segments, from one.
    pub number: u64,
    /// The sequence of its first batch.
    pub first: u64,
    /// Its length, header and zeros included.
    pub size: u64,
}

/// What a snapshot says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The journal.
    pub journal: JournalId,
    /// The last batch in it.
    pub sequence: u64,
    /// How many bytes follow.
    pub length: u64,
}

/// Why a header is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Damaged, and how.
    Corrupt(&'static str),
    /// Of this newer version.
    Newer(u32),
}

impl Segment {
    /// The header's bytes; the last four are the salt of the segment's frames.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = layout(SEGMENT, self.journal, [self.number, self.first, self.size]);
        seal(&mut out, &[]);
        out
    }

    /// Reads a header, and the salt of the segment's frames.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), Unfit> {
        let (journal, [number, first, size], check) = parts(SEGMENT, bytes)?;
        if check != checksum(bytes, &[]) {
            return Err(Unfit::Corrupt("the header's checksum is wrong"));
        }
        Ok((Self { journal, number, first, size }, check))
    }
}

impl Snapshot {
    /// The header's bytes, for these bytes behind it.
    pub fn encode(journal: JournalId, sequence: u64, bytes: &[u8]) -> [u8; BYTES] {
        let mut out = layout(SNAPSHOT, journal, [sequence, bytes.len() as u64, 0]);
        seal(&mut out, bytes);
        out
    }

    /// Reads a snapshot's header from the whole file and checks all of it.
    pub fn decode(file: &[u8]) -> Result<Self, Unfit> {
        let (journal, [sequence, length, _], check) = parts(SNAPSHOT, file)?;
        if length != (file.len() - BYTES) as u64 {
            return Err(Unfit::Corrupt("its length is not what its header says"));
        }
        if check != checksum(file, &file[BYTES..]) {
            return Err(Unfit::Corrupt("its checksum is wrong"));
        }
        Ok(Self { journal, sequence, length })
    }
}

const CHECK: usize = BYTES - 4;

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

fn seal(header: &mut [u8; BYTES], rest: &[u8]) {
    let check = checksum(header, rest);
    header[CHECK..].copy_from_slice(&check.to_le_bytes());
}

fn parts(magic: [u8; 8], file: &[u8]) -> Result<(JournalId, [u64; 3], u32), Unfit> {
    if file.is_empty() {
        return Err(Unfit::Corrupt("the file is empty"));
    }
    let header = file.first_chunk::<BYTES>().ok_or(Unfit::Corrupt("the header is cut short"))?;
    if header[..8] != magic {
        return Err(Unfit::Corrupt("the magic bytes are wrong"));
    }
    let four = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
    let eight = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
    match four(8) {
        VERSION => {}
        0 => return Err(Unfit::Corrupt("there is no format version 0")),
        newer => return Err(Unfit::Newer(newer)),
    }
    let journal = *header[16..].first_chunk().expect("inside the header");
    Ok((journal, [32, 40, 48].map(eight), four(CHECK)))
}

fn checksum(header: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header[..CHECK]);
    hasher.update(rest);
    hasher.finalize()
}
