//! Snapshots of a file journal: saving, trimming and reading, from any thread, concurrently with appends.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::audit_files::DiskAuditFiles;
use super::disk::Disk;
use super::preallocate::{SYNC_BYTES, remove_if_exists};
use super::recover::read_all;
use super::{JournalShared, frame, header, names};
use crate::journal::{AppendOutcome, AuditFiles, BatchVisitor, FIRST, JournalError, ReadError, SnapshotStore};

/// Snapshots that are retained. If the newest is damaged, the previous one and the log since it replace it.
const RETAINED: usize = 2;

/// Snapshots of a file journal. The directory stays locked as long as one exists.
#[derive(Debug)]
pub struct FileSnapshotStore<D: Disk> {
    shared: Arc<JournalShared<D>>,
}

impl<D: Disk> Clone for FileSnapshotStore<D> {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl<D: Disk> FileSnapshotStore<D> {
    pub(super) fn new(shared: &Arc<JournalShared<D>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    pub(super) fn audit_files(&self) -> DiskAuditFiles<'_, D> {
        DiskAuditFiles { disk: &self.shared.disk, failed: &self.shared.failed }
    }

    fn save_now(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        let shared = &*self.shared;
        shared.check_failed()?;
        assert!(sequence < shared.durable.load(Ordering::Acquire), "a snapshot covers only durable batches");
        let mut snapshots = shared.snapshots.lock().expect("no panic under this lock");
        if snapshots.last().is_some_and(|newest| *newest >= sequence) {
            return Ok(AppendOutcome::Durable);
        }
        let (name, draft) = (names::snapshot(sequence), names::draft(&names::snapshot(sequence)));
        let write_error = |error: io::Error| shared.write_error(&draft, &error);
        let failed = |error: io::Error| shared.fail(&name, &error);
        remove_if_exists(&shared.disk, &draft).map_err(write_error)?;
        self.write(&draft, sequence, snapshot).inspect_err(|_| {
            // An incomplete file only takes space; if this fails, the next open removes it.
            shared.disk.remove(&draft).ok();
        })?;
        shared.disk.rename(&draft, &name).map_err(write_error)?;
        shared.disk.sync_names().map_err(failed)?;
        snapshots.push(sequence);
        let old = snapshots.len().saturating_sub(RETAINED);
        snapshots.drain(..old);
        for other in shared.disk.names().map_err(failed)? {
            if matches!(names::kind(&other), names::FileKind::Snapshot(at) if !snapshots.contains(&at)) {
                remove_if_exists(&shared.disk, &other).map_err(failed)?;
            }
        }
        Ok(AppendOutcome::Durable)
    }

    fn write(&self, draft: &str, sequence: u64, snapshot: &[u8]) -> Result<(), JournalError> {
        let shared = &*self.shared;
        let write_error = |error: io::Error| shared.write_error(draft, &error);
        let file = shared.disk.create(draft).map_err(write_error)?;
        let header = header::SnapshotHeader::encode(shared.journal, sequence, snapshot);
        shared.disk.write(&file, 0, &header).map_err(write_error)?;
        let sync = || shared.disk.sync(&file).map_err(|error| shared.fail(draft, &error));
        let mut at = header.len() as u64;
        for (number, chunk) in snapshot.chunks(SYNC_BYTES).enumerate() {
            if number > 0 {
                sync()?;
            }
            shared.disk.write(&file, at, chunk).map_err(write_error)?;
            at += chunk.len() as u64;
        }
        sync()
    }

    /// Retains the log since the older of two snapshots, in case the newer one is damaged.
    fn trim_now(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        let shared = &*self.shared;
        shared.check_failed()?;
        let older = {
            let snapshots = shared.snapshots.lock().expect("no panic under this lock");
            snapshots.len().checked_sub(RETAINED).map(|at| snapshots[at])
        };
        let Some(covered) = older.map(|older| older.min(up_to)) else { return Ok(AppendOutcome::Durable) };
        loop {
            let first = {
                let mut segments = shared.segments.lock().expect("no panic under this lock");
                match segments[..] {
                    [_, (_, next), ..] if next <= covered.saturating_add(1) => segments.remove(0).0,
                    _ => return Ok(AppendOutcome::Durable),
                }
            };
            let name = names::segment(first);
            remove_if_exists(&shared.disk, &name).map_err(|error| shared.write_error(&name, &error))?;
            // One by one: otherwise a crash could remove a later segment and leave an earlier one.
            shared.disk.sync_names().map_err(|error| shared.fail(&name, &error))?;
        }
    }

    /// The newest readable snapshot. A damaged one is skipped if the log replaces it.
    fn newest_now(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        let log_starts = self.shared.segments.lock().expect("no panic under this lock")[0].1;
        let mut snapshots = self.shared.snapshots.lock().expect("no panic under this lock");
        while let Some(&sequence) = snapshots.last() {
            match self.read_snapshot(sequence) {
                Ok(bytes) => return Ok(Some((sequence, bytes))),
                Err(error) => {
                    let previous = snapshots.len().checked_sub(2).map_or(FIRST - 1, |at| snapshots[at]);
                    if log_starts > previous + 1 {
                        return Err(error);
                    }
                    snapshots.pop();
                }
            }
        }
        Ok(None)
    }

    fn read_snapshot(&self, sequence: u64) -> Result<Vec<u8>, ReadError> {
        let shared = &*self.shared;
        let name = names::snapshot(sequence);
        let file = shared.disk.open(&name).map_err(|error| self.unreadable(&name, &error))?;
        let mut bytes = Vec::new();
        read_all(&shared.disk, &file, u64::MAX, &mut bytes).map_err(|error| self.unreadable(&name, &error))?;
        if header::SnapshotHeader::decode(&bytes).is_err() {
            return Err(self.unreadable(&name, &io::Error::other("damaged snapshot")));
        }
        bytes.drain(..header::BYTES);
        Ok(bytes)
    }

    fn tail_now(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        let shared = &*self.shared;
        let durable = shared.durable.load(Ordering::Acquire);
        let segments = shared.segments.lock().expect("no panic under this lock").clone();
        if from < segments[0].1 {
            return Err(ReadError::Trimmed { first: segments[0].1 });
        }
        let mut bytes = Vec::new();
        for (at, &(number, first)) in segments.iter().enumerate() {
            let over = segments.get(at + 1).map_or(durable, |next| next.1).min(durable);
            if over <= from || first >= over {
                continue;
            }
            let name = names::segment(number);
            let file = match shared.disk.open(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let segments = shared.segments.lock().expect("no panic under this lock");
                    return Err(ReadError::Trimmed { first: segments[0].1 });
                }
                opened => opened.map_err(|error| self.unreadable(&name, &error))?,
            };
            read_all(&shared.disk, &file, u64::MAX, &mut bytes).map_err(|error| self.unreadable(&name, &error))?;
            let damaged = |offset: usize| {
                let error = io::Error::other(format!("damaged at byte {offset}"));
                self.unreadable(&name, &error)
            };
            let (_, salt) = header::SegmentHeader::decode(&bytes).map_err(|_| damaged(0))?;
            let mut offset = header::BYTES;
            for expected in first..over {
                let frame::FrameScan::Batch { sequence, bytes, end } = frame::read(salt, &bytes, offset) else {
                    return Err(damaged(offset));
                };
                if sequence != expected {
                    return Err(damaged(offset));
                }
                if sequence >= from && each(sequence, bytes) == ControlFlow::Break(()) {
                    return Ok(sequence + 1);
                }
                offset = end;
            }
        }
        Ok(durable.max(from))
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> ReadError {
        ReadError::Unreadable { reason: format!("{}: {error}", self.shared.disk.path(name).display()) }
    }
}

impl<D: Disk> SnapshotStore for FileSnapshotStore<D> {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.save_now(sequence, snapshot)
    }

    async fn trim(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        self.trim_now(up_to)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        self.newest_now()
    }

    async fn tail(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        self.tail_now(from, each)
    }
}

impl<D: Disk> AuditFiles for FileSnapshotStore<D> {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        self.audit_files().files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        self.audit_files().read(number, at, into)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.audit_files().create(number, bytes)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.audit_files().write(number, at, bytes)
    }

    fn sync(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.audit_files().sync(number)
    }

    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.audit_files().remove(number)
    }

    fn label(&self, number: u64) -> String {
        self.audit_files().label(number)
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        self.audit_files().heads()
    }

    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.audit_files().put_heads(bytes)
    }

    fn max_bytes(&self) -> u64 {
        self.audit_files().max_bytes()
    }
}
