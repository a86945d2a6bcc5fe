//! The bytes of a fenced log: a header that says whose it is, and entries that prove themselves.
//!
//! | entry's bytes | hold |
//! |---|---|
//! | 0..4 | length of the payload |
//! | 4..8 | CRC-32 of the log's salt, the length and all behind this field |
//! | 8 | kind: 1 claim, 2 entry, 3 armed |
//! | 9..17 | index in the log, from 0, without a gap |
//! | 17..25 | the token's number, or the floor of an arming (0: fresh); a claim of 0 says that the mark is lost |
//! | 25..29 | the token's incarnation, or the one that an arming follows |
//! | 29..37 | of an arming: 1 strict, 2 the incarnation counts, or both; of an entry: its sequence plus one, or 0; else 0 |
//!
//! All numbers are little-endian. The salt is the log's own, so that bytes of another log in a payload prove nothing.

use leasehold_core::limits::LOG_ENTRY_BYTES;
use leasehold_core::token::{Cluster, Guarded};

/// The first bytes of every log; the version stands in the last.
const MAGIC: [u8; 7] = *b"lhfence";
/// The version written here.
pub(super) const VERSION: u8 = 1;
/// Length of the header.
pub(super) const HEADER: usize = 40;
/// Length of an entry without its payload.
pub(super) const HEAD: usize = 37;

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster: Cluster,
    pub(super) resource: [u8; 8],
    pub(super) slot: u32,
    pub(super) salt: u64,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHeader {
    Shape,
    Version(u8),
    Checksum,
}

impl Header {
    pub(super) fn new(guarded: &Guarded, salt: u64) -> Self {
        Self { cluster: guarded.cluster, resource: guarded.resource, slot: guarded.slot, salt }
    }

    pub(super) fn guards(&self, guarded: &Guarded) -> bool {
        (self.cluster, self.resource, self.slot) == (guarded.cluster, guarded.resource, guarded.slot)
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = VERSION;
        bytes[8..16].copy_from_slice(&self.cluster.0);
        bytes[16..24].copy_from_slice(&self.resource);
        bytes[24..28].copy_from_slice(&self.slot.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NoHeader> {
        let bytes: &[u8; HEADER] = bytes.try_into().map_err(|_| NoHeader::Shape)?;
        if bytes[..7] != MAGIC {
            return Err(NoHeader::Shape);
        }
        if bytes[7] != VERSION {
            return Err(NoHeader::Version(bytes[7]));
        }
        if u32_at(bytes, 36) != crc32fast::hash(&bytes[..36]) {
            return Err(NoHeader::Checksum);
        }
        let field = |at: usize| std::array::from_fn(|i| bytes[at + i]);
        let (cluster, resource) = (Cluster(field(8)), field(16));
        Ok(Self { cluster, resource, slot: u32_at(bytes, 24), salt: u64_at(bytes, 28) })
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The mark was raised, with no other effect.
    Claim,
    /// Something was appended.
    Entry,
    /// The mark was set by an operator, in this file.
    Armed {
        /// Which file; a copy is another one.
        inode: u64,
    },
}

/// An entry's head, as far as it says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) index: u64,
    pub(super) number: u64,
    pub(super) incarnation: u32,
    /// Of an arming: [`STRICT`] and [`FOLLOWS`]. Of an entry: its sequence inside the hold plus one, 0 if it has none.
    pub(super) flags: u64,
}

/// An arming that refuses other incarnations.
pub(super) const STRICT: u64 = 1;
/// An arming whose incarnation counts.
pub(super) const FOLLOWS: u64 = 2;

/// An entry's bytes.
pub(super) fn encode(salt: u64, head: Head, payload: &[u8]) -> Vec<u8> {
    let inode;
    let (kind, payload) = match head.kind {
        Kind::Claim => (1, &[][..]),
        Kind::Entry => (2, payload),
        Kind::Armed { inode: of } => {
            inode = of.to_le_bytes();
            (3, &inode[..])
        }
    };
    let length = u32::try_from(payload.len()).expect("an entry's length was checked against its limit");
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend(length.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.push(kind);
    bytes.extend(head.index.to_le_bytes());
    bytes.extend(head.number.to_le_bytes());
    bytes.extend(head.incarnation.to_le_bytes());
    bytes.extend(head.flags.to_le_bytes());
    bytes.extend_from_slice(payload);
    let checksum = checksum(salt, &bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// How many bytes the entry has that begins here, if its index is the one expected and its length is allowed.
pub(super) fn length(bytes: &[u8], index: u64) -> Option<usize> {
    if bytes.len() < HEAD || u64_at(bytes, 9) != index {
        return None;
    }
    let payload = usize::try_from(u32_at(bytes, 0)).ok()?;
    (payload <= LOG_ENTRY_BYTES).then_some(HEAD + payload)
}

/// Reads an entry's whole bytes. The payload is what lies behind its head.
pub(super) fn decode(salt: u64, bytes: &[u8]) -> Option<Head> {
    if bytes.len() < HEAD || u32_at(bytes, 4) != checksum(salt, bytes) {
        return None;
    }
    let kind = match (bytes[8], bytes.len() - HEAD) {
        (1, 0) => Kind::Claim,
        (2, _) => Kind::Entry,
        (3, 8) => Kind::Armed { inode: u64_at(bytes, HEAD) },
        _ => return None,
    };
    let (number, incarnation, flags) = (u64_at(bytes, 17), u32_at(bytes, 25), u64_at(bytes, 29));
    Some(Head { kind, index: u64_at(bytes, 9), number, incarnation, flags })
}

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(&salt.to_le_bytes());
    hash.update(&bytes[..4]);
    hash.update(&bytes[8..]);
    hash.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
