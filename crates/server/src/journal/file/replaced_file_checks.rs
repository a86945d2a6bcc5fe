//! Checks that the open files are still those of the data directory, and undamaged where the journal wrote last.
//!
//! The files are opened once, so a write to a file that was deleted, moved or replaced succeeds, and so does one behind the end of a
//! truncated file. The checks are a few system calls per append, next to a sync; older segments and snapshots are checked at an open.

use std::io;

use super::disk::Disk;
use super::identity::JournalIdentity;
use super::{FileJournal, JournalError, frame, header, names};

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<D: Disk> FileJournal<D> {
    /// Fails permanently if the identity file or the active segment was lost, replaced or changed by another program, before what was
    /// appended to it is acknowledged.
    pub(super) fn check_files(&mut self) -> Result<(), JournalError> {
        let segment = names::segment(self.active.number);
        let lost = match (self.check_identity(), self.check_segment(&segment)) {
            (Ok(()), Ok(())) => return Ok(()),
            (_, Err(error)) => self.shared.fail(&segment, &error),
            (Err(error), Ok(())) => self.shared.fail(names::IDENTITY, &error),
        };
        self.record_end();
        Err(lost)
    }

    fn check_identity(&self) -> io::Result<()> {
        let disk = &self.shared.disk;
        disk.check_present(names::IDENTITY, &self.identity_file)?;
        match self.identity.is_stored(disk, &self.identity_file)? {
            true => Ok(()),
            false => Err(damaged("the file was changed by another program while it was in use")),
        }
    }

    /// The segment has its full length, which no append changes, and the header of its last durable batch.
    fn check_segment(&self, name: &str) -> io::Result<()> {
        let (disk, active) = (&self.shared.disk, &self.active);
        disk.check_present(name, &active.file)?;
        if disk.len(&active.file)? < active.end {
            return Err(damaged("the file was truncated while it was in use"));
        }
        if active.at == header::BYTES as u64 || self.last.is_empty() {
            return Ok(());
        }
        let mut head = [0; frame::HEAD];
        let got = disk.read(&active.file, active.at - self.last.len() as u64, &mut head)?;
        match self.last.starts_with(&head[..got]) && got == frame::HEAD {
            true => Ok(()),
            false => Err(damaged("the file was changed by another program while it was in use")),
        }
    }

    /// Records where the log ends, so that the next open refuses a shorter one (V2). If this fails, only that check is weaker.
    pub(super) fn record_end(&mut self) {
        let (segment, next) = (self.active.number, self.next);
        self.identity = JournalIdentity { segment, next, ..self.identity.clone() };
        let _ = self.identity.replace(&self.shared.disk);
    }
}
