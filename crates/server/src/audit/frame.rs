//! Binary format of the audit log's files.
//!
//! A file starts with a header of 88 bytes: `LHTRAIL1`, format version (u32), zero (u32), the cluster (8), the number of its first
//! entry (u64), the journal position that earlier files cover (u64), the hash that its first entry follows (32), the wall clock at
//! its creation (u64), zero (u32), checksum (u32). Frames follow without gaps: length (u32), checksum (u32), key (8), text, hash
//! (32). The checksum of a frame starts from the checksum of the header, so that a frame is valid only in its own file. A frame
//! without text is a checkpoint: its key is the journal position that the log covers, its hash is that of the batch there. Numbers
//! are little-endian.

use crc32fast::Hasher;
use leasehold_core::token::Cluster;

use super::Hash;

/// Length of a file's header.
pub const HEADER_BYTES: usize = 88;
/// Longest text of an entry.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// The format version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"LHTRAIL1";
const FRAME_HEADER_BYTES: usize = 16;
const CHECKSUM_AT: usize = HEADER_BYTES - 4;

/// Header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The cluster of the log.
    pub cluster: Cluster,
    /// Number of its first entry.
    pub first: u64,
    /// The journal position that earlier files cover.
    pub position: u64,
    /// The hash that its first entry follows.
    pub previous: Hash,
    /// Time of its creation, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// The frame at an offset of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An entry.
    Entry {
        /// The key by which entries of a resource are found.
        key: [u8; 8],
        /// Its text.
        text: &'a [u8],
        /// Its hash.
        hash: Hash,
        /// Offset of the next frame.
        end: usize,
    },
    /// The log is complete up to a journal position.
    Checkpoint {
        /// The position.
        position: u64,
        /// Hash of the batch at that position.
        batch: Hash,
        /// Offset of the next frame.
        end: usize,
    },
    /// The end of the file.
    End,
    /// Damaged bytes.
    Damaged(&'static str),
}

impl FileHeader {
    /// Encodes it; the last four bytes are the salt of its frames.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.cluster.0);
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.position.to_le_bytes());
        out[40..72].copy_from_slice(&self.previous);
        out[72..80].copy_from_slice(&self.wall_ms.to_le_bytes());
        let check = crc32fast::hash(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Decodes a header and the salt of its frames.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), &'static str> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>().ok_or("the header is truncated")?;
        if bytes[..8] != MAGIC {
            return Err("not a file of an audit log");
        }
        let four = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        if four(8) != VERSION {
            return Err("unknown format version");
        }
        if four(CHECKSUM_AT) != crc32fast::hash(&bytes[..CHECKSUM_AT]) {
            return Err("wrong checksum of the header");
        }
        let header = Self {
            cluster: Cluster(*bytes[16..].first_chunk().expect("inside the header")),
            first: eight(24),
            position: eight(32),
            previous: *bytes[40..].first_chunk().expect("inside the header"),
            wall_ms: eight(72),
        };
        Ok((header, four(CHECKSUM_AT)))
    }
}

/// Appends the frame of an entry.
pub fn put(salt: u32, key: [u8; 8], text: &[u8], hash: &Hash, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("an entry is short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(salt, length, key, text, hash).to_le_bytes());
    out.extend_from_slice(&key);
    out.extend_from_slice(text);
    out.extend_from_slice(hash);
}

/// Appends a checkpoint.
pub fn put_checkpoint(salt: u32, position: u64, batch: &Hash, out: &mut Vec<u8>) {
    put(salt, position.to_le_bytes(), &[], batch, out);
}

/// Decodes the frame at an offset. Nothing is allocated, whatever length the frame claims.
pub fn read(salt: u32, file: &[u8], at: usize) -> Frame<'_> {
    let rest = file.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return Frame::End;
    }
    let Some((head, rest)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Frame::Damaged("truncated entry");
    };
    let [length, check] = [0, 4].map(|from| u32::from_le_bytes(*head[from..].first_chunk().expect("inside the head")));
    let key = *head.last_chunk::<8>().expect("inside the head");
    if length as usize > MAX_TEXT_BYTES {
        return Frame::Damaged("entry too long");
    }
    let Some((text, rest)) = rest.split_at_checked(length as usize) else {
        return Frame::Damaged("truncated entry");
    };
    let Some(hash) = rest.first_chunk::<32>() else { return Frame::Damaged("truncated entry") };
    if check != checksum(salt, length, key, text, hash) {
        return Frame::Damaged("wrong checksum of an entry");
    }
    let end = at + FRAME_HEADER_BYTES + text.len() + hash.len();
    if text.is_empty() {
        Frame::Checkpoint { position: u64::from_le_bytes(key), batch: *hash, end }
    } else {
        Frame::Entry { key, text, hash: *hash, end }
    }
}

fn checksum(salt: u32, length: u32, key: [u8; 8], text: &[u8], hash: &Hash) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(&length.to_le_bytes());
    hasher.update(&key);
    hasher.update(text);
    hasher.update(hash);
    hasher.finalize()
}
