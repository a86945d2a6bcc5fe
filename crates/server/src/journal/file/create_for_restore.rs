//! Creates a journal from a snapshot and one batch, for a restore.
//!
//! A marker file is written first and the identity last. A crash between them leaves a directory that cannot be opened: it is
//! neither the restored journal nor a new one.

use std::io;
use std::sync::atomic::AtomicBool;

use super::disk::Disk;
use super::identity::JournalIdentity;
use super::preallocate::{SYNC_BYTES, prepare, remove_if_exists};
use super::{FileOptions, begin_segment, frame, header, names};
use crate::journal::OpenError;

/// Content of the new journal.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap<'a> {
    /// Generation of the writer of the batch.
    pub generation: u64,
    /// The last batch that the snapshot covers.
    pub sequence: u64,
    /// The encoded state.
    pub snapshot: &'a [u8],
    /// The batch after it.
    pub batch: &'a [u8],
    /// Header of the first audit file.
    pub audit_header: &'a [u8],
}

/// Creates a journal on an empty disk. Returns the name of a file if the disk is not empty.
pub fn bootstrap<D: Disk>(
    disk: &D,
    options: &FileOptions,
    content: &Bootstrap<'_>,
) -> Result<Option<String>, OpenError> {
    let refused = |name: &str| {
        let path = disk.path(name);
        move |error: io::Error| OpenError::from_io(&path, &error)
    };
    let found = disk.names().map_err(refused(""))?;
    let mut found = found.into_iter().filter(|name| !["", ".", "..", names::PID].contains(&name.as_str()));
    if let Some(found) = found.next() {
        return Ok(Some(found));
    }
    let written = write(disk, options, content);
    if written.is_err() {
        clear(disk);
    }
    written.map(|()| None).map_err(|(name, error)| OpenError::from_io(&disk.path(&name), &error))
}

fn write<D: Disk>(disk: &D, options: &FileOptions, content: &Bootstrap<'_>) -> Result<(), (String, io::Error)> {
    let at = |name: &str| {
        let name = name.to_owned();
        move |error: io::Error| (name, error)
    };
    let marker = disk.create(names::RESTORING).map_err(at(names::RESTORING))?;
    disk.sync(&marker).map_err(at(names::RESTORING))?;
    disk.sync_names().map_err(at(""))?;
    let journal = disk.random().map_err(at(""))?;
    let first = content.sequence + 1;
    let frame_bytes = frame::size(content.batch.len());
    let min = (header::BYTES + frame_bytes + frame::HEAD) as u64;
    let size = options.segment_bytes.next_multiple_of(frame::ALIGN as u64).max(min);
    prepare(disk, size, &AtomicBool::new(false)).map_err(at(names::SPARE))?;
    let (segment, salt) = begin_segment(disk, journal, 1, first, size).map_err(|(name, error, _)| (name, error))?;
    let name = names::segment(1);
    let mut frame = Vec::new();
    frame::encode(salt, first, content.batch, &mut frame);
    disk.write(&segment, header::BYTES as u64, &frame).map_err(at(&name))?;
    disk.sync(&segment).map_err(at(&name))?;
    let name = names::snapshot(content.sequence);
    save(disk, &name, &header::SnapshotHeader::encode(journal, content.sequence, content.snapshot), content.snapshot)
        .map_err(at(&name))?;
    let name = names::audit(1);
    let audit = disk.create(&name).map_err(at(&name))?;
    disk.write(&audit, 0, content.audit_header).and_then(|()| disk.sync(&audit)).map_err(at(&name))?;
    disk.sync_names().map_err(at(""))?;
    let generation = content.generation;
    let identity = JournalIdentity { journal, generation, segment: 1, next: first + 1, host: disk.host_identity() };
    identity.create(disk).map_err(at(names::IDENTITY))?;
    disk.remove(names::RESTORING).map_err(at(names::RESTORING))?;
    disk.sync_names().map_err(at(""))
}

fn save<D: Disk>(disk: &D, name: &str, header: &[u8], snapshot: &[u8]) -> io::Result<()> {
    let file = disk.create(name)?;
    disk.write(&file, 0, header)?;
    let mut at = header.len() as u64;
    for chunk in snapshot.chunks(SYNC_BYTES) {
        disk.write(&file, at, chunk)?;
        disk.sync(&file)?;
        at += chunk.len() as u64;
    }
    disk.sync(&file)?;
    disk.sync_names()
}

/// Removes the files of a failed attempt, the marker last. The next open refuses whatever cannot be removed.
fn clear<D: Disk>(disk: &D) {
    for name in disk.names().unwrap_or_default() {
        let ours = !matches!(names::kind(&name), names::FileKind::Other);
        if ours && name != names::RESTORING && remove_if_exists(disk, &name).is_err() {
            return;
        }
    }
    if disk.sync_names().is_ok() {
        remove_if_exists(disk, names::RESTORING).ok();
    }
}
