//! Binary format of a fenced log: a header with cluster, resource and slot, then entries with checksums.
//!
//! | bytes of an entry | content |
//! |---|---|
//! | 0..4 | length of the payload |
//! | 4..8 | CRC-32 of the log's salt, the length and all bytes after this field |
//! | 8 | kind: 1 claim, 2 entry, 3 armed |
//! | 9..17 | index in the log, from 0, without a gap |
//! | 17..25 | the token's number, or the floor of an arming (0: fresh); a claim of 0 declares the mark lost |
//! | 25..29 | the token's incarnation, or the one that the log follows after an arming |
//! | 29..37 | of an arming: the sum of 1 strict, 2 the incarnation is set, 4 sealed; of an entry: its sequence plus one, or 0; else 0 |
//!
//! The payload of an arming is the identity of the file: its inode number, and in version 2 its time of birth, if it is known.
//! All numbers are little-endian. Each log has its own random salt, so that entries of another log inside a payload fail the
//! checksum.

use leasehold_core::limits::LOG_ENTRY_BYTES;
use leasehold_core::token::{Cluster, FenceKey};

use super::identity::FileIdentity;

/// The first bytes of every log, before the version.
const MAGIC: [u8; 7] = *b"lhfence";
/// Format version of new logs. Version 1 has no time of birth in its armings.
pub(super) const VERSION: u8 = 2;
/// Length of the header.
pub(super) const HEADER_LEN: usize = 40;
/// Length of an entry without its payload.
pub(super) const HEAD_LEN: usize = 37;

/// Cluster, resource and slot of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogHeader {
    pub(super) version: u8,
    pub(super) cluster: Cluster,
    pub(super) resource: [u8; 8],
    pub(super) slot: u32,
    pub(super) salt: u64,
}

/// Why a header cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    Shape,
    Version(u8),
    Checksum,
}

impl LogHeader {
    pub(super) fn new(key: &FenceKey, salt: u64) -> Self {
        Self { version: VERSION, cluster: key.cluster, resource: key.resource, slot: key.slot, salt }
    }

    pub(super) fn guards(&self, key: &FenceKey) -> bool {
        (self.cluster, self.resource, self.slot) == (key.cluster, key.resource, key.slot)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = self.version;
        bytes[8..16].copy_from_slice(&self.cluster.0);
        bytes[16..24].copy_from_slice(&self.resource);
        bytes[24..28].copy_from_slice(&self.slot.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_LEN] = bytes.try_into().map_err(|_| HeaderError::Shape)?;
        if bytes[..7] != MAGIC {
            return Err(HeaderError::Shape);
        }
        if !(1..=VERSION).contains(&bytes[7]) {
            return Err(HeaderError::Version(bytes[7]));
        }
        if u32_at(bytes, 36) != crc32fast::hash(&bytes[..36]) {
            return Err(HeaderError::Checksum);
        }
        let field = |at: usize| std::array::from_fn(|i| bytes[at + i]);
        let (cluster, resource) = (Cluster(field(8)), field(16));
        Ok(Self { version: bytes[7], cluster, resource, slot: u32_at(bytes, 24), salt: u64_at(bytes, 28) })
    }
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A holder raised the mark, with no other effect.
    Claim,
    /// A holder appended a payload.
    Entry,
    /// An operator set the mark, in this file.
    Armed {
        /// Identity of the file. A copy has another one.
        identity: FileIdentity,
    },
}

/// The fixed-size part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHead {
    pub(super) kind: EntryKind,
    pub(super) index: u64,
    pub(super) number: u64,
    pub(super) incarnation: u32,
    /// Of an arming: [`STRICT`], [`HAS_INCARNATION`] and [`SEALED`]. Of an entry: its sequence plus one, 0 if it has none.
    pub(super) flags: u64,
}

/// The fence is strict.
pub(super) const STRICT: u64 = 1;
/// The incarnation of the arming is set.
pub(super) const HAS_INCARNATION: u64 = 2;
/// The fence is sealed.
pub(super) const SEALED: u64 = 4;

/// Encodes an entry.
pub(super) fn encode(salt: u64, head: EntryHead, payload: &[u8]) -> Vec<u8> {
    let identity;
    let (kind, payload) = match head.kind {
        EntryKind::Claim => (1, &[][..]),
        EntryKind::Entry => (2, payload),
        EntryKind::Armed { identity: FileIdentity { inode, born } } => {
            identity = [inode.to_le_bytes(), born.to_le_bytes()].concat();
            (3, if born == 0 { &identity[..8] } else { &identity[..] })
        }
    };
    let length = u32::try_from(payload.len()).expect("an entry's length was checked against its limit");
    let mut bytes = Vec::with_capacity(HEAD_LEN + payload.len());
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

/// The length of the entry at the start of `bytes`, if it has the expected index and an allowed length.
pub(super) fn entry_len(bytes: &[u8], index: u64) -> Option<usize> {
    if bytes.len() < HEAD_LEN || u64_at(bytes, 9) != index {
        return None;
    }
    let payload = usize::try_from(u32_at(bytes, 0)).ok()?;
    (payload <= LOG_ENTRY_BYTES).then_some(HEAD_LEN + payload)
}

/// Decodes the complete bytes of an entry. The payload follows the head.
pub(super) fn decode(salt: u64, bytes: &[u8]) -> Option<EntryHead> {
    if bytes.len() < HEAD_LEN || u32_at(bytes, 4) != checksum(salt, bytes) {
        return None;
    }
    let kind = match (bytes[8], bytes.len() - HEAD_LEN) {
        (1, 0) => EntryKind::Claim,
        (2, _) => EntryKind::Entry,
        (3, 8) => EntryKind::Armed { identity: FileIdentity { inode: u64_at(bytes, HEAD_LEN), born: 0 } },
        (3, 16) => EntryKind::Armed {
            identity: FileIdentity { inode: u64_at(bytes, HEAD_LEN), born: u64_at(bytes, HEAD_LEN + 8) },
        },
        _ => return None,
    };
    let (number, incarnation, flags) = (u64_at(bytes, 17), u32_at(bytes, 25), u64_at(bytes, 29));
    Some(EntryHead { kind, index: u64_at(bytes, 9), number, incarnation, flags })
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
