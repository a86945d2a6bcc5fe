//! Which journal this is, who opened it last, and where: what fences earlier writers and tells a copy.
//!
//! One file with two places, a page apart. Every open writes the older place and leaves the newer one whole, so that a
//! torn write loses nothing, and so that a full disk can still be opened: nothing is allocated.

use std::io;

use super::disk::{Disk, MACHINE_BYTES, Whereabouts};
use super::header::{JournalId, Unfit, VERSION};
use super::names;

const MAGIC: [u8; 8] = *b"LHJOURNL";
const STRIDE: u64 = 4_096;
const BYTES: usize = 8 + 4 + 4 + 16 + 5 * 8 + MACHINE_BYTES + 4;
const CHECK: usize = BYTES - 4;

/// What an open leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The journal.
    pub journal: JournalId,
    /// The writer.
    pub generation: u64,
    /// The segment that was last when it opened.
    pub segment: u64,
    /// The sequence that came next when it opened: what is before it had been read back, and must be there again.
    pub next: u64,
    /// Where it was opened.
    pub whereabouts: Whereabouts,
}

/// Why there is no identity to be had.
#[derive(Debug)]
pub enum NoIdentity {
    /// The file could not be read.
    Io(io::Error),
    /// It is not what was written.
    Unfit(Unfit),
}

impl Identity {
    /// The newest identity on the disk, and a generation above all that were ever given out.
    pub fn read<D: Disk>(disk: &D) -> Result<(Self, u64), NoIdentity> {
        let file = disk.open(names::IDENTITY).map_err(NoIdentity::Io)?;
        let mut newest: Option<Self> = None;
        let mut unfit = None;
        for place in [0, STRIDE] {
            let mut bytes = [0; BYTES];
            let got = disk.read(&file, place, &mut bytes).map_err(NoIdentity::Io)?;
            match Self::decode(&bytes[..got]) {
                _ if bytes == [0; BYTES] => {}
                Ok(identity) if newest.as_ref().is_none_or(|other| other.generation < identity.generation) => {
                    newest = Some(identity);
                }
                Ok(_) => {}
                Err(newer @ Unfit::Newer(_)) => return Err(NoIdentity::Unfit(newer)),
                Err(why) => unfit = Some(why),
            }
        }
        match (newest, unfit) {
            // The damaged one may have been the newer: one generation is left out, and its place written next.
            (Some(newest), Some(_)) => Ok((newest.clone(), newest.generation + 3)),
            (Some(newest), None) => Ok((newest.clone(), newest.generation + 1)),
            (None, why) => Err(NoIdentity::Unfit(why.unwrap_or(Unfit::Corrupt("the file is empty")))),
        }
    }

    /// Writes the identity of a journal that had none.
    pub fn create<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let draft = names::draft(names::IDENTITY);
        let file = disk.create(&draft)?;
        let mut bytes = vec![0; 2 * STRIDE as usize];
        let place = self.place() as usize;
        bytes[place..place + BYTES].copy_from_slice(&self.encode());
        disk.write(&file, 0, &bytes)?;
        disk.sync(&file)?;
        disk.rename(&draft, names::IDENTITY)?;
        disk.sync_names()
    }

    /// Writes the identity over the one before the last.
    pub fn replace<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let file = disk.open(names::IDENTITY)?;
        disk.write(&file, self.place(), &self.encode())?;
        disk.sync(&file)
    }

    fn place(&self) -> u64 {
        self.generation % 2 * STRIDE
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.journal);
        let Whereabouts { device, inode, machine } = &self.whereabouts;
        let numbers = [self.generation, self.segment, self.next, *device, *inode];
        for (at, number) in (32..).step_by(8).zip(numbers) {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let machine = machine.as_bytes();
        out[72..72 + machine.len()].copy_from_slice(machine);
        let check = crc32fast::hash(&out[..CHECK]);
        out[CHECK..].copy_from_slice(&check.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Unfit> {
        let bytes = bytes.first_chunk::<BYTES>().ok_or(Unfit::Corrupt("the file is cut short"))?;
        if bytes[..8] != MAGIC {
            return Err(Unfit::Corrupt("the magic bytes are wrong"));
        }
        let four = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside the identity"));
        let eight = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the identity"));
        match four(8) {
            VERSION => {}
            0 => return Err(Unfit::Corrupt("there is no format version 0")),
            newer => return Err(Unfit::Newer(newer)),
        }
        if four(CHECK) != crc32fast::hash(&bytes[..CHECK]) {
            return Err(Unfit::Corrupt("its checksum is wrong"));
        }
        let machine = &bytes[72..72 + MACHINE_BYTES];
        let machine = machine.split(|byte| *byte == 0).next().unwrap_or_default();
        let machine =
            String::from_utf8(machine.to_vec()).map_err(|_| Unfit::Corrupt("the machine's name is no text"))?;
        Ok(Self {
            journal: *bytes[16..].first_chunk().expect("inside the identity"),
            generation: eight(32),
            segment: eight(40),
            next: eight(48),
            whereabouts: Whereabouts { device: eight(56), inode: eight(64), machine },
        })
    }
}
