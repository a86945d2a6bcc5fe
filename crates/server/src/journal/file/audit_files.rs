//! Files of the audit log, in the journal's directory and under its lock.

use std::io;
use std::sync::OnceLock;

use super::disk::Disk;
use super::names;
use super::preallocate::remove_if_exists;
use crate::journal::error::is_full;
use crate::journal::{AppendOutcome, AuditFiles, JournalError, ReadError};

/// Bytes of stored heads that are read; a longer file was not written by a server.
const MAX_HEADS_BYTES: u64 = 4 << 20;

/// Files of an audit log on a disk, for a file journal or a journal in etcd.
pub(in crate::journal) struct DiskAuditFiles<'a, D> {
    pub disk: &'a D,
    /// Set after a failed sync; every write fails then (V3).
    pub failed: &'a OnceLock<String>,
}

impl<D: Disk> DiskAuditFiles<'_, D> {
    fn check_failed(&self) -> Result<(), JournalError> {
        self.failed.get().map_or(Ok(()), |reason| Err(JournalError::Failed { reason: reason.clone() }))
    }

    fn fail(&self, name: &str, error: &io::Error) -> JournalError {
        let reason = format!("{}: {error}", self.disk.path(name).display());
        JournalError::Failed { reason: self.failed.get_or_init(|| reason).clone() }
    }

    fn write_error(&self, name: &str, error: &io::Error) -> JournalError {
        if is_full(error) { JournalError::Full } else { self.fail(name, error) }
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> ReadError {
        ReadError::Unreadable { reason: format!("{}: {error}", self.disk.path(name).display()) }
    }
}

impl<D: Disk> AuditFiles for DiskAuditFiles<'_, D> {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        let disk = self.disk;
        let mut files = Vec::new();
        for name in disk.names().map_err(|error| self.unreadable("", &error))? {
            if let names::FileKind::Audit(number) = names::kind(&name) {
                match disk.open(&name).and_then(|file| disk.len(&file)) {
                    Ok(length) => files.push((number, length)),
                    // It was removed concurrently.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(self.unreadable(&name, &error)),
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        let (disk, name) = (self.disk, names::audit(number));
        let read = disk.open(&name).and_then(|file| disk.read(&file, at, into));
        read.map_err(|error| self.unreadable(&name, &error))
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.check_failed()?;
        let name = names::audit(number);
        let failed_write = |error: io::Error| self.write_error(&name, &error);
        remove_if_exists(self.disk, &name).map_err(failed_write)?;
        let file = self.disk.create(&name).map_err(failed_write)?;
        self.disk.write(&file, 0, bytes).map_err(failed_write)?;
        let failed = |error: io::Error| self.fail(&name, &error);
        self.disk.sync(&file).map_err(failed)?;
        self.disk.sync_names().map_err(failed)?;
        Ok(AppendOutcome::Durable)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.check_failed()?;
        let name = names::audit(number);
        let written = self.disk.open(&name).and_then(|file| self.disk.write(&file, at, bytes));
        written.map_err(|error| self.write_error(&name, &error))?;
        Ok(AppendOutcome::Durable)
    }

    fn sync(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.check_failed()?;
        let name = names::audit(number);
        let synced = self.disk.open(&name).and_then(|file| self.disk.sync(&file));
        synced.map_err(|error| self.fail(&name, &error))?;
        Ok(AppendOutcome::Durable)
    }

    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.check_failed()?;
        let name = names::audit(number);
        remove_if_exists(self.disk, &name).map_err(|error| self.write_error(&name, &error))?;
        self.disk.sync_names().map_err(|error| self.fail(&name, &error))?;
        Ok(AppendOutcome::Durable)
    }

    fn label(&self, number: u64) -> String {
        self.disk.path(&names::audit(number)).display().to_string()
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        let disk = self.disk;
        let file = match disk.open(names::HEADS) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unreadable(names::HEADS, &error)),
        };
        let read = || {
            let mut bytes = vec![0; usize::try_from(disk.len(&file)?.min(MAX_HEADS_BYTES)).unwrap_or(0)];
            let got = disk.read(&file, 0, &mut bytes)?;
            bytes.truncate(got);
            Ok(bytes)
        };
        read().map_err(|error| self.unreadable(names::HEADS, &error))
    }

    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.check_failed()?;
        let draft = names::draft(names::HEADS);
        let failed_write = |error: io::Error| self.write_error(&draft, &error);
        remove_if_exists(self.disk, &draft).map_err(failed_write)?;
        let file = self.disk.create(&draft).map_err(failed_write)?;
        self.disk.write(&file, 0, bytes).map_err(failed_write)?;
        let failed = |error: io::Error| self.fail(names::HEADS, &error);
        self.disk.sync(&file).map_err(failed)?;
        self.disk.rename(&draft, names::HEADS).map_err(failed_write)?;
        self.disk.sync_names().map_err(failed)?;
        Ok(AppendOutcome::Durable)
    }

    fn max_bytes(&self) -> u64 {
        u64::MAX
    }
}
