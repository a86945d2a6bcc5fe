//! A backup: the whole state as of one durable position, in one file that proves itself.
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
//! | 8 | the highest token number given out |
//! | 8 | the wall clock when it was taken, in milliseconds since 1970 |
//! | 8 | how many entries the audit trail had |
//! | 32 | the hash of the last of them |
//! | 8 | the snapshot's length |
//! | … | the snapshot |
//! | 32 | SHA-256 of everything before |
//!
//! Numbers are little-endian. The snapshot's bytes are the core's.

mod restore;

use std::fmt;
use std::sync::Arc;

use futures::Stream;
use leasehold_core::time::Wall;
use leasehold_core::token::{Cluster, Incarnation};
use sha2::{Digest, Sha256};

use crate::keep::Taken;

pub use restore::{NotRestored, Restore, Restored, restore, restore_onto};

/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 1;
/// How long a header is.
pub const HEADER: usize = 104;
/// How long the digest at the end is.
const DIGEST: usize = 32;
const MAGIC: [u8; 8] = *b"LHBACKUP";
/// How much of a backup is sent at a time.
const CHUNK: usize = 256 << 10;

/// What a backup says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster.
    pub cluster: Cluster,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The last batch in it.
    pub position: u64,
    /// The highest token number given out.
    pub counter: u64,
    /// When it was taken.
    pub wall: Wall,
    /// How many entries the audit trail had, and the hash of the last.
    pub trail: (u64, [u8; 32]),
    /// The snapshot's length.
    pub length: u64,
}

impl Header {
    /// The header of a state, taken at this time.
    pub fn of(taken: &Taken, wall: Wall) -> Self {
        Self {
            cluster: taken.about.cluster,
            incarnation: taken.about.incarnation,
            position: taken.sequence,
            counter: taken.about.counter,
            wall: wall.max(taken.about.wall),
            trail: taken.trail,
            length: taken.snapshot.len() as u64,
        }
    }

    /// How long the whole backup is.
    pub fn total(&self) -> u64 {
        self.length.saturating_add((HEADER + DIGEST) as u64)
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.cluster.0);
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for number in [self.position, self.counter, self.wall.0, self.trail.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.trail.1);
        out.extend_from_slice(&self.length.to_le_bytes());
        out.try_into().expect("the parts of a header are as long as a header")
    }

    fn decode(bytes: &[u8; HEADER]) -> Self {
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        Self {
            cluster: Cluster(*bytes[16..].first_chunk().expect("inside the header")),
            incarnation: Incarnation(u32::from_le_bytes(*bytes[24..].first_chunk().expect("inside the header"))),
            position: eight(32),
            counter: eight(40),
            wall: Wall(eight(48)),
            trail: (eight(56), *bytes[64..].first_chunk().expect("inside the header")),
            length: eight(96),
        }
    }
}

/// A whole backup that proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup<'a> {
    /// What it says about itself.
    pub header: Header,
    /// The state.
    pub snapshot: &'a [u8],
}

/// Why bytes are not a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotABackup {
    /// Damaged, and where.
    Corrupt {
        /// At which byte.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// Of a newer version.
    Newer(u32),
}

impl fmt::Display for NotABackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { offset, why } => write!(f, "at byte {offset}: {why}; use another backup"),
            Self::Newer(have) => {
                write!(f, "format version {have}, and this program knows up to {VERSION}; use a newer one")
            }
        }
    }
}

impl std::error::Error for NotABackup {}

/// Reads a backup and checks all of it. Nothing is allocated, whatever its header claims.
pub fn read(bytes: &[u8]) -> Result<Backup<'_>, NotABackup> {
    let corrupt = |offset: usize, why| NotABackup::Corrupt { offset: offset as u64, why };
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(corrupt(bytes.len(), "the header is cut short"));
    };
    if head[..8] != MAGIC {
        return Err(corrupt(0, "not a backup of Leasehold"));
    }
    match u32::from_le_bytes(*head[8..].first_chunk().expect("inside the header")) {
        VERSION => {}
        0 => return Err(corrupt(8, "there is no format version 0")),
        newer => return Err(NotABackup::Newer(newer)),
    }
    let header = Header::decode(head);
    if bytes.len() as u64 != header.total() {
        let why = if (bytes.len() as u64) < header.total() { "it is cut short" } else { "bytes after the end" };
        return Err(corrupt(bytes.len(), why));
    }
    let (snapshot, digest) = rest.split_last_chunk::<DIGEST>().ok_or(corrupt(HEADER, "it is cut short"))?;
    if Sha256::digest(&bytes[..bytes.len() - DIGEST])[..] != digest[..] {
        return Err(corrupt(bytes.len() - DIGEST, "the checksum over all of it is wrong"));
    }
    Ok(Backup { header, snapshot })
}

/// A backup as it is sent, piece by piece.
pub struct Pieces {
    taken: Arc<Taken>,
    header: Header,
    digest: Sha256,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    Header,
    Snapshot(usize),
    Over,
}

impl Pieces {
    /// The backup of a state, taken now.
    pub fn of(taken: Arc<Taken>, wall: Wall) -> Self {
        let header = Header::of(&taken, wall);
        Self { taken, header, digest: Sha256::new(), at: At::Header }
    }

    /// What it says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The pieces as a stream; what must outlive it goes along.
    pub fn stream<K: Send>(self, kept: K) -> impl Stream<Item = Vec<u8>> + Send + use<K> {
        futures::stream::unfold((self, kept), |(mut pieces, kept)| async move {
            pieces.next().map(|piece| (piece, (pieces, kept)))
        })
    }
}

impl Iterator for Pieces {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let piece = match self.at {
            At::Header => {
                self.at = At::Snapshot(0);
                self.header.encode().to_vec()
            }
            At::Snapshot(from) if from < self.taken.snapshot.len() => {
                let to = self.taken.snapshot.len().min(from + CHUNK);
                self.at = At::Snapshot(to);
                self.taken.snapshot[from..to].to_vec()
            }
            At::Snapshot(_) => {
                self.at = At::Over;
                return Some(self.digest.finalize_reset().to_vec());
            }
            At::Over => return None,
        };
        self.digest.update(&piece);
        Some(piece)
    }
}
