//! The identity file: id of the journal, generation of the last writer, and its host, to fence earlier writers and detect copies.
//!
//! The file has two slots, one page apart. Every open overwrites the older slot, so that a torn write loses nothing, and so that a
//! journal on a full disk can be opened: nothing is allocated. A clean stop overwrites its own slot with the end of the log, and so does a
//! writer that finds its files lost or changed; if that write is torn, the older slot is left, which only checks less.

use std::io;

use super::disk::{Disk, HostIdentity, MACHINE_BYTES};
use super::header::{FileHeaderError, JournalId, VERSION};
use super::names;

const MAGIC: [u8; 8] = *b"LHJOURNL";
const STRIDE: u64 = 4_096;
const BYTES: usize = 8 + 4 + 4 + 16 + 5 * 8 + MACHINE_BYTES + 4;
const CHECKSUM_AT: usize = BYTES - 4;

/// Content of the identity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalIdentity {
    /// Id of the journal.
    pub journal: JournalId,
    /// Generation of the writer.
    pub generation: u64,
    /// The last segment when it opened, was closed or failed.
    pub segment: u64,
    /// The next sequence when it opened, was closed or failed; every earlier batch was readable then and must be readable now.
    pub next: u64,
    /// The host that opened it.
    pub host: HostIdentity,
}

/// The identity cannot be read.
#[derive(Debug)]
pub enum IdentityError {
    /// The read failed.
    Io(io::Error),
    /// The content at an offset is invalid.
    Header(u64, FileHeaderError),
}

impl JournalIdentity {
    /// The newest identity, and a generation above every one that was used.
    pub fn read<D: Disk>(disk: &D) -> Result<(Self, u64), IdentityError> {
        let file = disk.open(names::IDENTITY).map_err(IdentityError::Io)?;
        let mut newest: Option<Self> = None;
        let mut invalid = None;
        for slot in [0, STRIDE] {
            let mut bytes = [0; BYTES];
            let got = disk.read(&file, slot, &mut bytes).map_err(IdentityError::Io)?;
            match Self::decode(&bytes[..got]) {
                _ if bytes == [0; BYTES] => {}
                Ok(identity) if newest.as_ref().is_none_or(|other| other.generation < identity.generation) => {
                    newest = Some(identity);
                }
                Ok(_) => {}
                Err(newer @ FileHeaderError::Newer(_)) => return Err(IdentityError::Header(slot, newer)),
                Err(error) => invalid = Some((slot, error)),
            }
        }
        match (newest, invalid) {
            // The damaged slot may have been the newer one: skip its generation, and overwrite it next.
            (Some(newest), Some(_)) => Ok((newest.clone(), newest.generation + 3)),
            (Some(newest), None) => Ok((newest.clone(), newest.generation + 1)),
            (None, Some((slot, error))) => Err(IdentityError::Header(slot, error)),
            (None, None) => Err(IdentityError::Header(0, FileHeaderError::Corrupt("empty file"))),
        }
    }

    /// Writes the identity of a new journal.
    pub fn create<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let draft = names::draft(names::IDENTITY);
        let file = disk.create(&draft)?;
        let mut bytes = vec![0; 2 * STRIDE as usize];
        let slot = self.slot() as usize;
        bytes[slot..slot + BYTES].copy_from_slice(&self.encode());
        disk.write(&file, 0, &bytes)?;
        disk.sync(&file)?;
        disk.rename(&draft, names::IDENTITY)?;
        disk.sync_names()
    }

    /// Whether the open identity file contains it.
    pub fn is_stored<D: Disk>(&self, disk: &D, file: &D::File) -> io::Result<bool> {
        let mut bytes = [0; BYTES];
        let got = disk.read(file, self.slot(), &mut bytes)?;
        Ok(got == BYTES && bytes == self.encode())
    }

    /// Overwrites the slot of its generation: the older one at an open, its own at a clean stop or when the log is found damaged.
    pub fn replace<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let file = disk.open(names::IDENTITY)?;
        disk.write(&file, self.slot(), &self.encode())?;
        disk.sync(&file)
    }

    fn slot(&self) -> u64 {
        self.generation % 2 * STRIDE
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.journal);
        let HostIdentity { device, inode, machine } = &self.host;
        let numbers = [self.generation, self.segment, self.next, *device, *inode];
        for (at, number) in (32..).step_by(8).zip(numbers) {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let machine = machine.as_bytes();
        out[72..72 + machine.len()].copy_from_slice(machine);
        let check = crc32fast::hash(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&check.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, FileHeaderError> {
        let bytes = bytes.first_chunk::<BYTES>().ok_or(FileHeaderError::Corrupt("truncated file"))?;
        if bytes[..8] != MAGIC {
            return Err(FileHeaderError::Corrupt("wrong magic bytes"));
        }
        let four = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside the identity"));
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the identity"));
        match four(8) {
            VERSION => {}
            0 => return Err(FileHeaderError::Corrupt("format version 0 does not exist")),
            newer => return Err(FileHeaderError::Newer(newer)),
        }
        if four(CHECKSUM_AT) != crc32fast::hash(&bytes[..CHECKSUM_AT]) {
            return Err(FileHeaderError::Corrupt("wrong checksum"));
        }
        let machine = &bytes[72..72 + MACHINE_BYTES];
        let machine = machine.split(|byte| *byte == 0).next().unwrap_or_default();
        let machine =
            String::from_utf8(machine.to_vec()).map_err(|_| FileHeaderError::Corrupt("the machine id is not text"))?;
        Ok(Self {
            journal: *bytes[16..].first_chunk().expect("inside the identity"),
            generation: eight(32),
            segment: eight(40),
            next: eight(48),
            host: HostIdentity { device: eight(56), inode: eight(64), machine },
        })
    }
}
