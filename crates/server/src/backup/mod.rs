//! Backups: the whole state as of one durable position, in one file with a checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `LHBACKUP` |
//! | 4 | format version, 1 |
//! | 4 | zero |
//! | 8 | the cluster |
//! | 4 | its incarnation |
//! | 4 | zero |
//! | 8 | the journal position: the last batch in it |
//! | 8 | the highest token number issued |
//! | 8 | the time of the backup, in milliseconds since 1970 |
//! | 8 | the number of audit entries |
//! | 32 | the hash of the last audit entry |
//! | 8 | the length of the snapshot |
//! | … | the snapshot |
//! | 32 | SHA-256 of all bytes before |
//!
//! Numbers are little-endian. The core defines the format of the snapshot.

mod restore;

use std::fmt;
use std::sync::Arc;

use futures::Stream;
use leasehold_core::time::WallClock;
use leasehold_core::token::{Cluster, Incarnation};
use sha2::{Digest, Sha256};

use crate::snapshotter::StateSnapshot;

pub use restore::{RestoreError, RestoreOptions, RestoreSummary, restore, restore_onto};

/// The format version that is written, and the newest that is read.
pub const VERSION: u32 = 1;
/// Length of the header.
pub const HEADER_BYTES: usize = 104;
/// Length of the digest at the end.
const DIGEST_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"LHBACKUP";
/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Header of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// The cluster.
    pub cluster: Cluster,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The last batch in it.
    pub position: u64,
    /// Highest token number issued.
    pub counter: u64,
    /// Time of the backup.
    pub wall: WallClock,
    /// Number of audit entries and the hash of the last one.
    pub audit: (u64, [u8; 32]),
    /// Length of the snapshot.
    pub length: u64,
}

impl BackupHeader {
    /// The header of a snapshot that is taken at `wall`.
    pub fn of(snapshot: &StateSnapshot, wall: WallClock) -> Self {
        Self {
            cluster: snapshot.about.cluster,
            incarnation: snapshot.about.incarnation,
            position: snapshot.sequence,
            counter: snapshot.about.counter,
            wall: wall.max(snapshot.about.wall),
            audit: snapshot.audit,
            length: snapshot.bytes.len() as u64,
        }
    }

    /// Length of the whole backup.
    pub fn total(&self) -> u64 {
        self.length.saturating_add((HEADER_BYTES + DIGEST_BYTES) as u64)
    }

    /// Encodes it.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.cluster.0);
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for number in [self.position, self.counter, self.wall.0, self.audit.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.audit.1);
        out.extend_from_slice(&self.length.to_le_bytes());
        out.try_into().expect("the fields add up to the header")
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        Self {
            cluster: Cluster(*bytes[16..].first_chunk().expect("inside the header")),
            incarnation: Incarnation(u32::from_le_bytes(*bytes[24..].first_chunk().expect("inside the header"))),
            position: eight(32),
            counter: eight(40),
            wall: WallClock(eight(48)),
            audit: (eight(56), *bytes[64..].first_chunk().expect("inside the header")),
            length: eight(96),
        }
    }
}

/// A backup whose checksum was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup<'a> {
    /// Its header.
    pub header: BackupHeader,
    /// The encoded state.
    pub snapshot: &'a [u8],
}

/// The bytes are not a valid backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupFormatError {
    /// Damaged.
    Corrupt {
        /// Offset of the damage.
        offset: u64,
        /// The damage.
        reason: &'static str,
    },
    /// Written in a newer format version.
    Newer(u32),
}

impl fmt::Display for BackupFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { offset, reason } => write!(f, "at byte {offset}: {reason}; use another backup"),
            Self::Newer(have) => {
                write!(f, "format version {have} is newer than {VERSION}; use a newer version of leasehold")
            }
        }
    }
}

impl std::error::Error for BackupFormatError {}

/// Decodes a backup and verifies all of it. Nothing is allocated, whatever its header claims.
pub fn decode(bytes: &[u8]) -> Result<Backup<'_>, BackupFormatError> {
    let corrupt = |offset: usize, reason| BackupFormatError::Corrupt { offset: offset as u64, reason };
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(corrupt(bytes.len(), "truncated header"));
    };
    if head[..8] != MAGIC {
        return Err(corrupt(0, "not a Leasehold backup"));
    }
    match u32::from_le_bytes(*head[8..].first_chunk().expect("inside the header")) {
        VERSION => {}
        0 => return Err(corrupt(8, "format version 0 does not exist")),
        newer => return Err(BackupFormatError::Newer(newer)),
    }
    let header = BackupHeader::decode(head);
    if bytes.len() as u64 != header.total() {
        let reason = if (bytes.len() as u64) < header.total() { "truncated" } else { "bytes after the end" };
        return Err(corrupt(bytes.len(), reason));
    }
    let (snapshot, digest) = rest.split_last_chunk::<DIGEST_BYTES>().ok_or(corrupt(HEADER_BYTES, "truncated"))?;
    if Sha256::digest(&bytes[..bytes.len() - DIGEST_BYTES])[..] != digest[..] {
        return Err(corrupt(bytes.len() - DIGEST_BYTES, "wrong checksum"));
    }
    Ok(Backup { header, snapshot })
}

/// The chunks of a backup, in order.
pub struct BackupChunks {
    snapshot: Arc<StateSnapshot>,
    header: BackupHeader,
    digest: Sha256,
    next: ChunkPosition,
}

#[derive(Clone, Copy)]
enum ChunkPosition {
    Header,
    Snapshot(usize),
    Done,
}

impl BackupChunks {
    /// The backup of a snapshot that is taken at `wall`.
    pub fn of(snapshot: Arc<StateSnapshot>, wall: WallClock) -> Self {
        let header = BackupHeader::of(&snapshot, wall);
        Self { snapshot, header, digest: Sha256::new(), next: ChunkPosition::Header }
    }

    /// Its header.
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The chunks as a stream, which holds `guard` until it ends.
    pub fn stream<G: Send>(self, guard: G) -> impl Stream<Item = Vec<u8>> + Send + use<G> {
        futures::stream::unfold((self, guard), |(mut chunks, guard)| async move {
            chunks.next().map(|chunk| (chunk, (chunks, guard)))
        })
    }
}

impl Iterator for BackupChunks {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let chunk = match self.next {
            ChunkPosition::Header => {
                self.next = ChunkPosition::Snapshot(0);
                self.header.encode().to_vec()
            }
            ChunkPosition::Snapshot(from) if from < self.snapshot.bytes.len() => {
                let to = self.snapshot.bytes.len().min(from + CHUNK_BYTES);
                self.next = ChunkPosition::Snapshot(to);
                self.snapshot.bytes[from..to].to_vec()
            }
            ChunkPosition::Snapshot(_) => {
                self.next = ChunkPosition::Done;
                return Some(self.digest.finalize_reset().to_vec());
            }
            ChunkPosition::Done => return None,
        };
        self.digest.update(&chunk);
        Some(chunk)
    }
}
