//! Snapshots, trimming and reading, from any thread while appends go on.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disk::Disk;
use super::rack::Trail;
use super::recover::read_all;
use super::spare::{PACE, remove_if_there};
use super::{Shared, frame, header, names};
use crate::journal::{FIRST, Fault, Kept, Listener, NotTold, Shelf};

/// How many snapshots are kept: if the newest is damaged, the log since the one before tells the same.
const SNAPSHOTS: usize = 2;

/// The file journal's shelf. The directory stays locked as long as one is there.
#[derive(Debug)]
pub struct FileShelf<D: Disk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Clone for FileShelf<D> {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl<D: Disk> FileShelf<D> {
    pub(super) fn new(shared: &Arc<Shared<D>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    pub(super) fn trail(&self) -> Trail<'_, D> {
        Trail { disk: &self.shared.disk, failed: &self.shared.failed }
    }

    fn save_now(&self, sequence: u64, snapshot: &[u8]) -> Result<Kept, Fault> {
        let shared = &*self.shared;
        shared.unless_failed()?;
        assert!(sequence < shared.durable.load(Ordering::Acquire), "a snapshot is of batches that are durable");
        let mut snapshots = shared.snapshots.lock().expect("no panic under this lock");
        if snapshots.last().is_some_and(|newest| *newest >= sequence) {
            return Ok(Kept::Durable);
        }
        let (name, draft) = (names::snapshot(sequence), names::draft(&names::snapshot(sequence)));
        let told = |error: io::Error| shared.fault(&draft, &error);
        let failed = |error: io::Error| shared.fail(&name, &error);
        remove_if_there(&shared.disk, &draft).map_err(told)?;
        self.write(&draft, sequence, snapshot).inspect_err(|_| {
            // A draft is of no use and takes space; the next open removes it otherwise.
            shared.disk.remove(&draft).ok();
        })?;
        shared.disk.rename(&draft, &name).map_err(told)?;
        shared.disk.sync_names().map_err(failed)?;
        snapshots.push(sequence);
        let old = snapshots.len().saturating_sub(SNAPSHOTS);
        snapshots.drain(..old);
        for other in shared.disk.names().map_err(failed)? {
            if matches!(names::kind(&other), names::Kind::Snapshot(at) if !snapshots.contains(&at)) {
                remove_if_there(&shared.disk, &other).map_err(failed)?;
            }
        }
        Ok(Kept::Durable)
    }

    fn write(&self, draft: &str, sequence: u64, snapshot: &[u8]) -> Result<(), Fault> {
        let shared = &*self.shared;
        let told = |error: io::Error| shared.fault(draft, &error);
        let file = shared.disk.create(draft).map_err(told)?;
        let header = header::Snapshot::encode(shared.journal, sequence, snapshot);
        shared.disk.write(&file, 0, &header).map_err(told)?;
        let sync = || shared.disk.sync(&file).map_err(|error| shared.fail(draft, &error));
        let mut at = header.len() as u64;
        for (number, some) in snapshot.chunks(PACE).enumerate() {
            if number > 0 {
                sync()?;
            }
            shared.disk.write(&file, at, some).map_err(told)?;
            at += some.len() as u64;
        }
        sync()
    }

    /// Keeps the log since the older of two snapshots, so that the newer one may be damaged.
    fn trim_now(&self, up_to: u64) -> Result<Kept, Fault> {
        let shared = &*self.shared;
        shared.unless_failed()?;
        let older = {
            let snapshots = shared.snapshots.lock().expect("no panic under this lock");
            snapshots.len().checked_sub(SNAPSHOTS).map(|at| snapshots[at])
        };
        let Some(covered) = older.map(|older| older.min(up_to)) else { return Ok(Kept::Durable) };
        loop {
            let first = {
                let mut segments = shared.segments.lock().expect("no panic under this lock");
                match segments[..] {
                    [_, (_, next), ..] if next <= covered.saturating_add(1) => segments.remove(0).0,
                    _ => return Ok(Kept::Durable),
                }
            };
            let name = names::segment(first);
            remove_if_there(&shared.disk, &name).map_err(|error| shared.fault(&name, &error))?;
            // One by one: if a later name went and an earlier one stayed, a segment would be missing in the middle.
            shared.disk.sync_names().map_err(|error| shared.fail(&name, &error))?;
        }
    }

    /// The newest snapshot that can be read. One that was damaged since it was saved is given up if the log tells the same.
    fn newest_now(&self) -> Result<Option<(u64, Vec<u8>)>, NotTold> {
        let log_begins = self.shared.segments.lock().expect("no panic under this lock")[0].1;
        let mut snapshots = self.shared.snapshots.lock().expect("no panic under this lock");
        while let Some(&sequence) = snapshots.last() {
            match self.read_snapshot(sequence) {
                Ok(bytes) => return Ok(Some((sequence, bytes))),
                Err(why) => {
                    let before = snapshots.len().checked_sub(2).map_or(FIRST - 1, |at| snapshots[at]);
                    if log_begins > before + 1 {
                        return Err(why);
                    }
                    snapshots.pop();
                }
            }
        }
        Ok(None)
    }

    fn read_snapshot(&self, sequence: u64) -> Result<Vec<u8>, NotTold> {
        let shared = &*self.shared;
        let name = names::snapshot(sequence);
        let file = shared.disk.open(&name).map_err(|error| self.unreadable(&name, &error))?;
        let mut bytes = Vec::new();
        read_all(&shared.disk, &file, u64::MAX, &mut bytes).map_err(|error| self.unreadable(&name, &error))?;
        if header::Snapshot::decode(&bytes).is_err() {
            return Err(self.unreadable(&name, &io::Error::other("the snapshot is damaged")));
        }
        bytes.drain(..header::BYTES);
        Ok(bytes)
    }

    fn tail_now(&self, from: u64, each: Listener<'_>) -> Result<u64, NotTold> {
        let shared = &*self.shared;
        let durable = shared.durable.load(Ordering::Acquire);
        let segments = shared.segments.lock().expect("no panic under this lock").clone();
        if from < segments[0].1 {
            return Err(NotTold::Trimmed { first: segments[0].1 });
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
                    return Err(NotTold::Trimmed { first: segments[0].1 });
                }
                opened => opened.map_err(|error| self.unreadable(&name, &error))?,
            };
            read_all(&shared.disk, &file, u64::MAX, &mut bytes).map_err(|error| self.unreadable(&name, &error))?;
            let damaged = |place: usize| {
                let error = io::Error::other(format!("damaged at byte {place}"));
                self.unreadable(&name, &error)
            };
            let (_, salt) = header::Segment::decode(&bytes).map_err(|_| damaged(0))?;
            let mut place = header::BYTES;
            for expected in first..over {
                let frame::Found::Batch { sequence, bytes, end } = frame::look(salt, &bytes, place) else {
                    return Err(damaged(place));
                };
                if sequence != expected {
                    return Err(damaged(place));
                }
                if sequence >= from && each(sequence, bytes) == ControlFlow::Break(()) {
                    return Ok(sequence + 1);
                }
                place = end;
            }
        }
        Ok(durable.max(from))
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> NotTold {
        NotTold::Unreadable { why: format!("{}: {error}", self.shared.disk.path(name).display()) }
    }
}

impl<D: Disk> Shelf for FileShelf<D> {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<Kept, Fault> {
        self.save_now(sequence, snapshot)
    }

    async fn trim(&self, up_to: u64) -> Result<Kept, Fault> {
        self.trim_now(up_to)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, NotTold> {
        self.newest_now()
    }

    async fn tail(&self, from: u64, each: Listener<'_>) -> Result<u64, NotTold> {
        self.tail_now(from, each)
    }
}
