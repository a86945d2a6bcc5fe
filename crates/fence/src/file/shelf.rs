//! One log's file: opened whole or refused, locked for a step, and read entry by entry.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::limits::LOG_ENTRY_BYTES;
use rustix::fs::{FlockOperation, flock, fstatfs};
use rustix::io::Errno;

use super::format::{self, HEAD, HEADER, Head, Header, NoHeader};
use crate::place::Place;
use crate::{Error, Lost, Refusal, blocker};

/// Filesystems where a lock may not lock and a sync may not sync.
const NETWORK: [u64; 10] = [
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB2
    0x0102_1997, // 9P
    0x6573_5546, // FUSE
    0x5346_414F, // AFS
    0x00C3_6400, // Ceph
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
];
/// How long one who wants the lock sleeps between two tries.
pub(super) const BETWEEN: Duration = Duration::from_millis(2);
/// How far beyond a gap an index is still believed to be of this log: a bound for the search, not for the log.
const AHEAD: u64 = 1 << 20;

/// An open log.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) salt: u64,
}

/// What lies at a place of the file.
#[derive(Debug)]
pub(super) enum Found {
    /// A whole entry, its payload, and where the next begins.
    Entry(Head, Vec<u8>, u64),
    /// The end, or what a crash left of an append that was never acknowledged: nothing whole follows.
    End,
}

impl Shelf {
    pub(super) fn open(path: &Path, place: &Place) -> Result<Self, Error> {
        let (shelf, header) = Self::any(path)?;
        if !header.guards(&place.guarded) {
            return Err(Refusal::ForeignMark.into());
        }
        Ok(shelf)
    }

    /// A log, whosever it is.
    pub(super) fn any(path: &Path) -> Result<(Self, Header), Error> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Refusal::Lost(Lost::Missing).into());
            }
            opened => opened?,
        };
        local(&file)?;
        let mut bytes = [0; HEADER];
        let whole = file.metadata()?.len() >= bytes.len() as u64;
        if whole {
            file.read_exact_at(&mut bytes, 0)?;
        }
        let corrupt = |reason| Error::Corrupt { file: path.to_owned(), offset: 0, reason };
        let header = Header::decode(&bytes).map_err(|why| match why {
            NoHeader::Shape => Refusal::Lost(Lost::Unreadable).into(),
            NoHeader::Version(have) => Error::Version { have: have.into(), want: format::VERSION.into() },
            NoHeader::Checksum => corrupt("the header's checksum does not fit"),
        })?;
        Ok((Self { path: path.to_owned(), file, salt: header.salt }, header))
    }

    /// The kernel's lock on this log, until the guard is dropped.
    pub(super) fn lock(&self, how: Hold, patience: Duration) -> Result<Locked<'_>, Error> {
        let began = Instant::now();
        let operation = match how {
            Hold::Alone => FlockOperation::NonBlockingLockExclusive,
            Hold::Beside => FlockOperation::NonBlockingLockShared,
        };
        loop {
            match flock(&self.file, operation) {
                Ok(()) => return Ok(Locked(&self.file)),
                Err(Errno::WOULDBLOCK) if began.elapsed() < patience => thread::sleep(BETWEEN),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Blocked { waited: began.elapsed(), by: blocker::holders(&[&self.path]) });
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    /// Which file this is, and whether the path still leads to it.
    pub(super) fn inode(&self) -> Result<u64, Error> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => Ok(own.ino()),
            Ok(_) => Err(Refusal::Lost(Lost::Moved).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Lost(Lost::Missing).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// What lies at `offset`, where the entry with this index must begin. Call it with the lock held.
    pub(super) fn at(&self, offset: u64, index: u64) -> Result<Found, Error> {
        let end = self.file.metadata()?.len();
        if end < offset {
            return Err(self.corrupt(end, "the file is shorter than what was kept in it"));
        }
        if let Some((head, bytes)) = self.whole(offset, end, index)? {
            let next = offset + bytes.len() as u64;
            return Ok(Found::Entry(head, bytes[HEAD..].to_vec(), next));
        }
        self.nothing_follows(offset, end, index)?;
        Ok(Found::End)
    }

    fn whole(&self, offset: u64, end: u64, index: u64) -> Result<Option<(Head, Vec<u8>)>, Error> {
        if end - offset < HEAD as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; HEAD];
        self.file.read_exact_at(&mut bytes, offset)?;
        let Some(length) = format::length(&bytes, index).filter(|length| *length as u64 <= end - offset) else {
            return Ok(None);
        };
        bytes.resize(length, 0);
        self.file.read_exact_at(&mut bytes[HEAD..], offset + HEAD as u64)?;
        Ok(format::decode(self.salt, &bytes).map(|head| (head, bytes)))
    }

    /// Each append is synced before the next begins. So what is not whole and has something whole behind it, or is longer
    /// than one entry, was whole once: damage, and not a tail to be cut.
    fn nothing_follows(&self, offset: u64, end: u64, index: u64) -> Result<(), Error> {
        let left = end - offset;
        if left > (HEAD + LOG_ENTRY_BYTES) as u64 {
            return Err(self.corrupt(offset, "more is behind it than one append can leave"));
        }
        let mut rest = vec![0; usize::try_from(left).expect("it was just compared with the limit")];
        self.file.read_exact_at(&mut rest, offset)?;
        for from in 1..rest.len().saturating_sub(HEAD - 1) {
            let bytes = &rest[from..];
            let shown = u64::from_le_bytes(std::array::from_fn(|i| bytes[9 + i]));
            if shown <= index || shown - index > AHEAD {
                continue;
            }
            let length = format::length(bytes, shown).filter(|length| *length <= bytes.len());
            if length.and_then(|length| format::decode(self.salt, &bytes[..length])).is_some() {
                return Err(self.corrupt(offset, "it is not whole, and a whole entry follows"));
            }
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, offset: u64, reason: &'static str) -> Error {
        Error::Corrupt { file: self.path.clone(), offset, reason }
    }
}

/// Makes a log's file with its first bytes, all or nothing: under another name, synced, then linked to its own.
pub(super) fn create(path: &Path, bytes: impl FnOnce(u64) -> Vec<u8>) -> Result<(), Error> {
    let folder = folder_of(path);
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}-{:08x}.new", std::process::id(), rand_u64()?));
    let draft = PathBuf::from(draft);
    let file = OpenOptions::new().write(true).create_new(true).open(&draft)?;
    let made = local(&file).and_then(|()| {
        file.write_all_at(&bytes(file.metadata()?.ino()), 0)?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::Conflict("there is a file of this name already; open it, or choose another name"))
            }
            linked => Ok(linked?),
        }
    });
    fs::remove_file(&draft)?;
    made?;
    Ok(File::open(folder)?.sync_all()?)
}

/// Where a file of this path is, or would be.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Eight bytes that nobody chose.
pub(super) fn rand_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(u64::from_le_bytes(bytes))
}

pub(super) fn local(file: &File) -> Result<(), Error> {
    let kind = fstatfs(file).map_err(io::Error::from)?.f_type as u64;
    if NETWORK.contains(&kind) {
        let have = format!("{kind:#x}, of the network");
        return Err(Error::NotDurable { setting: "the filesystem", have, want: "one of this machine" });
    }
    Ok(())
}

/// How a log is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// To append.
    Alone,
    /// To read what is complete.
    Beside,
}

/// The lock, as long as it lives.
#[derive(Debug)]
pub(super) struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It fails only for a descriptor that is not open.
        flock(self.0, FlockOperation::Unlock).ok();
    }
}
