//! How entries lie in a part of the trail.
//!
//! A part begins with 88 bytes: `LHTRAIL1`, format version (u32), zero (u32), the cluster (8), the number of its first
//! entry (u64), the journal position up to which everything was told before it (u64), the hash that its first entry follows
//! on (32), the wall clock when it was begun (u64), zero (u32), checksum (u32). Frames follow, back to back: length (u32),
//! checksum (u32), key (8), the text, hash (32). The checksum starts from the part's, so that a frame is valid in its own
//! part only. A frame without text is a mark: its key is a journal position up to which everything is told, its hash that
//! of the journal's batch there. Numbers are little-endian.

use crc32fast::Hasher;
use leasehold_core::token::Cluster;

use super::Hash;

/// How long a part's beginning is.
pub const HEADER: usize = 88;
/// The longest text of an entry.
pub const TEXT: usize = 64 << 10;
/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"LHTRAIL1";
const HEAD: usize = 16;
const CHECK: usize = HEADER - 4;

/// What a part says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose trail it is.
    pub cluster: Cluster,
    /// The number of its first entry.
    pub first: u64,
    /// Everything up to this journal position was told before it.
    pub position: u64,
    /// The hash that its first entry follows on.
    pub before: Hash,
    /// When it was begun, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// What is at an offset of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An entry; the next frame begins at `end`.
    Entry {
        /// What entries about one resource are found by.
        key: [u8; 8],
        /// Its text.
        text: &'a [u8],
        /// Its hash.
        hash: Hash,
        /// Where the next frame begins.
        end: usize,
    },
    /// Everything up to a journal position is told.
    Mark {
        /// The position.
        position: u64,
        /// The hash of the journal's batch there.
        batch: Hash,
        /// Where the next frame begins.
        end: usize,
    },
    /// The part is over.
    End,
    /// Something that is no frame.
    Broken(&'static str),
}

impl Part {
    /// Its bytes; the last four are the salt of its frames.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.cluster.0);
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.position.to_le_bytes());
        out[40..72].copy_from_slice(&self.before);
        out[72..80].copy_from_slice(&self.wall_ms.to_le_bytes());
        let check = crc32fast::hash(&out[..CHECK]);
        out[CHECK..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Reads a part's beginning, and the salt of its frames.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), &'static str> {
        let bytes = bytes.first_chunk::<HEADER>().ok_or("its beginning is cut short")?;
        if bytes[..8] != MAGIC {
            return Err("not a part of an audit trail");
        }
        let four = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        if four(8) != VERSION {
            return Err("of a format version that is not known here");
        }
        if four(CHECK) != crc32fast::hash(&bytes[..CHECK]) {
            return Err("the checksum of its beginning is wrong");
        }
        let part = Self {
            cluster: Cluster(*bytes[16..].first_chunk().expect("inside the header")),
            first: eight(24),
            position: eight(32),
            before: *bytes[40..].first_chunk().expect("inside the header"),
            wall_ms: eight(72),
        };
        Ok((part, four(CHECK)))
    }
}

/// Appends an entry's frame.
pub fn put(salt: u32, key: [u8; 8], text: &[u8], hash: &Hash, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("an entry is short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(salt, length, key, text, hash).to_le_bytes());
    out.extend_from_slice(&key);
    out.extend_from_slice(text);
    out.extend_from_slice(hash);
}

/// Appends a mark.
pub fn put_mark(salt: u32, position: u64, batch: &Hash, out: &mut Vec<u8>) {
    put(salt, position.to_le_bytes(), &[], batch, out);
}

/// Looks at an offset. Nothing is allocated, whatever the length claims.
pub fn look(salt: u32, part: &[u8], at: usize) -> Frame<'_> {
    let rest = part.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return Frame::End;
    }
    let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Frame::Broken("an entry is cut short") };
    let [length, check] = [0, 4].map(|from| u32::from_le_bytes(*head[from..].first_chunk().expect("inside the head")));
    let key = *head.last_chunk::<8>().expect("inside the head");
    if length as usize > TEXT {
        return Frame::Broken("an entry is longer than one can be");
    }
    let Some((text, rest)) = rest.split_at_checked(length as usize) else {
        return Frame::Broken("an entry is cut short");
    };
    let Some(hash) = rest.first_chunk::<32>() else { return Frame::Broken("an entry is cut short") };
    if check != checksum(salt, length, key, text, hash) {
        return Frame::Broken("an entry's checksum is wrong");
    }
    let end = at + HEAD + text.len() + hash.len();
    if text.is_empty() {
        Frame::Mark { position: u64::from_le_bytes(key), batch: *hash, end }
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
